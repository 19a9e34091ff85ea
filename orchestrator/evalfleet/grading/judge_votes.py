"""Several votes on one question: their one score, and how far they agree. PURE."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from statistics import median

from evalfleet.model.judge import Reducer


def reduce(scores: Sequence[float], reducer: Reducer) -> float:
    """The score of one or more votes, each in [0, 1]. A majority that is tied is decided for the lower score."""
    match reducer:
        case Reducer.MEAN:
            return math.fsum(scores) / len(scores)
        case Reducer.MEDIAN:
            return float(median(scores))
        case Reducer.MIN:
            return min(scores)
        case Reducer.MAJORITY:
            counts = Counter(scores)
            most = max(counts.values())
            return min(score for score, count in counts.items() if count == most)


def agreement(scores: Sequence[float]) -> float | None:
    """1 minus the mean distance of two votes: 1 when all say the same; None of a single vote."""
    pairs = list(combinations(scores, 2))
    if not pairs:
        return None
    return 1 - math.fsum(abs(one - other) for one, other in pairs) / len(pairs)
