"""Run events as a projection of what a run's commits wrote: rows of some commits → their events, in order. PURE.

Nothing is written for an event but the marks of the run. The order is that of the commits; within one, attempts by id
come before cases that were settled apart from an attempt of it, and marks come last, since a claim or a finish adds
nothing before what the commit at which it stands has told. Only the run's first mark comes before all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from evalfleet.errors import FailureKind
from evalfleet.model.run_events import BEGINNING, EventCursor, RunEvent, RunEventType
from evalfleet.model.verdict import CaseStatus, Outcome, RunStatus

#: Where facts stand within their commit.
_OPENING, _ATTEMPT, _APART, _MARK = range(4)


@dataclass(frozen=True, slots=True)
class CaseName:
    """Which case a fact is of."""

    ordinal: int
    eval_id: str
    arm: str
    repetition: int


@dataclass(frozen=True, slots=True)
class Decided:
    """What a settlement says of its case."""

    status: CaseStatus
    kind: FailureKind | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFact:
    """An attempt as its commit wrote it. `id` orders the attempts of a commit, `number` those of a case.

    `settled` is what its own commit decided by it; `late` says that its case had been decided before. Times are in
    seconds, `started_at` since the epoch.
    """

    commit_seq: int
    id: int
    case: CaseName
    number: int
    outcome: Outcome
    turns: int
    started_at: float
    duration: float
    settled: Decided | None = None
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApartFact:
    """A case that was settled by no attempt of that commit: at planning, given up, or not needed.

    `number` is that of the earlier attempt which decides it.
    """

    commit_seq: int
    case: CaseName
    settled: Decided
    number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkFact:
    """A milestone of the run, by its number from 1; `commit_seq` is that of the last commit before it."""

    commit_seq: int
    number: int
    type: RunEventType
    at: float
    status: RunStatus | None = None


Fact = AttemptFact | ApartFact | MarkFact


@dataclass(frozen=True, slots=True)
class Place:
    """Of which run events are, and the ids of the steps that each scenario of its suites has, by eval id."""

    run: str
    steps: Mapping[str, Sequence[str]]


def project(facts: Iterable[Fact], place: Place, after: EventCursor) -> Iterator[RunEvent]:
    """The events of all facts of some consecutive commits that come after the cursor, in order.

    The commits begin with that of the cursor, whole, since its `offset` is counted off here.
    """
    sequence, commit_seq, offset = after.sequence, after.commit_seq, 0
    for fact in sorted(facts, key=_position):
        if fact.commit_seq != commit_seq:
            commit_seq, offset = fact.commit_seq, 0
        for event in _events(fact, place):
            offset += 1
            if commit_seq == after.commit_seq and offset <= after.offset:
                continue
            sequence += 1
            yield replace(event, sequence=sequence, cursor=EventCursor(sequence, commit_seq, offset))


def _position(fact: Fact) -> tuple[int, int, int]:
    match fact:
        case AttemptFact():
            return fact.commit_seq, _ATTEMPT, fact.id
        case ApartFact():
            return fact.commit_seq, _APART, fact.case.ordinal
        case MarkFact():
            return fact.commit_seq, _OPENING if fact.type is RunEventType.RUN_STARTED else _MARK, fact.number


def _events(fact: Fact, place: Place) -> Iterator[RunEvent]:
    """The events of a fact, not yet numbered."""
    match fact:
        case AttemptFact():
            yield from _of_attempt(fact, place)
        case ApartFact():
            yield _completed(_of_case(fact.case, fact.number, place), fact.settled, None)
        case MarkFact():
            yield RunEvent(sequence=0, cursor=BEGINNING, type=fact.type, run=place.run, at=fact.at, status=fact.status)


def _of_attempt(fact: AttemptFact, place: Place) -> Iterator[RunEvent]:
    """Nothing of an attempt whose case was decided before it: it changes nothing that an observer was told."""
    if fact.late or fact.outcome is Outcome.SUPERSEDED:
        return
    started = _of_case(fact.case, fact.number, place)
    yield replace(started, at=fact.started_at)
    steps = place.steps.get(fact.case.eval_id, ())
    for turn in range(fact.turns):
        step = steps[turn] if turn < len(steps) else None
        yield replace(started, type=RunEventType.TURN_COMPLETED, turn=turn, step=step)
    if fact.settled is not None:
        yield _completed(started, fact.settled, fact.started_at + fact.duration)


def _of_case(case: CaseName, attempt: int | None, place: Place) -> RunEvent:
    return RunEvent(
        sequence=0,
        cursor=BEGINNING,
        type=RunEventType.CASE_STARTED,
        run=place.run,
        case=case.ordinal,
        eval_id=case.eval_id,
        arm=case.arm,
        repetition=case.repetition,
        attempt=attempt,
    )


def _completed(started: RunEvent, settled: Decided, at: float | None) -> RunEvent:
    said = {"status": settled.status, "kind": settled.kind, "code": settled.code}
    return replace(started, type=RunEventType.CASE_COMPLETED, at=at, **said)
