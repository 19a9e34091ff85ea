"""Which test and which interval the differences of paired evals get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from evalfleet.reports.statistics import (
    Interval,
    bootstrap_interval,
    clustered_error,
    detectable_mean,
    detectable_share,
    flips,
    mcnemar_exact,
    normal_interval,
    normal_test,
    paired_interval,
    resamples,
    sign_flip,
)

#: Draws of the bootstrap and of the flip test.
DRAWS = 2_000
#: Beyond so many evals their mean is as good as normal, and drawing would only take long.
MOST_DRAWN = 4_000

_UNITS = (-1.0, 0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """What a test says of independent evals, one difference each.

    `difference` is their mean, `first_better` and `second_better` count those that differ. `p` is two-sided,
    `corrected` the same among all comparisons made at once. `detectable` is the smallest difference that would have
    been found four times in five. None is undefined.
    """

    evals: int
    difference: float
    first_better: int
    second_better: int
    test: str
    p: float | None
    interval_by: str
    interval: Interval | None
    detectable: float | None
    corrected: float | None = None


def tested(differences: Sequence[float], *, in_units: bool) -> Tested | None:
    """Test one difference an eval; None without any. `in_units` says that they are of shares, not of points.

    Differences of shares that are -1, 0 or 1 throughout, as without repetitions, make a table of pairs for McNemar's
    exact test. Others get a randomisation test and the clustered bootstrap, beyond `MOST_DRAWN` evals a normal one.
    """
    if not differences:
        return None
    if in_units and all(value in _UNITS for value in differences):
        return _table(differences)
    mean, error = fsum(differences) / len(differences), clustered_error([(value, 1) for value in differences])
    if len(differences) > MOST_DRAWN:
        tests = ("normal, clustered by eval", normal_test(mean, error))
        intervals = ("normal, clustered by eval", normal_interval(mean, error))
    else:
        tests = ("sign flips by eval", sign_flip(differences, flips(len(differences), DRAWS)))
        intervals = ("bootstrap by eval", bootstrap_interval(differences, resamples(len(differences), DRAWS)))
    return Tested(
        evals=len(differences),
        difference=mean,
        first_better=sum(value < 0 for value in differences),
        second_better=sum(value > 0 for value in differences),
        test=tests[0],
        p=tests[1],
        interval_by=intervals[0],
        interval=intervals[1],
        detectable=detectable_mean(error),
    )


def _table(differences: Sequence[float]) -> Tested:
    first_better, second_better = differences.count(-1.0), differences.count(1.0)
    table = (first_better, second_better, len(differences))
    return Tested(
        evals=len(differences),
        difference=(second_better - first_better) / len(differences),
        first_better=first_better,
        second_better=second_better,
        test="exact McNemar",
        p=mcnemar_exact(first_better, second_better),
        interval_by="Agresti-Min",
        interval=paired_interval(*table),
        detectable=detectable_share(*table),
    )
