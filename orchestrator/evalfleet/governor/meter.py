"""How much a minute, from the counts of this minute and the last. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_SECONDS = 60.0


@dataclass(slots=True)
class Meter:
    """Counts by whole minutes of a monotonic clock; `per_minute` takes the minute before for even."""

    minute: int = -1
    now: float = 0.0
    before: float = 0.0

    def add(self, amount: float, at: float) -> None:
        self._turn(at)
        self.now += amount

    def per_minute(self, at: float) -> float:
        self._turn(at)
        return self.now + self.before * (1 - at % _SECONDS / _SECONDS)

    def _turn(self, at: float) -> None:
        minute = int(at // _SECONDS)
        if minute != self.minute:
            self.before = self.now if minute == self.minute + 1 else 0.0
            self.now, self.minute = 0.0, minute
