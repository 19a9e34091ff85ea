"""Agents of the tour, without a model. The two support agents map the answers of one service by hand."""

from __future__ import annotations

from typing import Any

from evalfleet import (
    COMPLETE_COVERAGE,
    AdapterContext,
    Coverage,
    Message,
    OperationFinished,
    OperationStarted,
    OperationStatus,
    Role,
    Turn,
    TurnInput,
    agent,
    complete,
    partial,
    unavailable,
)

QUERIES = {
    "How many orders are there?": "SELECT count(*) FROM orders",
    "Which orders are open, oldest first?": "SELECT * FROM orders WHERE open ORDER BY placed",
}


@agent(coverage=COMPLETE_COVERAGE)
async def knows_all(turn: TurnInput, ctx: AdapterContext) -> Turn:
    """Looks the weather up, and knows the queries by heart."""
    if turn.text in QUERIES:
        return Turn(reply=QUERIES[turn.text])
    sky = {"city": "Brooklyn", "sky": "sunny"}
    call = OperationStarted("call-1", "get_weather", {"city": "Brooklyn"})
    done = OperationFinished("call-1", OperationStatus.COMPLETED, sky)
    return Turn(events=(call, done, Message(Role.ASSISTANT, "It is sunny in Brooklyn today.")))


@agent(
    coverage=Coverage(
        events=partial("the endpoint emits final events only"),
        actions=unavailable("tool lifecycle events are not exposed"),
        messages=complete,
        usage=unavailable("the endpoint omits token usage"),
        status=complete,
        data=complete,
    )
)
async def final_events_only(turn: TurnInput, ctx: AdapterContext) -> Turn:
    """Maps the final message, says honestly what it can't see, and forms no verdict about tools."""
    return Turn(reply=answer(turn.text)["message"])


@agent(
    coverage=Coverage(
        events=complete,
        actions=complete,
        messages=complete,
        usage=unavailable("the endpoint omits token usage"),
        status=complete,
        data=complete,
    )
)
async def with_its_log(turn: TurnInput, ctx: AdapterContext) -> Turn:
    """The repair: the service keeps a log of every call, how it ended included, so the mapping is complete."""
    answered = answer(turn.text)
    events: list[OperationStarted | OperationFinished] = []
    for number, entry in enumerate(answered["log"]):
        events.append(OperationStarted(f"call-{number}", entry["tool"], entry["arguments"]))
        events.append(OperationFinished(f"call-{number}", OperationStatus(entry["ended"]), entry["result"]))
    return Turn(events=(*events, Message(Role.ASSISTANT, answered["message"])))


def answer(request: str) -> dict[str, Any]:
    """What the service under test would answer: its final message, and the log that only an operator can read."""
    number = request.removeprefix("Please refund order ").removesuffix(".")
    call = {"tool": "refund_order", "arguments": {"order": number}, "ended": "completed", "result": {"cents": 3490}}
    return {"message": f"Order {number} is refunded.", "log": [call]}
