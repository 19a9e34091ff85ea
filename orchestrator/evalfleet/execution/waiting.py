"""The model calls of one attempt behind a governor: what it waits for them is neither its lane's nor its deadlines'."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from evalfleet.model.model_call import CallEnd, CallFate, ModelCall
from evalfleet.ports import AdmittedCall, Clock, Governor

#: Seconds after which an attempt that waits gives up its lane: for less the exchange about it is not worth it.
PARKS_AFTER = 0.5

_NOT_MADE = CallEnd(fate=CallFate.REFUSED)
_BROKEN_OFF = CallEnd(fate=CallFate.BROKEN)


class Lane(Protocol):
    """An attempt's lane, as its worker gives and takes it."""

    def waiting(self, *, begun: bool) -> None:
        """The attempt begins to wait, or goes on."""
        ...

    def leave(self) -> bool:
        """Give the lane up while waiting; False when it has to be kept."""
        ...

    def take(self) -> bool:
        """Have a lane again; False when none is free."""
        ...


@dataclass(slots=True)
class Stopwatch:
    """Seconds that were waited, by one or more at the same time: each counts once."""

    total: float = 0.0
    waiting: int = 0
    since: float = 0.0

    def start(self, now: float) -> None:
        if not self.waiting:
            self.since = now
        self.waiting += 1

    def stop(self, now: float) -> None:
        self.waiting -= 1
        if not self.waiting:
            self.total += now - self.since

    def reset(self) -> None:
        """Count anew."""
        self.total = 0.0

    def seconds(self, now: float) -> float:
        """What was waited until now."""
        return self.total + now - self.since if self.waiting else self.total


class Waits:
    """What an attempt waits for, over all its lines. `busy` counts the sends that are under way.

    It gives its lane up only while all that it does is to wait. `cleared` is awaited before a call that waited is made:
    its worker may have lost touch meanwhile. `note` keeps a diagnostic.
    """

    def __init__(
        self,
        clock: Clock,
        governor: Governor,
        busy: Callable[[], int],
        cleared: Callable[[], Awaitable[None]],
        note: Callable[[str], None],
    ) -> None:
        self.watch = Stopwatch()
        self.lane: Lane | None = None
        self._governor = governor
        self._clock = clock
        self._busy = busy
        self._cleared = cleared
        self._note = note
        self._parked = False
        self._going = 0
        self._open: set[_Open] = set()
        self.paced = True  # as long as a provider asks, which only a governor does

    @property
    def seconds(self) -> float:
        """What was waited until now."""
        watch = self.watch
        return watch.seconds(self._clock.monotonic()) if watch.waiting else watch.total

    async def admitted(self, call: ModelCall, line: Stopwatch | None) -> AdmittedCall:
        """The call, once it may be made."""
        admitted = self._governor.at_once(call)
        if admitted is None:
            admitted = await self._waited(call, line)
        open_ = _Open(self._open, admitted)
        self._open.add(open_)
        return open_

    def close(self) -> None:
        """End all calls whose end nobody told: the attempt is over, and nothing is to keep it."""
        self._busy, self._cleared, self._note = _nobody, _at_once, _to_nobody
        for open_ in list(self._open):
            open_.end(_BROKEN_OFF)

    async def _waited(self, call: ModelCall, line: Stopwatch | None) -> AdmittedCall:
        loop = asyncio.get_running_loop()
        self._begin(line)

        def park() -> None:
            nonlocal timer
            timer = loop.call_later(PARKS_AFTER, park)
            self._park()

        going = False

        def ready() -> bool:
            nonlocal going
            going = self._has_lane()
            self._going += going
            return going

        timer = loop.call_later(PARKS_AFTER, park)
        admitted: AdmittedCall | None = None
        try:
            admitted = await self._governor.admit(call, ready)
            await self._cleared()
            return admitted
        except BaseException:
            if admitted is not None:
                admitted.end(_NOT_MADE)
            raise
        finally:
            timer.cancel()
            self._going -= going
            if (trouble := self._governor.trouble) is not None:
                self._note(trouble)
            self._end(line)

    def _begin(self, line: Stopwatch | None) -> None:
        now = self._clock.monotonic()
        if not self.watch.waiting and self.lane is not None:
            self.lane.waiting(begun=True)
        self.watch.start(now)
        if line is not None:
            line.start(now)

    def _end(self, line: Stopwatch | None) -> None:
        now = self._clock.monotonic()
        self.watch.stop(now)
        if line is not None:
            line.stop(now)
        if not self.watch.waiting:
            self._parked = False
            if self.lane is not None:
                self.lane.waiting(begun=False)

    def _park(self) -> None:
        # one that has been told to go on has its lane, though it has not come so far yet
        if self.lane is not None and not (self._parked or self._going) and self.watch.waiting >= self._busy():
            self._parked = self.lane.leave()

    def _has_lane(self) -> bool:
        if self._parked and self.lane is not None:
            self._parked = not self.lane.take()
        return not self._parked


def _nobody() -> int:
    return 0


async def _at_once() -> None: ...


def _to_nobody(_: str) -> None: ...


class WaitingCalls:
    """`ModelCalls` of an attempt, or of one of its lines, whose time stands still meanwhile."""

    __slots__ = ("_line", "_waits")

    def __init__(self, waits: Waits, line: Stopwatch | None = None) -> None:
        self._waits = waits
        self._line = line

    @property
    def governed(self) -> bool:
        return self._waits.paced

    async def admit(self, call: ModelCall) -> AdmittedCall:
        """See `ModelCalls.admit`."""
        return await self._waits.admitted(call, self._line)


class _Open:
    """A call of the attempt that nobody ended yet."""

    __slots__ = ("_call", "_open")

    def __init__(self, open_: set[_Open], call: AdmittedCall) -> None:
        self._open = open_
        self._call = call

    def end(self, end: CallEnd) -> None:
        """See `AdmittedCall.end`."""
        if self in self._open:
            self._open.discard(self)
            self._call.end(end)
