"""Figures against scipy's and statsmodels' of 200 random tables, against enumeration and their own promises."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product
from math import comb, fsum, isclose
from random import Random
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.reports.statistics import (
    Interval,
    bootstrap_interval,
    clustered_error,
    detectable_mean,
    detectable_share,
    flips,
    holm,
    mcnemar_exact,
    normal_interval,
    normal_test,
    paired_interval,
    pass_at_k,
    pass_hat_k,
    percentile,
    resamples,
    sign_flip,
    wilson,
)
from tests.unit.reports.reference_figures import FILE, TABLES

REFERENCE: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["tables"]


def same(ours: float | None, theirs: float) -> bool:
    return ours is not None and isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9)


def test_there_are_as_many_reference_tables_as_are_promised() -> None:
    assert len(REFERENCE) == TABLES == 200


@pytest.mark.parametrize("table", REFERENCE, ids=range(TABLES))
def test_every_figure_is_that_of_scipy_and_statsmodels(table: dict[str, Any]) -> None:
    total, passed, k = table["answers"]
    interval = wilson(passed, total)
    assert interval is not None
    assert same(interval.low, table["wilson"][0]) and same(interval.high, table["wilson"][1])
    assert same(mcnemar_exact(*table["discordant"]), table["mcnemar"])
    assert same(pass_at_k(total, passed, k), table["pass_at_k"])
    assert same(pass_hat_k(total, passed, k), table["pass_hat_k"])
    error = clustered_error([(value, 1) for value in table["values"]])
    assert same(error, table["error"])
    assert same(normal_test(fsum(table["values"]) / len(table["values"]), error), table["normal"])
    assert same(percentile(sorted(table["values"]), table["share"]), table["percentile"])
    assert all(same(ours, theirs) for ours, theirs in zip(holm(table["several"]), table["holm"], strict=True))


# --- Wilson ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    [
        (20, 20, 0.8389, 1.0),
        (0, 20, 0.0, 0.1611),
        (1, 1, 0.2065, 1.0),
        (0, 1, 0.0, 0.7935),
        (5, 10, 0.2366, 0.7634),
    ],
)
def test_wilson_against_published_values(successes: int, total: int, low: float, high: float) -> None:
    interval = wilson(successes, total)
    assert interval is not None
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)


@pytest.mark.parametrize(("successes", "total", "confidence"), [(3, 2, 0.95), (-1, 2, 0.95), (1, 2, 1.0), (1, 2, 0.0)])
def test_wilson_refuses_what_is_no_proportion(successes: int, total: int, confidence: float) -> None:
    with pytest.raises(ValueError):
        wilson(successes, total, confidence)


@given(st.integers(0, 500), st.integers(1, 500), st.floats(0.5, 0.999))
def test_wilson_holds_the_share_and_stays_in_bounds(successes: int, extra: int, confidence: float) -> None:
    total = successes + extra
    interval = wilson(successes, total, confidence)
    assert interval is not None
    assert 0.0 <= interval.low <= successes / total <= interval.high <= 1.0
    assert interval.low < interval.high


# --- what is undefined ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "figure",
    [
        wilson(0, 0),
        pass_at_k(1, 1, 2),
        pass_hat_k(1, 1, 2),
        clustered_error([(0.5, 1)]),
        percentile([], 0.5),
        paired_interval(0, 0, 0),
        detectable_share(0, 0, 0),
        detectable_share(1, 0, 4),  # four pairs of which two differ: nothing would be found
        bootstrap_interval([0.3], resamples(1, 10)),
        bootstrap_interval([0.3, 0.3], resamples(2, 10)),
        sign_flip([], flips(0, 10)),
        sign_flip([1.0], []),
        normal_test(1.0, None),
        normal_test(0.0, 0.0),
        normal_interval(1.0, 0.0),
        detectable_mean(None),
        *holm([None, None]),
    ],
)
def test_what_is_undefined_is_none(figure: Any) -> None:
    assert figure is None


# --- pairs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second", "p"), [(0, 0, 1), (1, 6, 0.125), (0, 5, 0.0625), (3, 3, 1), (2, 0, 0.5)])
def test_mcnemar_of_known_tables(first: int, second: int, p: float) -> None:
    assert mcnemar_exact(first, second) == pytest.approx(p, rel=1e-12)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_sum_over_tables_at_least_as_uneven(first: int, second: int) -> None:
    total = first + second
    tail = sum(Fraction(comb(total, count), 2**total) for count in range(min(first, second) + 1))
    assert isclose(mcnemar_exact(first, second), min(1, 2 * tail), rel_tol=1e-12)


def test_mcnemar_of_a_million_discordant_pairs_is_quick_and_finite() -> None:
    assert mcnemar_exact(500_000, 500_000) == 1.0
    assert 0 < mcnemar_exact(498_000, 502_000) < 1e-3


@pytest.mark.parametrize("counts", [(-1, 2), (2, -1)])
def test_numbers_that_count_nothing_are_refused(counts: tuple[int, int]) -> None:
    with pytest.raises(ValueError):
        mcnemar_exact(*counts)
    with pytest.raises(ValueError):
        paired_interval(*counts, 10)


def test_more_discordant_pairs_than_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="3 and 4 discordant pairs of 6"):
        paired_interval(3, 4, 6)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_the_paired_interval_mirrors_and_is_never_a_point(first: int, second: int, agreeing: int) -> None:
    pairs = first + second + agreeing
    interval, mirrored = paired_interval(first, second, pairs), paired_interval(second, first, pairs)
    if interval is None or mirrored is None:
        assert pairs == 0
        return
    assert -1 <= interval.low < interval.high <= 1
    assert (mirrored.low, mirrored.high) == pytest.approx((-interval.high, -interval.low))


def paired_table(draw: Random, pairs: int, first: float, second: float, agree: float) -> tuple[int, int]:
    """Discordant pairs of so many whose sides pass with these chances, and with `agree` by one draw."""
    first_only = second_only = 0
    for _ in range(pairs):
        one = draw.random()
        other = one if draw.random() < agree else draw.random()
        first_only += one < first and other >= second
        second_only += one >= first and other < second
    return first_only, second_only


def test_the_paired_interval_holds_the_truth_as_often_as_it_says() -> None:
    draw = Random(5)
    held = 0
    for _ in range(1_000):
        interval = paired_interval(*paired_table(draw, 80, 0.6, 0.7, 0.5), 80)
        assert interval is not None
        held += interval.low <= 0.1 <= interval.high
    assert held >= 930  # of 950 expected: binomial, three standard deviations


def test_no_difference_is_found_no_more_often_than_the_level_allows() -> None:
    draw = Random(7)
    found = sum(mcnemar_exact(*paired_table(draw, 60, 0.7, 0.7, 0.3)) < 0.05 for _ in range(1_000))
    assert 0 < found <= 50 + 3 * (1_000 * 0.05 * 0.95) ** 0.5


def test_the_flip_test_of_repeated_evals_keeps_its_level() -> None:
    draw = Random(9)
    rows = list(flips(30, 199))
    found = 0
    for _ in range(1_000):
        # an eval's difference is that of two means of three repetitions with the same chance
        chances = [draw.random() for _ in range(30)]
        values = [fsum((draw.random() < p) - (draw.random() < p) for _ in range(3)) / 3 for p in chances]
        found += (sign_flip(values, rows) or 1) <= 0.05
    assert 0 < found <= 50 + 3 * (1_000 * 0.05 * 0.95) ** 0.5


def test_five_points_among_a_thousand_pairs_are_found() -> None:
    assert mcnemar_exact(50, 100) < 0.001
    interval = paired_interval(50, 100, 1_000)
    assert interval is not None and 0 < interval.low < 0.05 < interval.high
    smallest = detectable_share(50, 100, 1_000)
    assert smallest is not None and 0.03 < smallest < 0.05


def test_a_detectable_difference_is_found_four_times_in_five() -> None:
    pairs, first_only, second_only = 300, 30, 30
    smallest = detectable_share(first_only, second_only, pairs)
    assert smallest is not None
    discordant = (first_only + second_only + 1) / (pairs + 2)
    draw = Random(3)
    found = 0
    for _ in range(1_000):
        counts = [0, 0]
        for _ in range(pairs):
            chance = draw.random()
            if chance < discordant:
                counts[chance < (discordant + smallest) / 2] += 1
        found += mcnemar_exact(*counts) < 0.05
    assert 700 <= found <= 860  # the exact test is a little conservative


# --- differences of any size ----------------------------------------------------------------------------------


def test_the_bootstrap_is_what_its_draws_make_it() -> None:
    draws = [[0, 0, 0], [1, 1, 1], [2, 2, 2], [0, 1, 2]]
    interval = bootstrap_interval([0.0, 3.0, 6.0], draws, 0.5)
    assert interval == Interval(2.25, 3.75)


def test_a_bootstrap_with_one_value_a_cluster_ignores_how_often_each_was_repeated() -> None:
    differences = [0.0, 0.5, 1.0, 0.5, 0.0]
    once = bootstrap_interval(differences, resamples(5, 400))
    repeated = [mean([value] * 10) for value in differences]
    assert once is not None and bootstrap_interval(repeated, resamples(5, 400)) == once


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=1, max_size=7))
def test_the_flip_test_over_all_flips_is_exact(differences: list[float]) -> None:
    every = list(product((0, 1), repeat=len(differences)))
    total = abs(sum(differences))
    reached = sum(
        abs(sum(-d if sign else d for d, sign in zip(differences, flip, strict=True))) >= total for flip in every
    )
    assert sign_flip(differences, every) == (1 + reached) / (1 + len(every))


def test_the_flip_test_of_units_is_mcnemars() -> None:
    differences = [1.0] * 6 + [-1.0] + [0.0] * 5
    p = sign_flip(differences, flips(len(differences), 20_000))
    assert p == pytest.approx(mcnemar_exact(1, 6), abs=0.01)


def test_draws_are_the_same_again_and_even() -> None:
    rows = [list(row) for row in resamples(7, 2_000)]
    assert rows == [list(row) for row in resamples(7, 2_000)]
    assert all(1_800 < sum(row.count(index) for row in rows) < 2_200 for index in range(7))
    coins = [coin for row in flips(7, 2_000) for coin in row]
    assert set(coins) == {0, 1} and 6_700 < sum(coins) < 7_300


def test_many_values_give_the_normal_interval_that_resampling_gives() -> None:
    draw = Random(13)
    values = [draw.choice((-1 / 3, 0.0, 0.0, 1 / 3, 2 / 3)) for _ in range(1_500)]
    error = clustered_error([(value, 1) for value in values])
    resampled = bootstrap_interval(values, resamples(len(values), 800))
    normal = normal_interval(fsum(values) / len(values), error)
    assert resampled is not None and normal is not None
    assert (resampled.low, resampled.high) == pytest.approx((normal.low, normal.high), abs=0.004)


# --- several --------------------------------------------------------------------------------------------------


def test_holm_keeps_the_order_given_and_skips_what_is_undefined() -> None:
    assert holm([0.03, None, 0.01]) == [0.03, None, 0.02]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
