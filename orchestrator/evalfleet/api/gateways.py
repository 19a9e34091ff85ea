"""The gateway of a worker, made when the first attempt needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from evalfleet.plugins import gateway_room
from evalfleet.ports import Random
from evalfleet.sandbox_ports import Gateway, Listening, OpenGateway


class GatewayOnDemand:
    """A `Gateway` that is needed where a plan allows hosts; its server is imported then, beside the loop."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._room: Gateway | None = None
        self._making = asyncio.Lock()

    def is_needed(self, attempt: int, allow: Sequence[str]) -> bool:
        return bool(allow)

    async def open(self, sandbox: Listening, attempt: int, allow: Sequence[str]) -> OpenGateway:
        """See `Gateway.open`."""
        async with self._making:
            if self._room is None:
                self._room = await asyncio.to_thread(gateway_room, self._random)
        return await self._room.open(sandbox, attempt, allow)
