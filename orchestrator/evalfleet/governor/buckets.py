"""Token buckets: credit that grows with time and is handed out once. Pure."""

from __future__ import annotations

from dataclasses import dataclass

#: Seconds of the limit that are handed out at once after a quiet time.
BURST = 1.0


@dataclass(slots=True)
class Bucket:
    """A limit `per_minute`. `level` is the credit that waits to be handed out, `at` when it was counted last.

    No 60 seconds give more than the limit (of two a minute and more): the bucket fills by as much less as it holds.
    """

    per_minute: float
    level: float
    at: float

    @classmethod
    def full(cls, per_minute: float, now: float) -> Bucket:
        bucket = cls(per_minute, 0.0, now)
        bucket.level = bucket.capacity
        return bucket

    @property
    def capacity(self) -> float:
        return max(1.0, self.per_minute / 60 * BURST)

    @property
    def per_second(self) -> float:
        """The credit that comes each second."""
        return max(self.per_minute - self.capacity, self.per_minute / 2) / 60

    def refill(self, now: float) -> None:
        """Add what has come since the last time; a clock that steps back adds nothing."""
        self.level = min(self.capacity, self.level + max(0.0, now - self.at) * self.per_second)
        self.at = max(self.at, now)

    def take(self, amount: float) -> float:
        """Hand out as much of `amount` as there is."""
        given = max(0.0, min(amount, self.level))
        self.level -= given
        return given

    def give_back(self, amount: float) -> None:
        """Take back credit that nobody used."""
        self.level = min(self.capacity, self.level + max(0.0, amount))

    def lower(self, left: float) -> None:
        """A provider says that no more than `left` is left now."""
        self.level = min(self.level, max(0.0, left))

    def relimit(self, per_minute: float, now: float) -> None:
        """Another limit from now on; what was saved up under the old one stays, as far as the new one holds it."""
        self.refill(now)
        self.per_minute = per_minute
        self.level = min(self.level, self.capacity)
