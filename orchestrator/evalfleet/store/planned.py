"""A run as it is planned, before anything of it has happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evalfleet.errors import FailureKind
from evalfleet.model.case import Case
from evalfleet.model.verdict import RunKind, ScoreState, Settlement, Style, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Presettled:
    """How a case is decided at planning: carried from an earlier run's attempt, blocked or left out.

    `from_run` and `from_attempt` name the run and the attempt that executed it, `from_grading` the one that judged it,
    for a carried one only.
    """

    how: Settlement
    verdict: Verdict | None = None
    kind: FailureKind | None = None
    code: str | None = None
    score_state: ScoreState | None = None
    earned: float | None = None
    from_run: str | None = None
    from_attempt: int | None = None
    from_grading: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDataset:
    """A dataset as it was read: `sha256` in hexadecimal, `rows` a count."""

    definition: str
    uri: str
    revision: str | None
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSuite:
    """A suite as it was read: `document` is all of it as JSON, normalised."""

    id: str
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """Everything that is fixed before a run's first attempt.

    `arms` maps each arm's name, in experiment order, to its settings as JSON. `cases` is read once, in order of
    ordinals from 0, and may be a generator of a million; a case comes with how it is already decided, or None.
    `idempotency_key` is minted per client request: a second creation with the same key changes nothing.
    """

    id: str
    name: str
    project: str
    digest: str
    experiment: Mapping[str, Any]
    lock: Mapping[str, Any]
    arms: Mapping[str, Mapping[str, Any]]
    cases: Iterable[tuple[Case, Presettled | None]]
    kind: RunKind = RunKind.SWEEP
    datasets: tuple[PlannedDataset, ...] = ()
    suites: tuple[PlannedSuite, ...] = ()
    idempotency_key: str | None = None
    derived_from: str | None = None


@dataclass(frozen=True, slots=True)
class CreatedRun:
    """A run in the store; `created` is False when the same request had made it before."""

    id: str
    run_key: int
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PastResult:
    """What an earlier run made of a case: its place there, and how it was settled by its current grading.

    `executed_by` and `attempt` name the run and the attempt that executed it, also when `run` had carried it, and
    `grading` the one that judged it; `attempt` is None when it was settled without one.
    """

    run: str
    ordinal: int
    how: Settlement
    verdict: Verdict | None
    executed_by: str
    attempt: int | None
    grading: int = 0
    kind: FailureKind | None = None
    code: str | None = None
    score_state: ScoreState | None = None
    earned: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedRun:
    """A run of the same definitions that was never finished."""

    id: str
    created_at: float
    settled: int
    total: int


@dataclass(slots=True)
class Totals:
    """What the creation counts while cases stream by: per arm, and per block of 1,024 how many wait."""

    cases: int = 0
    errored: int = 0
    by_arm: Counter[str] = field(default_factory=Counter[str])
    styles: dict[str, Style] = field(default_factory=dict[str, Style])
    repeated: set[str] = field(default_factory=set[str])
    blocks: dict[int, int] = field(default_factory=dict[int, int])

    def of(self, arm: str) -> tuple[int, Style | None, bool]:
        """How many cases an arm has, their style, and whether an eval occurs in it more than once."""
        return self.by_arm[arm], self.styles.get(arm), arm in self.repeated
