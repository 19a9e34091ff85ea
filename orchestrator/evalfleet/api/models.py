"""The model client of a worker for what is no judge, made when it is first asked."""

from __future__ import annotations

import asyncio

from evalfleet.model.judge import JudgeReply, JudgeRequest
from evalfleet.plugins import judge_model
from evalfleet.ports import Clock, JudgeModel, ModelCalls, Random


class ModelOnDemand:
    """A `JudgeModel` whose library is imported beside the loop."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._model: JudgeModel | None = None
        self._making = asyncio.Lock()

    async def ask(self, request: JudgeRequest, key: str | None, calls: ModelCalls | None = None) -> JudgeReply:
        """See `JudgeModel.ask`."""
        async with self._making:
            if self._model is None:
                self._model = await asyncio.to_thread(judge_model, self._clock, self._random)
        return await self._model.ask(request, key, calls)

    async def close(self) -> None:
        model, self._model = self._model, None
        if model is not None:
            await model.close()
