"""What observers of a run are told: run events, in the order in which the run's commits made them facts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from evalfleet.errors import ConfigurationError, FailureKind
from evalfleet.model.verdict import CaseStatus, RunStatus


class RunEventType(StrEnum):
    RUN_STARTED = "run.started"
    RUN_RESUMED = "run.resumed"
    CASE_STARTED = "case.started"
    TURN_COMPLETED = "turn.completed"
    CASE_COMPLETED = "case.completed"
    RUN_COMPLETED = "run.completed"


#: The events that are written as such.
MARKS = (RunEventType.RUN_STARTED, RunEventType.RUN_RESUMED, RunEventType.RUN_COMPLETED)


@dataclass(frozen=True, slots=True)
class EventCursor:
    """After which event to go on: its number, and where it stands, which spares reading what lies before.

    `offset` counts the events of the commit `commit_seq` up to and including that one.
    """

    sequence: int = 0
    commit_seq: int = 0
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.sequence}.{self.commit_seq}.{self.offset}"

    @classmethod
    def parsed(cls, text: str) -> EventCursor:
        """The cursor of an event. Raises ConfigurationError for any other text."""
        parts = text.split(".")
        if len(parts) == 3 and all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
            return cls(*map(int, parts))
        raise ConfigurationError(f"{text!r} is not the cursor of a run event: take one as an event has it, like 17.5.3")


#: Before the first event.
BEGINNING = EventCursor()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One fact of a run. `sequence` counts from 1 without gaps and is the same for whoever reads, whenever.

    `at` is in seconds since the epoch, None when it is not recorded. `case` is the ordinal, `attempt` the number of the
    attempt within its case from 1, `turn` counts from 0 within the attempt, `step` is its id in a suite. `status` is
    that of the completed case or run; `kind` and `code` say why a case errored.
    """

    sequence: int
    type: RunEventType
    run: str
    cursor: EventCursor
    at: float | None = None
    case: int | None = None
    eval_id: str | None = None
    arm: str | None = None
    repetition: int | None = None
    attempt: int | None = None
    turn: int | None = None
    step: str | None = None
    status: CaseStatus | RunStatus | None = None
    kind: FailureKind | None = None
    code: str | None = None
