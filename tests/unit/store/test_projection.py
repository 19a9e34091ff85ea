"""Which events the rows of a run's commits mean, and that their numbers are for ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.errors import ConfigurationError, FailureKind
from evalfleet.model.run_events import BEGINNING, EventCursor, RunEvent, RunEventType
from evalfleet.model.verdict import CaseStatus, Outcome, RunStatus
from evalfleet.store.projection import ApartFact, AttemptFact, CaseName, Decided, Fact, MarkFact, Place, project

PLACE = Place("r1", {"shop/refund": ("greet", "ask")})
STARTED = MarkFact(commit_seq=0, number=1, type=RunEventType.RUN_STARTED, at=1.0)
PASSED = Decided(CaseStatus.PASSED)


def attempt(commit_seq: int, case: int, number: int = 1, /, **changes: Any) -> AttemptFact:
    fact = AttemptFact(
        commit_seq=commit_seq,
        id=10 * commit_seq + case,
        case=CaseName(case, f"sql/{case}", "small", 0),
        number=number,
        outcome=Outcome.COMPLETED,
        turns=1,
        started_at=100.0,
        duration=2.5,
        settled=PASSED,
    )
    return replace(fact, **changes)


def apart(commit_seq: int, case: int, status: CaseStatus, number: int | None = None) -> ApartFact:
    return ApartFact(
        commit_seq=commit_seq, case=CaseName(case, f"sql/{case}", "small", 0), settled=Decided(status), number=number
    )


def mark(commit_seq: int, number: int, status: RunStatus | None = None) -> MarkFact:
    kind = RunEventType.RUN_RESUMED if status is None else RunEventType.RUN_COMPLETED
    return MarkFact(commit_seq=commit_seq, number=number, type=kind, at=9.0, status=status)


def lost(commit_seq: int, case: int, number: int = 1) -> AttemptFact:
    return attempt(commit_seq, case, number, outcome=Outcome.INTERRUPTED, turns=0, settled=None)


def line(event: RunEvent) -> str:
    """An event in short: what, of which case and attempt, and what became of it."""
    parts = (event.case, event.attempt and f"#{event.attempt}", event.turn, event.step, event.status)
    return " ".join([event.type.value, *(str(part) for part in parts if part is not None)])


ERRORED = Decided(CaseStatus.ERRORED, FailureKind.PROVIDER, "BOOM")
FAILS: dict[str, Any] = {"outcome": Outcome.ERRORED, "settled": None}

TABLE: dict[str, tuple[list[Fact], list[str]]] = {
    "a case that passes": (
        [STARTED, attempt(1, 0), mark(1, 2, RunStatus.COMPLETED)],
        [
            "run.started",
            "case.started 0 #1",
            "turn.completed 0 #1 0",
            "case.completed 0 #1 passed",
            "run.completed completed",
        ],
    ),
    "turns of a suite's scenario have their step; one more than it has steps has none": (
        [STARTED, attempt(1, 0, case=CaseName(0, "shop/refund", "small", 0), turns=3)],
        [
            "run.started",
            "case.started 0 #1",
            "turn.completed 0 #1 0 greet",
            "turn.completed 0 #1 1 ask",
            "turn.completed 0 #1 2",
            "case.completed 0 #1 passed",
        ],
    ),
    "a retry starts the case again": (
        [STARTED, attempt(1, 0, turns=0, **FAILS), attempt(2, 0, 2, turns=0, settled=ERRORED)],
        ["run.started", "case.started 0 #1", "case.started 0 #2", "case.completed 0 #2 errored"],
    ),
    "what was decided at planning comes after the start, what was carried nowhere": (
        [apart(0, 3, CaseStatus.BLOCKED), apart(0, 1, CaseStatus.SKIPPED), mark(0, 2, RunStatus.COMPLETED), STARTED],
        ["run.started", "case.completed 1 skipped", "case.completed 3 blocked", "run.completed completed"],
    ),
    "a case that is given up after it lost its worker": (
        [STARTED, lost(1, 0), apart(3, 0, CaseStatus.ERRORED, 1)],
        ["run.started", "case.started 0 #1", "case.completed 0 #1 errored"],
    ),
    "an attempt that came too late, superseded or in any other way, is no news": (
        [
            STARTED,
            attempt(1, 0, turns=0),
            attempt(2, 0, 2, outcome=Outcome.SUPERSEDED, settled=None),
            attempt(3, 0, 3, late=True, **FAILS),
        ],
        ["run.started", "case.started 0 #1", "case.completed 0 #1 passed"],
    ),
    "a run that is resumed has not started again": (
        [STARTED, mark(0, 2, RunStatus.CANCELLED), mark(0, 3), attempt(1, 0, turns=0), mark(1, 4, RunStatus.LIMITED)],
        [
            "run.started",
            "run.completed cancelled",
            "run.resumed",
            "case.started 0 #1",
            "case.completed 0 #1 passed",
            "run.completed limited",
        ],
    ),
    "a reopened case completes twice": (
        [STARTED, attempt(1, 0, turns=0, settled=ERRORED), mark(1, 2), attempt(2, 0, 2, turns=0)],
        [
            "run.started",
            "case.started 0 #1",
            "case.completed 0 #1 errored",
            "run.resumed",
            "case.started 0 #2",
            "case.completed 0 #2 passed",
        ],
    ),
    "a cancelled attempt settles nothing": (
        [STARTED, attempt(1, 0, outcome=Outcome.CANCELLED, turns=1, settled=None), mark(1, 2, RunStatus.CANCELLED)],
        ["run.started", "case.started 0 #1", "turn.completed 0 #1 0", "run.completed cancelled"],
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_rows_mean_these_events(name: str) -> None:
    facts, wanted = TABLE[name]
    events = list(project(facts, PLACE, BEGINNING))
    assert [line(event) for event in events] == wanted
    assert [event.sequence for event in events] == list(range(1, len(wanted) + 1))


def test_an_event_says_when_and_why_as_far_as_it_is_recorded() -> None:
    _, started, turn, completed = project([STARTED, attempt(1, 0, settled=ERRORED)], PLACE, BEGINNING)
    assert (started.at, turn.at, completed.at) == (100.0, None, 102.5)
    assert (completed.kind, completed.code) == (FailureKind.PROVIDER, "BOOM")
    assert (completed.eval_id, completed.arm, completed.repetition) == ("sql/0", "small", 0)
    assert (str(completed.cursor), completed.run) == ("4.1.3", "r1")


@st.composite
def histories(draw: st.DrawFn) -> list[Fact]:
    """What a run may have come to: attempts in commits, cases given up, and the run stopped and resumed in between."""
    facts: list[Fact] = [STARTED]
    facts += [apart(0, 100 + case, CaseStatus.SKIPPED) for case in range(draw(st.integers(0, 2)))]
    numbers = [0] * 6
    decided = [False] * 6
    marks = 1
    for commit_seq in range(1, draw(st.integers(1, 8)) + 1):
        for case in draw(st.permutations(range(6)))[: draw(st.integers(0, 6))]:
            numbers[case] += 1
            turns = draw(st.integers(0, 3))
            late, settles = decided[case], draw(st.booleans())
            changes: dict[str, Any] = {
                "turns": turns,
                "late": late,
                "settled": PASSED if settles and not late else None,
            }
            facts.append(attempt(commit_seq, case, numbers[case], **changes))
            decided[case] |= settles
        open_cases = [case for case in range(6) if numbers[case] and not decided[case]]
        if open_cases and draw(st.booleans()):
            facts.append(apart(commit_seq, open_cases[0], CaseStatus.ERRORED, numbers[open_cases[0]]))
            decided[open_cases[0]] = True
        if draw(st.booleans()):
            marks += 2
            facts += [mark(commit_seq, marks - 1, RunStatus.CANCELLED), mark(commit_seq, marks)]
    return facts


@given(histories(), st.randoms(use_true_random=False))
def test_numbers_have_no_gaps_and_whoever_goes_on_from_an_event_reads_the_rest(
    facts: list[Fact], random: Random
) -> None:
    shuffled = list(facts)
    random.shuffle(shuffled)
    events = list(project(shuffled, PLACE, BEGINNING))
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    for before, event in pairwise([None, *events]):
        after = BEGINNING if before is None else EventCursor.parsed(str(before.cursor))
        rest = [fact for fact in facts if fact.commit_seq >= after.commit_seq]
        assert next(iter(project(rest, PLACE, after))) == event


@given(histories())
def test_what_was_told_after_each_commit_stays_as_it_was(facts: list[Fact]) -> None:
    whole = list(project(facts, PLACE, BEGINNING))
    for last in range(max(fact.commit_seq for fact in facts) + 1):
        known = [fact for fact in facts if fact.commit_seq <= last]
        told = list(project(known, PLACE, BEGINNING))
        assert told == whole[: len(told)]
        assert told == list(_in_pages(known))


@given(histories())
def test_a_case_starts_before_its_turns_and_they_before_its_end(facts: list[Fact]) -> None:
    events = [event for event in project(facts, PLACE, BEGINNING) if event.case is not None and event.case < 100]
    for _, of_case in groupby(sorted(events, key=lambda event: (event.case, event.sequence)), lambda each: each.case):
        _check_order(list(of_case))


def _in_pages(facts: Sequence[Fact]) -> list[RunEvent]:
    """The events, read a commit at a time as a reader that was there at each."""
    told: list[RunEvent] = []
    for last in range(max(fact.commit_seq for fact in facts) + 1):
        after = told[-1].cursor if told else BEGINNING
        told += project([fact for fact in facts if after.commit_seq <= fact.commit_seq <= last], PLACE, after)
    return told


def _check_order(events: Sequence[RunEvent]) -> None:
    attempt, turn, completed = 0, 0, False
    for event in events:
        assert not completed, "nothing comes after the end of a case that nobody reopened"
        if event.type is RunEventType.CASE_STARTED:
            attempt, turn = event.attempt or 0, 0
        elif event.type is RunEventType.TURN_COMPLETED:
            assert (event.attempt, event.turn) == (attempt, turn)
            turn += 1
        else:
            assert event.attempt == attempt > 0
            completed = True


@pytest.mark.parametrize("text", ["", "17", "1.2", "1.2.x", "-1.2.3", "1.2.3.4", "1..2", "²0.1.1", "1.1." + "9" * 30])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not the cursor of a run event"):
        EventCursor.parsed(text)
