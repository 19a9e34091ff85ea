"""Outcome, verdict and score of an attempt, and the derived status of a case and a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from evalfleet.errors import FailureKind


class Style(StrEnum):
    """Whether an eval is read as a verdict or as a score."""

    PASS = "pass"
    SCORE = "score"


class Outcome(StrEnum):
    """How an attempt's execution ended; says nothing about correctness.

    `superseded` is stored for a completed attempt whose case another attempt had settled.
    """

    COMPLETED = "completed"
    ERRORED = "errored"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    SUPERSEDED = "superseded"


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    SKIPPED = "skipped"


class ScoreState(StrEnum):
    COMPLETE = "complete"
    PARTIAL = "partial"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Score:
    """The numeric fold. `earned` is a known lower bound when partial, None when unavailable."""

    state: ScoreState
    earned: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the fold says of one attempt. `kind` and `code` are set exactly when the verdict is errored."""

    verdict: Verdict
    score: Score | None = None
    kind: FailureKind | None = None
    code: str | None = None
    message: str | None = None


class CaseStatus(StrEnum):
    """Derived: settlement, else live attempt, else last attempt's outcome, else pending."""

    PENDING = "pending"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    SKIPPED = "skipped"
    BLOCKED = "blocked"
    CANCELLED = "cancelled"
    NOT_NEEDED = "not_needed"


class Settlement(StrEnum):
    """How a case was decided: by an attempt, or without one."""

    ATTEMPT = "attempt"
    CARRIED = "carried"
    BLOCKED = "blocked"
    SKIPPED = "skipped"
    NOT_NEEDED = "not_needed"


class RunStatus(StrEnum):
    """Speaks of scheduling, never of acceptance."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    LIMITED = "limited"


class RunKind(StrEnum):
    SWEEP = "sweep"
    TRY = "try"
