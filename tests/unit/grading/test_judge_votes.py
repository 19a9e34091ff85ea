"""Several votes become one score by a reducer, and how far they agree is a number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.grading.judge_votes import agreement, reduce
from evalfleet.model.judge import Reducer


@pytest.mark.parametrize(
    ("scores", "mean", "middle", "majority", "least"),
    [
        ((0.7,), 0.7, 0.7, 0.7, 0.7),
        ((1.0, 0.0), 0.5, 0.5, 0.0, 0.0),
        ((1.0, 1.0, 0.0), 2 / 3, 1.0, 1.0, 0.0),
        ((0.0, 0.5, 1.0), 0.5, 0.5, 0.0, 0.0),
        ((0.2, 0.4, 0.4, 1.0), 0.5, 0.4, 0.4, 0.2),
    ],
)
def test_the_reducers(scores: tuple[float, ...], mean: float, middle: float, majority: float, least: float) -> None:
    reduced = {reducer: reduce(scores, reducer) for reducer in Reducer}
    assert reduced == {
        Reducer.MEAN: pytest.approx(mean),
        Reducer.MEDIAN: pytest.approx(middle),
        Reducer.MAJORITY: majority,
        Reducer.MIN: least,
    }


@pytest.mark.parametrize(
    ("scores", "share"),
    [((1.0,), None), ((1.0, 1.0), 1.0), ((1.0, 0.0), 0.0), ((1.0, 1.0, 0.0), 1 / 3), ((0.4, 0.6), 0.8)],
)
def test_how_far_votes_agree(scores: tuple[float, ...], share: float | None) -> None:
    assert agreement(scores) == (None if share is None else pytest.approx(share))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_what_votes_come_to_lies_between_them(scores: list[float]) -> None:
    for reducer in Reducer:
        assert min(scores) <= reduce(scores, reducer) <= max(scores) or reducer is Reducer.MEAN
        assert 0 <= reduce(scores, reducer) <= 1
    assert agreement(scores) is None or 0 <= (agreement(scores) or 0) <= 1
