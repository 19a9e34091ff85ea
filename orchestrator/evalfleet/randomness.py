"""The real randomness: the only caller of the system's generators."""

from __future__ import annotations

import random
import secrets


class SystemRandom:
    """Unpredictable bits, and jitter from a generator seeded with them, behind the `Random` port."""

    def __init__(self) -> None:
        self._jitter = random.Random(secrets.randbits(128))

    def bits(self, count: int) -> int:
        return secrets.randbits(count)

    def uniform(self, low: float, high: float) -> float:
        return self._jitter.uniform(low, high)
