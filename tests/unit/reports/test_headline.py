from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.errors import StoreError
from evalfleet.model.report import ArmCounts
from evalfleet.model.verdict import Style
from evalfleet.reports.classes import CaseClass, classes_of
from evalfleet.reports.headline import PassHeadline, ScoreHeadline, headline, pass_headline
from evalfleet.reports.statistics import Interval

# passed, failed, errored_own, errored_other, blocked, cancelled, pending, skipped, not_needed
#   → passed / (N - M), coverage, bounds
HEADLINES = {
    "all answered": ((8, 2, 0, 0, 0, 0, 0, 0, 0), 0.8, 1.0, (0.8, 0.8)),
    "an agent that crashes gains nothing": ((8, 0, 2, 0, 0, 0, 0, 0, 0), 0.8, 1.0, (0.8, 0.8)),
    "infrastructure is never a score": ((8, 0, 0, 2, 0, 0, 0, 0, 0), 1.0, 0.8, (0.8, 1.0)),
    "unsettled ones are missing": ((4, 1, 0, 0, 1, 1, 3, 0, 0), 0.8, 0.5, (0.4, 0.9)),
    "skipped and not needed leave N": ((3, 1, 0, 0, 0, 0, 0, 4, 2), 0.75, 1.0, (0.75, 0.75)),
    "nothing answered": ((0, 0, 0, 10, 0, 0, 0, 0, 0), None, 0.0, (0.0, 1.0)),
    "nothing counts": ((0, 0, 0, 0, 0, 0, 0, 9, 1), None, None, None),
}
ORDER = ("passed", "failed", "errored_own", "errored_other", "blocked", "cancelled", "pending", "skipped", "not_needed")


@pytest.mark.parametrize("name", HEADLINES)
def test_pass_headline(name: str) -> None:
    counts, rate, coverage, bounds = HEADLINES[name]
    figures = headline(
        ArmCounts(arm="a", style=Style.PASS, planned=sum(counts), **dict(zip(ORDER, counts, strict=True)))
    )
    assert isinstance(figures, PassHeadline)
    assert (figures.rate, figures.coverage) == (rate, coverage)
    assert figures.bounds == (None if bounds is None else Interval(*bounds))
    assert (figures.interval is None) == (rate is None)


def test_one_survivor_of_thirty_is_never_a_bare_hundred_percent() -> None:
    figures = headline(ArmCounts(arm="a", style=Style.PASS, planned=30, passed=1, errored_other=29))
    assert isinstance(figures, PassHeadline)
    assert (figures.rate, figures.coverage, figures.bounds) == (1.0, 1 / 30, Interval(1 / 30, 1.0))
    assert figures.notes == ("1 of 30 cases answered; the bounds say what the others could change",)


@given(st.lists(st.integers(0, 50), min_size=9, max_size=9))
def test_the_bounds_hold_every_possible_answer_of_the_missing(counts: list[int]) -> None:
    classes = {CaseClass(name): count for name, count in zip(ORDER, counts, strict=True)}
    figures = pass_headline(classes)
    if figures.bounds is None:
        assert figures.total == 0
        return
    missing_pass = (figures.passed + figures.missing) / figures.total
    assert figures.bounds == Interval(figures.passed / figures.total, missing_pass)
    assert figures.rate is None or figures.bounds.low <= figures.rate <= 1
    assert figures.answered + figures.missing == figures.total


@pytest.mark.parametrize(
    ("planned", "classes", "earned", "complete", "mean", "floor", "note"),
    [
        (4, {"passed": 4}, 10.0, 4, 2.5, 2.5, None),
        (4, {"passed": 2, "errored_other": 2}, 6.0, 2, 3.0, 1.5, "2 of 4 scores complete; the mean is over these"),
        (2, {"passed": 2}, 0.0, 2, 0.0, 0.0, None),
        (2, {"errored_other": 2}, 0.0, 0, None, 0.0, "0 of 2 scores complete: the mean score is undefined"),
        (2, {"skipped": 2}, 0.0, 0, None, None, "no case counts: the mean score is undefined"),
    ],
)
def test_score_headline(
    planned: int,
    classes: dict[str, int],
    earned: float,
    complete: int,
    mean: float | None,
    floor: float | None,
    note: str | None,
) -> None:
    figures = headline(
        ArmCounts(arm="a", style=Style.SCORE, planned=planned, earned_sum=earned, score_complete=complete, **classes)
    )
    assert isinstance(figures, ScoreHeadline)
    assert (figures.mean, figures.floor, figures.complete) == (mean, floor, complete)
    assert figures.notes == (() if note is None else (note,))


def test_every_case_is_in_exactly_one_class() -> None:
    counts = ArmCounts(arm="a", style=Style.PASS, planned=10, passed=4, failed=3, errored_other=2, pending=1, carried=4)
    assert sum(classes_of(counts).values()) == 10


def test_counts_that_do_not_add_up_are_refused_with_the_figures() -> None:
    counts = ArmCounts(arm="mine", style=Style.PASS, planned=10, passed=4, failed=3)
    with pytest.raises(StoreError, match=r"arm mine: 10 cases were planned, .* counts 4 passed, 3 failed"):
        headline(counts)
