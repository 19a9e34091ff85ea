"""Bodies of spans between their receipt and whoever keeps them: a bounded queue that all attempts of a worker share."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from evalfleet.telemetry.bodies import LARGEST_BODY, Delivery

R = TypeVar("R")


class Cause(StrEnum):
    """Why spans were not taken."""

    BAD_BODY = "bad_body"
    BAD_SPAN = "bad_span"
    WRONG_TYPE = "wrong_type"
    TOO_LARGE = "too_large"
    TOO_MUCH = "too_much"
    BUSY = "busy"
    FULL = "full"
    SLOW = "slow"
    BROKEN_OFF = "broken_off"
    UNKNOWN_TRACE = "unknown_trace"
    RUN_GONE = "run_gone"


#: What a sender may send again: nothing is lost by these alone.
TEMPORARY = frozenset({Cause.BUSY, Cause.FULL})


@dataclass(slots=True)
class SpanCounters:
    """What became of what was sent. `accepted`, `dropped` and `late` are spans; `refused` are bodies, never read."""

    accepted: int = 0
    late: int = 0
    dropped: Counter[Cause] = field(default_factory=Counter[Cause])
    refused: Counter[Cause] = field(default_factory=Counter[Cause])


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxLimits:
    """`bodies` may be on their way at a time, of one attempt `bodies_each`; bytes count until they are taken.

    Of one attempt no more than `kept_each` bytes are taken in all. `patience` are the seconds that a body may take to
    arrive.
    """

    bodies: int = 128
    bodies_each: int = 16
    size: int = 64 << 20
    size_each: int = 16 << 20
    kept_each: int = 64 << 20
    patience: float = 10.0


class NoRoom(Exception):
    """Nothing more is taken for now."""

    def __init__(self, cause: Cause) -> None:
        self.cause = cause
        super().__init__(f"too many spans are on their way ({cause}): send them again later")


@dataclass(slots=True)
class Occupied:
    """What one attempt, or all, take up: bodies on their way, and bytes until they are taken."""

    bodies: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Arrived:
    """A body that was accepted, and the attempt whose it is."""

    attempt: int
    delivery: Delivery


class Inbox:
    """Holds what arrived for the attempts of one worker until it is taken, in the order of its arrival."""

    def __init__(self, limits: InboxLimits | None = None) -> None:
        self.limits = limits or InboxLimits()
        self.counters = SpanCounters()
        self._all = Occupied()
        self._queue: deque[tuple[Arrived, Occupied]] = deque()
        self._waiting = asyncio.Event()
        # one thread: what a body grows to while it is read, it grows to once
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="evalfleet-spans")

    @property
    def occupied(self) -> bool:
        """Whether there is something to take."""
        return bool(self._queue)

    async def arrived(self) -> None:
        """Return when there is something to take."""
        await self._waiting.wait()

    def take(self, most: int = 64) -> list[Arrived]:
        """The oldest bodies, at most so many; what they took up is free again."""
        taken: list[Arrived] = []
        while self._queue and len(taken) < most:
            arrived, own = self._queue.popleft()
            self._resize(own, -len(arrived.delivery.body))
            taken.append(arrived)
        if not self._queue:
            self._waiting.clear()
        return taken

    @contextmanager
    def reserved(self, own: Occupied, size: int) -> Generator[None]:
        """Keep room for a body while it comes and is read. Raises NoRoom."""
        limits = self.limits
        if self._all.bodies >= limits.bodies or own.bodies >= limits.bodies_each:
            raise NoRoom(Cause.BUSY)
        self._make_room(own, size)
        self._all.bodies += 1
        own.bodies += 1
        try:
            yield
        finally:
            self._all.bodies -= 1
            own.bodies -= 1
            self._resize(own, -size)

    def put(self, arrived: Arrived, own: Occupied) -> None:
        """Queue what was accepted. Raises NoRoom when it has grown beyond what there is room for."""
        self._make_room(own, len(arrived.delivery.body))
        self._queue.append((arrived, own))
        self._waiting.set()

    async def aside(self, call: Callable[[], R]) -> R:
        """The result of `call`, made off the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._reader, call)

    def close(self) -> None:
        """End the thread; what is queued can still be taken."""
        self._reader.shutdown(wait=False, cancel_futures=True)

    def _make_room(self, own: Occupied, size: int) -> None:
        if self._all.size + size > self.limits.size or own.size + size > self.limits.size_each:
            raise NoRoom(Cause.FULL)
        self._resize(own, size)

    def _resize(self, own: Occupied, size: int) -> None:
        self._all.size += size
        own.size += size


def room_for(length: int | None) -> int:
    """The bytes to reserve for a body whose length is, or is not, known before it comes."""
    return LARGEST_BODY if length is None else length
