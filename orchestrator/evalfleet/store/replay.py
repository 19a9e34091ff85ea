"""The committed batches of the last minute: what a failover to an asynchronous standby may have lost."""

from __future__ import annotations

from collections import deque

from evalfleet.errors import StoreError
from evalfleet.model.record import CommitBatch

KEEP_SECONDS = 60.0
KEEP_BYTES = 64 << 20


class Kept:
    """Batches by commit number, for 60 seconds or `limit` bytes, whichever ends first; the newest always."""

    def __init__(self, limit: int = KEEP_BYTES) -> None:
        self._limit = limit
        self._batches: deque[tuple[float, int, int, CommitBatch]] = deque()
        self._size = 0

    def add(self, now: float, commit_seq: int, batch: CommitBatch) -> None:
        """Keep a batch; `now` is a monotonic time in seconds."""
        size = sum(write.sealed.rows.size for write in batch.attempts)
        self._batches.append((now, commit_seq, size, batch))
        self._size += size
        while len(self._batches) > 1 and (self._size > self._limit or self._batches[0][0] < now - KEEP_SECONDS):
            self._size -= self._batches.popleft()[2]

    def clear(self) -> None:
        """Keep none of the batches: a new claim follows nothing that was written before."""
        self._batches.clear()
        self._size = 0

    def after(self, commit_seq: int, upto: int) -> list[CommitBatch]:
        """The batches that followed `commit_seq`, in order.

        Raises StoreError when some of them are no longer kept: what they settled is lost, and only a new claim
        can know what stands.
        """
        found = [(seq, batch) for _, seq, _, batch in self._batches if seq > commit_seq]
        if [seq for seq, _ in found] != list(range(commit_seq + 1, upto + 1)):
            raise StoreError(
                f"the record store lost commits {commit_seq + 1} to {upto}, more than the last minute that is kept"
            )
        return [batch for _, batch in found]
