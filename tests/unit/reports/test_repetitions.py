from __future__ import annotations

from itertools import combinations
from math import isclose
from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.reports.repetitions import Repeated, per_eval


def repeated(counted: int, passed: int, k: int) -> Repeated:
    return per_eval({(counted, counted, passed): 1}, stopped_early=False).repeated[k - 1]


def test_pass_hat_k_draws_without_replacement() -> None:
    figures = repeated(5, 3, 2)
    assert figures.all_pass == pytest.approx(0.3)
    assert figures.any_passes == pytest.approx(0.9)


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_k_tries_against_counting_every_draw(case: tuple[int, int, int]) -> None:
    answered, passed, k = case
    draws = list(combinations([True] * passed + [False] * (answered - passed), k))
    figures = repeated(answered, passed, k)
    assert figures.any_passes == pytest.approx(mean(any(draw) for draw in draws))
    assert figures.all_pass == pytest.approx(mean(all(draw) for draw in draws))


def test_k_beyond_the_answers_is_undefined() -> None:
    figures = per_eval({(5, 3, 1): 2}, stopped_early=False)
    assert [each.any_passes is None for each in figures.repeated] == [False, False, False, True, True]
    assert figures.repeated[4] == Repeated(5, 0, None, None)


def test_uneven_repetitions_weigh_evals_not_answers() -> None:
    figures = per_eval({(1, 1, 1): 1, (9, 9, 0): 1, (2, 0, 0): 1}, stopped_early=False)
    assert figures.mean == 0.5
    assert (figures.answered_evals, figures.evals) == (2, 3)
    assert (figures.answered, figures.repetitions) == (10, 12)


def test_repetitions_that_agree_add_no_certainty() -> None:
    once = per_eval({(1, 1, 1): 7, (1, 1, 0): 3}, stopped_early=False)
    thrice = per_eval({(3, 3, 3): 7, (3, 3, 0): 3}, stopped_early=False)
    assert (once.mean, once.standard_error) == (thrice.mean, thrice.standard_error)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=2, max_size=30))
def test_the_standard_error_is_that_of_the_evals(answers: list[tuple[int, int]]) -> None:
    histogram: dict[tuple[int, int, int], int] = {}
    shares: list[float] = []
    for counted, wanted in answers:
        passed = min(counted, wanted)
        shares.append(passed / counted)
        key = (counted, counted, passed)
        histogram[key] = histogram.get(key, 0) + 1
    figures = per_eval(histogram, stopped_early=False)
    assert figures.standard_error is not None
    assert isclose(figures.standard_error, stdev(shares) / len(shares) ** 0.5, rel_tol=1e-9, abs_tol=1e-12)


@pytest.mark.parametrize(
    ("histogram", "error", "note"),
    [
        ({(1, 1, 1): 1}, None, "one eval has an answer: how far evals differ is unknown"),
        ({(1, 1, 1): 3}, 0.0, "no variation seen between evals"),
        ({(3, 3, 0): 20}, 0.0, "no variation seen between evals"),
    ],
)
def test_what_cannot_be_estimated_says_so(
    histogram: dict[tuple[int, int, int], int], error: float | None, note: str
) -> None:
    figures = per_eval(histogram, stopped_early=False)
    assert figures.standard_error == error
    assert figures.notes == (note,)


def test_stopping_at_successes_leaves_no_k() -> None:
    figures = per_eval({(2, 2, 1): 3, (1, 1, 1): 4}, stopped_early=True)
    assert figures.repeated == ()
    assert "pass@k and pass^k are undefined" in figures.notes[0]


@pytest.mark.parametrize("histogram", [{}, {(0, 0, 0): 5}, {(3, 0, 0): 5}])
def test_nothing_answered_is_undefined(histogram: dict[tuple[int, int, int], int]) -> None:
    figures = per_eval(histogram, stopped_early=False)
    assert (figures.mean, figures.standard_error, figures.answered) == (None, None, 0)


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="3 of 2 answers of 5 repetitions passed"):
        per_eval({(5, 2, 3): 1}, stopped_early=False)
