"""Max-min fair shares: nobody gets more than they ask for, and nobody less than anybody who could do with less. Pure.

Shares are made between runs first and then between the workers of each: a run gains nothing by having more of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

#: A worker as the run and the name of it.
Sharer = tuple[str, str]

N = TypeVar("N", int, float)


def max_min(total: float, demands: Mapping[str, float]) -> dict[str, float]:
    """Shares of `total`, each at most its demand; what a small demand leaves flows to the others."""
    shares = dict.fromkeys(demands, 0.0)
    left, open_ = max(0.0, total), sorted((demand, name) for name, demand in demands.items() if demand > 0)
    for index, (demand, name) in enumerate(open_):
        shares[name] = min(demand, left / (len(open_) - index))
        left -= shares[name]
    return shares


def max_min_whole(total: int, demands: Mapping[str, int], turn: int = 0) -> dict[str, int]:
    """As `max_min` in whole units. What can't be divided goes round with `turn`."""
    exact = max_min(float(total), {name: float(demand) for name, demand in demands.items()})
    shares = {name: int(share + 1e-9) for name, share in exact.items()}
    left = min(total, sum(max(0, demand) for demand in demands.values())) - sum(shares.values())
    wanting = sorted(name for name, demand in demands.items() if demand > shares[name])
    if wanting:
        first = turn % len(wanting)
        for name in (wanting[first:] + wanting[:first])[: max(0, left)]:
            shares[name] += 1
    return shares


def shared(total: float, demands: Mapping[Sharer, float]) -> dict[Sharer, float]:
    """Shares between runs, and of each run's between its workers."""
    shares: dict[Sharer, float] = {}
    by_run = _by_run(demands)
    runs = max_min(total, {run: sum(workers.values()) for run, workers in by_run.items()})
    for run, workers in by_run.items():
        for worker, share in max_min(runs[run], workers).items():
            shares[run, worker] = share
    return shares


def shared_whole(total: int, demands: Mapping[Sharer, int], turn: int = 0) -> dict[Sharer, int]:
    """As `shared` in whole units."""
    shares: dict[Sharer, int] = {}
    by_run = _by_run(demands)
    runs = max_min_whole(total, {run: sum(workers.values()) for run, workers in by_run.items()}, turn)
    for run, workers in by_run.items():
        for worker, share in max_min_whole(runs[run], workers, turn).items():
            shares[run, worker] = share
    return shares


def _by_run(demands: Mapping[Sharer, N]) -> dict[str, dict[str, N]]:
    by_run: dict[str, dict[str, N]] = {}
    for (run, worker), demand in demands.items():
        by_run.setdefault(run, {})[worker] = demand
    return by_run
