"""Statistics of proportions, means and pairs, by the standard library alone. What is undefined is None, never 0.

Of repeated evals the eval is the unit: repetitions are reduced to one number an eval before anything here sees them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import shake_256
from itertools import compress
from math import comb, exp, floor, fsum, lgamma, log, sqrt
from statistics import NormalDist

CONFIDENCE = 0.95
#: The chance with which a difference that is called detectable would be found.
POWER = 0.8

_PARITY = bytes(byte & 1 for byte in range(256))


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed range: of shares in [0, 1], of their differences in [-1, 1], or of points."""

    low: float
    high: float


# --- one side -------------------------------------------------------------------------------------------------


def wilson(successes: int, total: int, confidence: float = CONFIDENCE) -> Interval | None:
    """Wilson's score interval for a proportion of independent trials (Wilson 1927); None without observations.

    Raises ValueError unless 0 ≤ successes ≤ total and 0 < confidence < 1.
    """
    if not 0 <= successes <= total:
        raise ValueError(f"{successes} successes of {total}")
    z = quantile(confidence)
    if total == 0:
        return None
    share = successes / total
    centre = share + z * z / (2 * total)
    spread = z * sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    # the ends are exact where the closed form would only round to them
    low = 0.0 if successes == 0 else max(0.0, (centre - spread) / scale)
    high = 1.0 if successes == total else min(1.0, (centre + spread) / scale)
    return Interval(low, high)


def pass_at_k(answered: int, passed: int, k: int) -> float | None:
    """The chance that at least one of `k` answers passes, unbiased: they are drawn without replacement (Chen 2021).

    None with fewer than k answers.
    """
    return None if answered < k else 1 - comb(answered - passed, k) / comb(answered, k)


def pass_hat_k(answered: int, passed: int, k: int) -> float | None:
    """The chance that all of `k` answers pass, unbiased: drawn without replacement (Yao 2024). None as above."""
    return None if answered < k else comb(passed, k) / comb(answered, k)


def clustered_error(means: Sequence[tuple[float, int]]) -> float | None:
    """The standard error of the mean of clusters' means, each with how many clusters have it (Miller 2024).

    Assumes that clusters are independent draws; what is in a cluster may depend on each other at will. None with fewer
    than two clusters.
    """
    clusters = sum(times for _, times in means)
    if clusters < 2:
        return None
    mean = fsum(value * times for value, times in means) / clusters
    return sqrt(fsum((value - mean) ** 2 * times for value, times in means) / (clusters - 1) / clusters)


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The value below which `share` of the ascending values lie, interpolated linearly (Hyndman and Fan's type 7).

    None without values.
    """
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    below = min(floor(place), len(ordered) - 2) if len(ordered) > 1 else 0
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def quantile(confidence: float) -> float:
    """How many standard deviations hold `confidence` of a normal distribution. Raises ValueError outside (0, 1)."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
    return NormalDist().inv_cdf(0.5 + confidence / 2)


# --- pairs that pass or don't ---------------------------------------------------------------------------------


def mcnemar_exact(first_only: int, second_only: int) -> float:
    """The two-sided p-value of McNemar's exact test from the numbers of discordant pairs (McNemar 1947).

    Assumes independent pairs. Under no difference the discordant ones fall either way by a fair coin; without any the
    answer is 1. Raises ValueError for a negative number.
    """
    if min(first_only, second_only) < 0:
        raise ValueError(f"{first_only} and {second_only} discordant pairs")
    total, fewer = first_only + second_only, min(first_only, second_only)
    # the likeliest term by logarithms, each other from its neighbour: no number grows with the pairs
    term = exp(lgamma(total + 1) - lgamma(fewer + 1) - lgamma(total - fewer + 1) - total * log(2))
    tail = 0.0
    for count in range(fewer, -1, -1):
        if term <= tail * 1e-18:
            break
        tail += term
        term *= count / (total - count + 1)
    return min(1.0, 2 * tail)


def paired_interval(first_only: int, second_only: int, pairs: int, confidence: float = CONFIDENCE) -> Interval | None:
    """The interval of the difference of paired proportions, second less first: Wald's with half a pair added to each of
    the four cells, which is never a point (Agresti and Min 2005). Assumes independent pairs; None without any.

    Raises ValueError when more pairs are discordant than there are.
    """
    if first_only + second_only > pairs or min(first_only, second_only) < 0:
        raise ValueError(f"{first_only} and {second_only} discordant pairs of {pairs}")
    if not pairs:
        return None
    difference = second_only - first_only
    error = sqrt(first_only + second_only + 1 - difference**2 / (pairs + 2)) / (pairs + 2)
    centre, spread = difference / (pairs + 2), quantile(confidence) * error
    return Interval(max(-1.0, centre - spread), min(1.0, centre + spread))


def detectable_share(
    first_only: int, second_only: int, pairs: int, confidence: float = CONFIDENCE, power: float = POWER
) -> float | None:
    """The smallest difference of paired proportions that McNemar's test would find with `power` in so many pairs.

    Takes as many discordant pairs as were seen, half a pair added to each cell (Connor 1987). None where even all of
    them falling one way would not do, and without pairs.
    """
    if not pairs:
        return None
    discordant = (first_only + second_only + 1) / (pairs + 2)
    found, caught = quantile(confidence), NormalDist().inv_cdf(power)
    by_chance = found * sqrt(discordant)
    scale = pairs + caught**2
    root = by_chance**2 * pairs - scale * (by_chance**2 - caught**2 * discordant)
    smallest = (by_chance * sqrt(pairs) + sqrt(max(0.0, root))) / scale
    return smallest if smallest <= discordant else None


# --- differences of any size ----------------------------------------------------------------------------------


def bootstrap_interval(
    differences: Sequence[float], draws: Iterable[Sequence[int]], confidence: float = CONFIDENCE
) -> Interval | None:
    """The percentile interval of a mean over resamples (Efron 1979). A draw holds as many indices as there are values.

    With a difference for each pair it is the paired bootstrap, with one for each cluster the clustered one. Assumes
    that these are independent; optimistic for a few. None with fewer than two, or without any variation to resample.
    """
    size = len(differences)
    if size < 2 or min(differences) == max(differences):
        return None
    means = sorted(fsum(map(differences.__getitem__, draw)) / size for draw in draws)
    low, high = percentile(means, (1 - confidence) / 2), percentile(means, (1 + confidence) / 2)
    return None if low is None or high is None else Interval(low, high)


def sign_flip(differences: Sequence[float], flips: Iterable[Sequence[int]]) -> float | None:
    """The two-sided p-value of the paired randomisation test of a mean difference (Fisher 1935): each flip holds a 0 or
    1 for every difference, 1 where the sides change places.

    Assumes independent pairs whose sides are exchangeable under no difference. None without differences or flips.
    """
    total = fsum(differences)
    slack = 1e-9 * fsum(map(abs, differences))
    reached = drawn = 0
    for flip in flips:
        drawn += 1
        reached += abs(total - 2 * fsum(compress(differences, flip))) >= abs(total) - slack
    return (1 + reached) / (1 + drawn) if differences and drawn else None


def normal_test(mean: float, error: float | None) -> float | None:
    """The two-sided p-value of a mean by its standard error, for many independent values. None without an error."""
    return 2 * NormalDist().cdf(-abs(mean) / error) if error else None


def normal_interval(mean: float, error: float | None, confidence: float = CONFIDENCE) -> Interval | None:
    """Wald's interval of a mean by its standard error, for many independent values. None without an error."""
    spread = quantile(confidence) * error if error else None
    return None if spread is None else Interval(mean - spread, mean + spread)


def detectable_mean(error: float | None, confidence: float = CONFIDENCE, power: float = POWER) -> float | None:
    """The smallest mean difference that a test would find with `power` at this standard error; None without one."""
    return (quantile(confidence) + NormalDist().inv_cdf(power)) * error if error else None


# --- several tests, and draws ---------------------------------------------------------------------------------


def holm(values: Sequence[float | None]) -> list[float | None]:
    """p-values corrected for being several (Holm 1979), in the order given; whatever depends on whatever.

    An undefined one stays None and is not counted.
    """
    known = sorted((value, place) for place, value in enumerate(values) if value is not None)
    corrected: list[float | None] = [None] * len(values)
    highest = 0.0
    for rank, (value, place) in enumerate(known):
        highest = max(highest, min(1.0, value * (len(known) - rank)))
        corrected[place] = highest
    return corrected


def resamples(size: int, count: int) -> Iterator[Sequence[int]]:
    """`count` draws of `size` indices below `size` each: always the same, on every machine."""
    for number in range(count):
        words = array("I")
        words.frombytes(shake_256(b"resample %d of %d" % (number, size)).digest(size * words.itemsize))
        yield [word % size for word in words]


def flips(size: int, count: int) -> Iterator[Sequence[int]]:
    """`count` draws of `size` fair coins: always the same, on every machine."""
    for number in range(count):
        yield shake_256(b"flip %d of %d" % (number, size)).digest(size).translate(_PARITY)
