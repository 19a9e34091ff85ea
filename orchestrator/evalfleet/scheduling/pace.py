"""How fast sandboxes may be started: so many a second, and so many under way at once as the backend takes well. Pure.

Starting everything at once saturates what makes the sandboxes, and a fixed cap is wrong for most of a run. So the room
for starts under way grows while they are quick, and is halved when they are slow or one failed: additive increase,
multiplicative decrease. It finds the knee of the backend and follows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median

#: Starts under way at once after a claim, when nothing is known of the backend.
FIRST_ROOM = 4
#: Starts are judged by the median of so many: those of one run differ among themselves, by what is set up in them.
ROUND = 8
#: They are slow when they take so many times as long as they usually do, and so many seconds more.
SLOW_TIMES = 2.0
SLOW_SECONDS = 0.5
#: Seconds after which a start counts as failed without having ended, and is no longer waited for.
PATIENCE = 60.0
#: Seconds after which what is usual is measured anew, with little under way: a backend may have changed for good.
MEASURE_EVERY = 600.0


@dataclass(slots=True)
class Pace:
    """At most `rate` starts a second with a second's worth at once, and at most `room` of them under way.

    Times are monotonic seconds; the bucket is empty at `at`. `under_way` holds when each start was granted, by attempt,
    the oldest first. `usual` is how long starts take with little under way, measured at `measured_at`; `took` holds
    what those of this round took, and `filled` says that they filled the room. `cut_at` is when the room was cut last:
    an older start says nothing of it since. `ramping` is the time before, when the room doubles. Where no worker
    `tells` when a sandbox is there, the rate alone counts.
    """

    rate: float
    at: float
    tells: bool = True
    tokens: float = 0.0
    room: int = FIRST_ROOM
    under_way: dict[int, float] = field(default_factory=dict[int, float])
    took: list[float] = field(default_factory=list[float])
    filled: bool = False
    ramping: bool = True
    usual: float = math.inf
    measured_at: float = 0.0
    cut_at: float = -math.inf

    def ready(self, now: float) -> bool:
        """Whether a sandbox may be started now. It takes no token: another limit may yet refuse the start."""
        self.tokens = min(self.tokens + max(0.0, now - self.at) * self.rate, max(1.0, self.rate))
        self.at = max(self.at, now)
        self._give_up_waiting(now)
        return self.tokens >= 1.0 and len(self.under_way) < self.room

    def granted(self, attempt: int, now: float, *, tells: bool = True) -> None:
        """A start was granted to an attempt; nobody `tells` when the sandbox of one in its own process is there."""
        self.tokens -= 1.0
        if self.tells and tells:
            self.under_way[attempt] = now
            self.filled = self.filled or len(self.under_way) >= self.room

    def made(self, attempt: int, seconds: float, now: float) -> None:
        """The sandbox of an attempt is there, after so many seconds. Repeated news is passed over."""
        if self.under_way.pop(attempt, None) is None or now - seconds < self.cut_at:
            return
        self.took.append(seconds)
        if len(self.took) >= ROUND:
            self._judge(median(self.took), now)
            self._next_round()

    def _judge(self, seconds: float, now: float) -> None:
        if self.usual == math.inf:
            self.usual, self.measured_at = seconds, now
        elif now - self.measured_at > MEASURE_EVERY:
            self.usual, self.room, self.ramping, self.cut_at = math.inf, min(self.room, FIRST_ROOM), True, now
        elif seconds > SLOW_TIMES * self.usual + SLOW_SECONDS:
            self.cut(now, now)
        elif self.filled:
            self.room += ROUND if self.ramping else 1

    def _next_round(self) -> None:
        self.took.clear()
        self.filled = len(self.under_way) >= self.room

    def gone(self, attempt: int) -> None:
        """The attempt is over, or was never begun."""
        self.under_way.pop(attempt, None)

    def cut(self, began: float, now: float) -> None:
        """A start that began at `began` failed, or starts are slow; one burst cuts once."""
        if began >= self.cut_at:
            self.cut_at, self.ramping = now, False
            self.room = max(self.room // 2, 1)
            self._next_round()

    def _give_up_waiting(self, now: float) -> None:
        while self.under_way:
            attempt, began = next(iter(self.under_way.items()))
            if now - began < PATIENCE:
                return
            del self.under_way[attempt]
            self.cut(began, now)
