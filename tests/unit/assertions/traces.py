"""Short ways to write down evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evalfleet.assertions.evidence import ScopeEvidence, scope_of
from evalfleet.model.assertion import ScopeKind
from evalfleet.model.coverage import COMPLETE_COVERAGE, Channel, Coverage, CoverageEntry, complete, partial, unavailable
from evalfleet.model.events import (
    MISSING,
    Event,
    InputRequested,
    Message,
    OperationFinished,
    OperationKind,
    OperationStarted,
    OperationStatus,
    Role,
)
from evalfleet.model.turn import TurnInput, TurnRecord, TurnStatus
from evalfleet.model.usage import Usage

ENTRIES: dict[str, CoverageEntry] = {
    "complete": complete,
    "partial": partial("lossy stream"),
    "unavailable": unavailable("not exposed"),
}


def covering(channel: Channel, state: str) -> Coverage:
    """Everything complete but `channel`."""
    return COMPLETE_COVERAGE.downgrade({channel: ENTRIES[state]})


def said(text: str) -> Message:
    return Message(Role.ASSISTANT, text)


def asked(request_id: str | None = "q1") -> InputRequested:
    return InputRequested(request_id, prompt="May I?")


def called(
    name: str,
    input: Any = MISSING,
    *,
    id: str = "1",
    output: Any = MISSING,
    status: str = "completed",
    tool: str | None = None,
    kind: OperationKind = OperationKind.TOOL,
) -> tuple[Event, ...]:
    """A call with its finish; `status="pending"` leaves the finish out."""
    start = OperationStarted(id, name, input, kind=kind, tool=tool)
    if status == "pending":
        return (start,)
    return start, OperationFinished(id, OperationStatus(status), output, kind=kind)


def turn(
    *events: Event,
    coverage: Coverage = COMPLETE_COVERAGE,
    status: str = "completed",
    session: int = 0,
    index: int = 0,
    sequence: int = 0,
    usage: Usage | None = None,
    failure: str | None = None,
) -> TurnRecord:
    return TurnRecord(
        session=session,
        index=index,
        sequence=sequence,
        input=TurnInput("hello"),
        status=TurnStatus(status),
        events=(Message(Role.USER, "hello"), *events),
        data=MISSING,
        usage=usage,
        coverage=coverage,
        started_at=0.0,
        duration=0.1,
        failure=failure,
    )


def scope(*turns: TurnRecord, in_flight: bool = False, kind: ScopeKind = ScopeKind.ATTEMPT) -> ScopeEvidence:
    return scope_of(kind, turns, in_flight)


def calls(count: int, name: str = "search") -> Sequence[Event]:
    return [event for number in range(count) for event in called(name, {"n": number}, id=str(number))]
