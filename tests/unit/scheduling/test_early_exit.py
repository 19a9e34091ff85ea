"""Which repetitions are not needed any more."""

from __future__ import annotations

import pytest

from evalfleet.model.case import Case
from evalfleet.model.record import Claim, PendingCase
from evalfleet.model.verdict import Settlement, Style
from evalfleet.scheduling import early_exit
from evalfleet.scheduling.state import Adoption, OpenCase, Phase, RunPolicy, RunState, begin


def state_of(cycle: int | None, solved: tuple[int, ...] = ()) -> RunState:
    claim = Claim(run_key=1, epoch=1, commit_seq=0, total=12, settled=0, solved=solved)
    return begin(claim, RunPolicy(concurrency=1, cycle=cycle), 0.0, 0.0, adoption=Adoption.NONE)


def waiting(ordinal: int, style: Style = Style.PASS, *, recorded: bool = False) -> OpenCase:
    case = Case(
        ordinal=ordinal,
        arm="a",
        eval_id="e",
        definition="e",
        style=style,
        repetition=0,
        content="c",
        fingerprint="f",
    )
    pending = PendingCase(case, attempts=0, crashes=0, lost=0)
    return OpenCase(ordinal, Phase.PENDING, pending, recorded=recorded)


@pytest.mark.parametrize(
    ("cycle", "solved", "ordinal", "needed"),
    [
        (None, (), 5, True),
        (4, (), 5, True),
        (4, (1,), 5, False),
        (4, (1,), 9, False),
        (4, (1,), 1, False),
        (4, (1,), 6, True),
        (1, (0,), 7, False),
    ],
)
def test_what_is_needed(cycle: int | None, solved: tuple[int, ...], ordinal: int, needed: bool) -> None:
    assert early_exit.is_needed(state_of(cycle, solved), waiting(ordinal)) is needed


def test_a_pass_of_any_repetition_counts_for_all() -> None:
    state = state_of(4)
    early_exit.passed(state, waiting(6))
    assert [early_exit.is_needed(state, waiting(ordinal)) for ordinal in (2, 3, 6, 10)] == [False, True, False, False]


@pytest.mark.parametrize("case", [None, OpenCase(2, Phase.UNREAD), waiting(2, Style.SCORE)])
def test_what_is_no_known_success_solves_nothing(case: OpenCase | None) -> None:
    state = state_of(4)
    early_exit.passed(state, case)
    assert early_exit.is_needed(state, waiting(6))


def test_a_case_whose_agent_is_done_is_judged() -> None:
    assert early_exit.is_needed(state_of(4, (1,)), waiting(5, recorded=True))


def test_what_is_not_needed_is_settled_so_at_the_next_commit() -> None:
    state, case = state_of(4, (1,)), waiting(5)
    early_exit.skip(state, case)
    assert case.phase is Phase.COMMITTING
    [settlement] = state.buffer.settled
    assert (settlement.case, settlement.how, settlement.verdict, settlement.code) == (
        5,
        Settlement.NOT_NEEDED,
        None,
        "early_exit",
    )


def test_without_early_exit_nothing_is_remembered() -> None:
    state = state_of(None)
    early_exit.passed(state, waiting(6))
    assert not state.solved and early_exit.is_needed(state, waiting(6))
