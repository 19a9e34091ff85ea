"""What a plan may cost: the sum, how far it may be off, what nobody knows, and when that has to be confirmed."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import pytest

from evalfleet.reports.cost_estimate import estimate_line, estimated
from evalfleet.store.past_costs import PastCost


def past(mean: float, deviation: float | None = None, cases: int = 1, judge: float = 0.0) -> PastCost:
    return PastCost(run="7f3", mean=mean, deviation=deviation, cases=cases, judge_mean=judge)


#: Cases by arm, what is known, then the estimate as people read it, and the least limit that it does not exceed.
TABLE: list[tuple[Mapping[str, int], Mapping[str, PastCost], str, float | None]] = [
    ({}, {}, "estimated cost: $0.00", 0.0),
    ({"a": 0}, {}, "estimated cost: $0.00", 0.0),
    ({"a": 4}, {"a": past(0.5)}, "estimated cost: $2.00", 2.0),
    ({"a": 4}, {"a": past(0.5, 0.0, 9)}, "estimated cost: $2.00", 2.0),
    (
        {"a": 100},
        {"a": past(0.5, 0.2, 400)},
        "estimated cost: $50.00, $46.32 to $53.68 in nine of ten runs",
        50 + 1.6449 * 0.2 * math.sqrt(100 + 100**2 / 400),
    ),
    (
        {"a": 4, "b": 4},
        {"a": past(0.5, 1.0, 4), "b": past(0.25, 0.0, 4)},
        "estimated cost: $3.00, $0.00 to $7.65 in nine of ten runs",
        3 + 1.6449 * math.sqrt(8),
    ),
    ({"a": 4, "b": 4}, {"a": past(0.5, 1.0, 4), "b": past(0.25)}, "estimated cost: $3.00", 3.0),
    (
        {"a": 4, "b": 4},
        {"a": past(0.5)},
        "estimated cost: at least $2.00 (no earlier case of b has a known cost)",
        None,
    ),
    ({"a": 4}, {}, "estimated cost: unknown (no earlier case of a has a known cost)", None),
    ({"a": 4, "b": 0}, {"a": past(0.5)}, "estimated cost: $2.00", 2.0),
    ({"a": 4}, {"a": past(0.5, judge=0.1)}, "estimated cost: $2.00, and about $0.4000 for judges", 2.4),
]


@pytest.mark.parametrize(("cases", "known", "line", "least"), TABLE)
def test_an_estimate(cases: Mapping[str, int], known: Mapping[str, PastCost], line: str, least: float | None) -> None:
    found = estimated(cases, known)
    assert estimate_line(found) == line
    if least is None:
        assert found.exceeds(1e9), "what nobody knows may cost anything"
    else:
        assert not found.exceeds(least + 1e-9)
        assert least == 0 or found.exceeds(least - 1e-6)


@pytest.mark.parametrize(("earlier", "cases"), [(20, 50), (200, 200), (50, 1000)])
def test_nine_of_ten_runs_cost_what_the_interval_says(earlier: int, cases: int) -> None:
    made = random.Random(7)

    def cost() -> float:
        return made.expovariate(1.0)  # most are cheap, a few are dear

    within = 0
    for _ in range(400):
        sample = [cost() for _ in range(earlier)]
        mean = math.fsum(sample) / earlier
        deviation = math.sqrt(math.fsum((each - mean) ** 2 for each in sample) / (earlier - 1))
        found = estimated({"a": cases}, {"a": past(mean, deviation, earlier)})
        assert found.low is not None and found.high is not None
        within += found.low <= math.fsum(cost() for _ in range(cases)) <= found.high
    assert 0.84 <= within / 400 <= 0.95
