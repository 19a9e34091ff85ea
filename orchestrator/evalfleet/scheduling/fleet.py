"""How many workers a run gets, and how many lanes each. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Lanes of one worker whose attempts may end in a burst without waiting long for each other's sealing.
CROWD = 100


@dataclass(frozen=True, slots=True)
class Fleet:
    """How many workers a run gets, and how many lanes each."""

    workers: int
    lanes: int


def fleet(concurrency: int, cases: int, cpus: int, workers: int | None = None, lanes: int | None = None) -> Fleet:
    """Lanes that together reach the run's concurrency; `workers` and `lanes` overrule.

    One worker for two CPUs, up to one for each while one would have more than `CROWD` lanes to fill.
    """
    busy = max(1, min(concurrency, cases))
    count = workers or max(1, min(cpus // 2, busy), min(cpus, math.ceil(busy / CROWD)))
    return Fleet(count, lanes or math.ceil(concurrency / count))
