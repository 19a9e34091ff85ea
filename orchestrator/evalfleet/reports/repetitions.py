"""What repetitions of the same evals say: the eval is the sample, its repetitions are not.

Everything derives from a histogram: how many evals have so many counted, answered and passed repetitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import fsum

from evalfleet.reports.statistics import clustered_error, pass_at_k, pass_hat_k

#: (counted, answered, passed) repetitions of an eval to the number of such evals.
Histogram = Mapping[tuple[int, int, int], int]

LARGEST_K = 10


@dataclass(frozen=True, slots=True)
class Repeated:
    """How evals fare when tried `k` times, over the `evals` with at least k answers; without any, None.

    `any_passes` is pass@k, `all_pass` pass^k, both unbiased: k of the answers are drawn without replacement.
    """

    k: int
    evals: int
    any_passes: float | None
    all_pass: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PerEval:
    """Figures with the eval as the unit. `evals` count, `answered_evals` of them have at least one answer.

    `mean` is over the evals with an answer of each one's share of answers that passed; `standard_error` is that of
    this mean, None with fewer than two evals. `repeated` goes from k = 1 to the most repetitions, at most 10.
    """

    evals: int
    answered_evals: int
    repetitions: int
    answered: int
    mean: float | None
    standard_error: float | None
    repeated: tuple[Repeated, ...]
    notes: tuple[str, ...]


def per_eval(histogram: Histogram, *, stopped_early: bool) -> PerEval:
    """The figures of one arm. With `stopped_early` (a sample that ended at its successes) nothing is said of k tries.

    Raises ValueError unless 0 ≤ passed ≤ answered ≤ counted everywhere.
    """
    for counted, answered, passed in histogram:
        if not 0 <= passed <= answered <= counted:
            raise ValueError(f"{passed} of {answered} answers of {counted} repetitions passed")
    counting = {key: evals for key, evals in histogram.items() if key[0] and evals}
    shares = [(passed / answered, evals) for (_, answered, passed), evals in counting.items() if answered]
    answered_evals = sum(evals for _, evals in shares)
    mean = fsum(share * evals for share, evals in shares) / answered_evals if answered_evals else None
    error = clustered_error(shares)
    most = max((counted for counted, _, _ in counting), default=0)
    ks = () if stopped_early else range(1, min(most, LARGEST_K) + 1)
    return PerEval(
        evals=sum(counting.values()),
        answered_evals=answered_evals,
        repetitions=sum(counted * evals for (counted, _, _), evals in counting.items()),
        answered=sum(answered * evals for (_, answered, _), evals in counting.items()),
        mean=mean,
        standard_error=error,
        repeated=tuple(_repeated(counting, k) for k in ks),
        notes=_notes(answered_evals, error, stopped_early=stopped_early),
    )


def _repeated(histogram: Histogram, k: int) -> Repeated:
    able = [(answered, passed, evals) for (_, answered, passed), evals in histogram.items() if answered >= k]
    total = sum(evals for _, _, evals in able)
    return Repeated(k, total, _mean_of(pass_at_k, able, k), _mean_of(pass_hat_k, able, k))


def _mean_of(
    figure: Callable[[int, int, int], float | None], evals: list[tuple[int, int, int]], k: int
) -> float | None:
    """The mean over evals of a figure of their answers; None without evals."""
    figures = [(figure(answered, passed, k), times) for answered, passed, times in evals]
    defined = [(value, times) for value, times in figures if value is not None]
    total = sum(times for _, times in defined)
    return fsum(value * times for value, times in defined) / total if total else None


def _notes(evals: int, error: float | None, *, stopped_early: bool) -> tuple[str, ...]:
    notes: list[str] = []
    if evals == 1:
        notes.append("one eval has an answer: how far evals differ is unknown")
    if error == 0:
        notes.append("no variation seen between evals")
    if stopped_early:
        notes.append("repetitions ended early at successes: pass@k and pass^k are undefined")
    return tuple(notes)
