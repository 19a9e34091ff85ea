"""The agent under test: a clerk who thinks, calls a tool, looks at the result, and goes on until there is a reply."""

from __future__ import annotations

from shop_model import ShopModel, ToolCall, ToolResult
from shop_tools import TOOLS

from evalfleet import (
    COMPLETE_COVERAGE,
    AdapterContext,
    Message,
    OperationFinished,
    OperationStarted,
    OperationStatus,
    Role,
    Turn,
    TurnInput,
    TurnStatus,
    Usage,
    agent,
)

MAX_STEPS = 12


@agent(coverage=COMPLETE_COVERAGE)
class Clerk:
    """One conversation with a customer. The flag `careful` chooses the model."""

    def __init__(self, ctx: AdapterContext) -> None:
        self._model = ShopModel(careful=ctx.flags["careful"], seed=ctx.seed)
        self._transcript: list[str | ToolResult] = []

    async def send(self, turn: TurnInput) -> Turn:
        self._transcript.append(turn.text)
        events: list[OperationStarted | OperationFinished] = []
        for step in range(1, MAX_STEPS + 1):
            move = self._model.next_move(self._transcript)
            if isinstance(move, str):
                return Turn(events=(*events, Message(Role.ASSISTANT, move)), usage=_usage(turn.text, move, step))
            result = await _use(move)
            self._transcript.append(result)
            events += _recorded(f"call-{step}", result)
        return Turn(status=TurnStatus.TRUNCATED, events=tuple(events), usage=_usage(turn.text, "", MAX_STEPS))


async def _use(call: ToolCall) -> ToolResult:
    try:
        return ToolResult(call, await TOOLS[call.name].call(call.arguments))
    except LookupError as error:
        return ToolResult(call, str(error), failed=True)


def _recorded(call_id: str, result: ToolResult) -> tuple[OperationStarted, OperationFinished]:
    """The evidence: what was called, and how it ended."""
    status = OperationStatus.FAILED if result.failed else OperationStatus.COMPLETED
    return (
        OperationStarted(call_id, result.call.name, result.call.arguments),
        OperationFinished(call_id, status, result.output),
    )


def _usage(question: str, reply: str, requests: int) -> Usage:
    """One token a word; a model's API reports its own."""
    return Usage(input_tokens=len(question.split()), output_tokens=len(reply.split()), requests=requests)
