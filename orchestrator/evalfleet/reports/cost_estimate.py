"""What a plan may cost, by what its arms' cases cost before. PURE.

The cases of an arm are taken for independent draws of what earlier cases of it cost, retries included. Of `n` more the
sum is about `n` times the mean of `k` earlier ones whose deviation is `s`, with an error of `s·√(n + n²/k)`: what `n`
draws scatter by, and what nobody knows of the mean. Nine of ten such sums lie within 1.645 of it. One earlier case says
nothing of how they scatter, and none says nothing at all: then there is no interval, or no estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from evalfleet.reports.figures import money

_NINE_OF_TEN = 1.6449


class Earlier(Protocol):
    """What is known of one arm: US dollars of a case of it, and how many that was found of."""

    @property
    def mean(self) -> float: ...
    @property
    def deviation(self) -> float | None: ...
    @property
    def cases(self) -> int: ...
    @property
    def judge_mean(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    """US dollars. `low` and `high` are None where only one case is known; `judge` is apart and not among them.

    `unknown` names arms that have cases to run and of which nothing is known: what they cost is in none of the figures.
    """

    expected: float
    low: float | None
    high: float | None
    judge: float = 0.0
    unknown: tuple[str, ...] = ()
    arms: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def at_most(self) -> float:
        """What 19 of 20 such runs don't go beyond, judges included; the expected cost where nothing better is known."""
        return (self.expected if self.high is None else self.high) + self.judge

    def exceeds(self, usd: float) -> bool:
        """Whether the run may cost more than that; what nobody knows may."""
        return bool(self.unknown) or self.at_most > usd


def estimated(cases: Mapping[str, int], known: Mapping[str, Earlier]) -> CostEstimate:
    """The estimate of so many cases of each arm."""
    running = {arm: number for arm, number in cases.items() if number}
    found = {arm: (number, known[arm]) for arm, number in running.items() if arm in known}
    expected = math.fsum(number * each.mean for number, each in found.values())
    scatters = [each.deviation is not None for _, each in found.values()]
    margin = _NINE_OF_TEN * math.sqrt(math.fsum(_variance(number, each) for number, each in found.values()))
    return CostEstimate(
        expected=expected,
        low=max(0.0, expected - margin) if all(scatters) else None,
        high=expected + margin if all(scatters) else None,
        judge=math.fsum(number * each.judge_mean for number, each in found.values()),
        unknown=tuple(arm for arm in running if arm not in known),
        arms={arm: number * each.mean for arm, (number, each) in found.items()},
    )


def estimate_line(estimate: CostEstimate) -> str:
    """The estimate for people, in one line."""
    if estimate.unknown and not estimate.arms:
        return f"estimated cost: unknown (no earlier case of {', '.join(estimate.unknown)} has a known cost)"
    least = "at least " if estimate.unknown else ""
    text = f"estimated cost: {least}{money(estimate.expected)}"
    if estimate.low is not None and estimate.high is not None and estimate.high > estimate.low:
        text += f", {money(estimate.low)} to {money(estimate.high)} in nine of ten runs"
    if estimate.judge:
        text += f", and about {money(estimate.judge)} for judges"
    if estimate.unknown:
        text += f" (no earlier case of {', '.join(estimate.unknown)} has a known cost)"
    return text


def _variance(number: int, earlier: Earlier) -> float:
    if earlier.deviation is None:
        return 0.0
    return earlier.deviation**2 * (number + number**2 / earlier.cases)
