"""How many calls an account bears at once, found out by trying: more while all goes well, fewer after a refusal. Pure.

| What comes back | What the window does |
|---|---|
| answers, below the size that is known to go well | grows by one an answer: it doubles each round trip |
| answers, above it | grows by 5 % a round trip, near the last refusal by 2 %; by a call or a quarter of one at least |
| answers, while less than the window is used | stays |
| a refusal for the rate | falls to 85 % of what was in use, once a round trip: not for calls sent before the last cut |
| one with a wait of seconds | nothing is sent until then; then from the floor, doubling to what is known to go well |
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FLOOR = 1.0
_CUT = 0.85
_STEP, _NEAR_STEP = 0.05, 0.02
#: The least growth of a round trip, in calls: small windows would else be refused again and again.
_LEAST, _NEAR_LEAST = 1.0, 0.25
#: A window counts as used from this part of it on.
_USED = 0.8


@dataclass(slots=True)
class Window:
    """`size` is in calls, infinite as long as nothing was refused; `ceiling` is the configured limit.

    Up to `known` the window doubles; `peak` is what was in use at the last refusal, `cut_at` when it was.
    """

    ceiling: int | None = None
    size: float = math.inf
    known: float = 0.0
    peak: float = 0.0
    cut_at: float = -math.inf

    @property
    def limit(self) -> int | None:
        """Whole calls at once; None without a limit."""
        size = self.size if self.ceiling is None else min(self.size, self.ceiling)
        return None if size == math.inf else max(int(FLOOR), int(size + 1e-9))

    def grow(self, answered: int, in_use: int) -> None:
        """So many calls were answered while `in_use` were under way or waited to be."""
        limit = self.limit
        if limit is None or answered <= 0 or in_use < _USED * limit:
            return
        if self.ceiling is not None and self.size >= self.ceiling:
            return
        if self.size < self.known:
            self.size = min(self.size + answered, max(self.known, self.size))
            return
        near = 0.9 * self.peak <= self.size <= 1.1 * self.peak
        a_round = max(_NEAR_LEAST, self.size * _NEAR_STEP) if near else max(_LEAST, self.size * _STEP)
        self.size += min(answered * a_round / self.size, a_round)

    def cut(self, sent_at: float, in_use: int, now: float) -> bool:
        """A call that was sent at `sent_at` was refused; whether the window falls for it."""
        if sent_at < self.cut_at:
            return False
        used = min(float(in_use), math.inf if self.limit is None else float(self.limit))
        self.peak = max(FLOOR, used)
        self.size = self.known = max(FLOOR, self.peak * _CUT)
        self.cut_at = now
        return True

    def restart(self, sent_at: float, in_use: int, now: float) -> bool:
        """Go on from the floor once the wait is over; whether the window falls."""
        known = self.known if self.size < self.known else 0.0
        if not self.cut(sent_at, in_use, now):
            return False
        # Refused again on the way up: what went well before it did is still the aim.
        self.known, self.size = max(known, self.known), FLOOR
        return True
