"""Max-min fair shares between runs and workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.governor.sharing import Sharer, max_min, max_min_whole, shared, shared_whole


@pytest.mark.parametrize(
    ("total", "demands", "shares"),
    [
        (100, {}, {}),
        (100, {"a": 300}, {"a": 100}),
        (100, {"a": 30}, {"a": 30}),
        (100, {"a": 300, "b": 300}, {"a": 50, "b": 50}),
        (100, {"a": 10, "b": 300}, {"a": 10, "b": 90}),
        (100, {"a": 10, "b": 300, "c": 50}, {"a": 10, "b": 45, "c": 45}),
        (100, {"a": 0, "b": 300}, {"a": 0, "b": 100}),
        (0, {"a": 10, "b": 300}, {"a": 0, "b": 0}),
        (-5, {"a": 10}, {"a": 0}),
    ],
)
def test_shares(total: int, demands: dict[str, int], shares: dict[str, int]) -> None:
    assert max_min(total, demands) == shares
    assert max_min_whole(total, demands) == shares


def test_what_cannot_be_divided_goes_round() -> None:
    demands = {"a": 9, "b": 9, "c": 9}
    got = [max_min_whole(1, demands, turn) for turn in range(3)]
    assert [next(name for name, share in each.items() if share) for each in got] == ["a", "b", "c"]
    assert max_min_whole(8, demands, 1) == {"a": 2, "b": 3, "c": 3}


def test_runs_come_before_workers() -> None:
    demands = {("one", "w1"): 100, ("two", "w1"): 100, ("two", "w2"): 100, ("two", "w3"): 10}
    assert shared_whole(100, demands) == {
        ("one", "w1"): 50,
        ("two", "w1"): 20,
        ("two", "w2"): 20,
        ("two", "w3"): 10,
    }


_DEMANDS = st.dictionaries(st.tuples(st.sampled_from("abc"), st.sampled_from("uvwxyz")), st.integers(0, 200))


@given(st.integers(0, 300), _DEMANDS, st.integers(0, 9))
def test_all_is_given_that_is_wanted_and_never_more(total: int, demands: dict[Sharer, int], turn: int) -> None:
    for shares in (shared_whole(total, demands, turn), shared(total, demands)):
        assert sum(shares.values()) == pytest.approx(min(total, sum(demands.values())))
        assert all(0 <= shares[who] <= demand + 1e-9 for who, demand in demands.items())


@given(st.integers(0, 300), _DEMANDS, st.integers(0, 9))
def test_runs_that_want_more_get_the_same(total: int, demands: dict[Sharer, int], turn: int) -> None:
    shares = shared_whole(total, demands, turn)
    runs: dict[str, tuple[int, int]] = {}
    for (run, worker), demand in demands.items():
        wanted, got = runs.get(run, (0, 0))
        runs[run] = wanted + demand, got + shares[run, worker]
    unmet = [got for wanted, got in runs.values() if got < wanted]
    assert not unmet or max(unmet) - min(unmet) <= 1
    assert not unmet or all(got <= max(unmet) for _, got in runs.values())
