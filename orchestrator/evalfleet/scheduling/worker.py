"""A worker: many lanes in one event loop, and the loop that exchanges its whole state with the coordinator."""

from __future__ import annotations

import asyncio
import math
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from evalfleet.model.model_call import AccountUse
from evalfleet.model.money import Money
from evalfleet.model.record import Recording, SealedAttempt
from evalfleet.ports import Clock
from evalfleet.processes import resident_memory
from evalfleet.scheduling.messages import CommandKind, ExchangeReply, ExchangeRequest, Grant, MadeSandbox, WorkerCommand
from evalfleet.scheduling.worker_state import Contact, WorkerState

#: How many attempts back the usual duration of one looks.
_SMOOTHING = 32
#: How many granted attempts begin in the same round of the loop. If all did, the first would be at work only when the
#: last is: each of their steps would wait for that step of all others.
_ABREAST = 4

Exchange = Callable[[ExchangeRequest], Awaitable[ExchangeReply]]


class WorkerEnd(StrEnum):
    """Why a worker ended: the run is over, it was drained and may be replaced, or its coordinator is gone."""

    STOPPED = "stopped"
    DRAINED = "drained"
    ABANDONED = "abandoned"


class Attempt(Protocol):
    """One running attempt, as its lane holds it."""

    async def run(self) -> SealedAttempt:
        """Run to the end and return the sealed attempt, whatever happened."""
        ...

    def cancel(self, reason: str) -> None:
        """Ask the attempt to end as cancelled; `run` still returns."""
        ...

    def hold(self, *, back: bool) -> None:
        """Hold new sends back, or let them go again."""
        ...


class WorkerLane:
    """An attempt's side of its lane, for the time that it waits to be allowed a model call."""

    __slots__ = ("_attempt", "_worker")

    def __init__(self, worker: Worker, attempt: int) -> None:
        self._worker = worker
        self._attempt = attempt

    def waiting(self, *, begun: bool) -> None:
        """The attempt begins to wait, or goes on; the time between is not its own."""
        self._worker.note_wait(self._attempt, begun=begun)

    def leave(self) -> bool:
        """Give the lane up for as long as the wait lasts; False when too many attempts have."""
        return self._worker.park(self._attempt)

    def take(self) -> bool:
        """Have a lane again; False when none is free, and True when it was never given up."""
        return self._worker.unpark(self._attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTimes:
    """Seconds: `hold` is how long the coordinator parks a poll, `flush` the longest that a seal waits for company,
    `flush_share` the share of a usual attempt's time that it waits at most.

    With every lane busy the next call waits up to `busy`; a silent coordinator is looked for every `look`.
    """

    hold: float = 5.0
    flush: float = 0.05
    flush_share: float = 0.005
    busy: float = 0.1
    look: float = 1.0
    retry: float = 0.2
    lease_ttl: float = 30.0


class Worker:
    """Runs granted cases in lanes until it is told to stop.

    `exchange` raises ConnectionError when a call got no answer and ConnectionAbortedError when none will ever
    come. `begin` makes an attempt from a grant. `rss` is this process's memory in bytes.
    """

    def __init__(
        self,
        name: str,
        lanes: int,
        exchange: Exchange,
        begin: Callable[[Grant], Attempt],
        clock: Clock,
        times: WorkerTimes,
    ) -> None:
        self._state = WorkerState(name, lanes, times.lease_ttl, answered_at=clock.monotonic())
        self._exchange = exchange
        self._begin = begin
        self._clock = clock
        self._times = times
        self._running: dict[int, Attempt] = {}
        self._lanes: set[asyncio.Task[None]] = set()
        self._durable: dict[int, asyncio.Future[None]] = {}
        self._news = asyncio.Event()
        self._waiting_since: float | None = None
        self._usual = 0.0
        self._holding = False
        self._queued: dict[int, asyncio.Future[None]] = {}
        self.on_free_lane: Callable[[], None] | None = None
        self.allowed: Callable[[int, Money], None] | None = None
        self.uses: Callable[[], tuple[AccountUse, ...]] | None = None

    def drain(self) -> None:
        """Take nothing more; stop once everything held was handed over."""
        self._state.draining = True

    async def record(self, recording: Recording) -> None:
        """Have the recording of a running attempt made durable; returns once it is."""
        durable = self._durable[recording.attempt] = asyncio.get_running_loop().create_future()
        self._state.recorded[recording.attempt] = recording
        self._hand_over_soon()
        try:
            await durable
        finally:
            del self._durable[recording.attempt]
            self._state.recorded.pop(recording.attempt, None)

    def made(self, attempt: int, seconds: float) -> None:
        """The sandbox of a running attempt is there, after so many seconds: another may be started."""
        self._state.made.append(MadeSandbox(attempt, seconds))
        self._hand_over_soon()

    def note_wait(self, attempt: int, *, begun: bool) -> None:
        """See `WorkerLane.waiting`."""
        if begun:
            self._state.begin_wait(attempt, self._clock.monotonic())
        else:
            self._state.end_wait(attempt, self._clock.monotonic())

    def park(self, attempt: int) -> bool:
        """See `WorkerLane.leave`."""
        parked = self._state.park(attempt)
        if parked:
            self._hand_over_soon()
            self._fill_lanes()
        return parked

    def unpark(self, attempt: int) -> bool:
        """See `WorkerLane.take`."""
        return self._state.unpark(attempt)

    def ask(self, attempt: int, total: Money | None) -> None:
        """Ask that a running attempt may spend so much in all; `allowed` is called once it may. None takes it back."""
        self._state.ask(attempt, total)
        if total is not None:
            self._hand_over_soon()

    async def run(self) -> WorkerEnd:
        """Exchange until the coordinator says stop, is gone for good, or a drain is done; says which it was."""
        try:
            while not self._state.stopped and not self._drained():
                await self._let_seals_gather()
                await self._converse()
        except ConnectionAbortedError:
            self._cancel_all("the coordinator is gone")
            return WorkerEnd.ABANDONED
        finally:
            await self._close()
        return WorkerEnd.STOPPED if self._state.stopped else WorkerEnd.DRAINED

    def _drained(self) -> bool:
        return self._state.draining and not self._state.live and not self._state.sealed

    async def _let_seals_gather(self) -> None:
        """While no lane is free there is nothing to ask for: wait a moment for what may be handed over."""
        ends_at = self._clock.monotonic() + self._times.busy
        while not self._state.free_lanes:
            left = min(ends_at, self._due()) - self._clock.monotonic()
            if left <= 0:
                return
            await _wait_for(self._news, left)
            self._news.clear()

    async def _converse(self) -> None:
        """One call: until it is answered, times out, or there is something to hand over and it carries nothing.

        A call that carries something is answered as soon as that is committed, so what comes meanwhile waits for it
        and is the next call's: commits as large as the store is slow, and nothing is sent twice.
        """
        self._news.clear()
        began = self._clock.monotonic()
        request = self._state.request(began, resident_memory())
        if self.uses is not None and (uses := self.uses()):
            request = replace(request, rates=uses)
        carried = len(request.sealed) + len(request.recorded)
        self._waiting_since = None if carried == len(self._state.sealed) + len(self._state.recorded) else began
        call = asyncio.ensure_future(self._exchange(request))
        call.add_done_callback(lambda _: self._news.set())
        ends_at = began + self._times.hold + 10.0
        while not call.done():
            now = self._clock.monotonic()
            due = ends_at if carried else min(ends_at, self._due())
            if now >= due:
                # The call is left behind: its reply is to an older list and would be ignored.
                call.add_done_callback(_forget)
                return
            await _wait_for(self._news, min(due - now, self._times.look))
            self._news.clear()
            self._mind_silence()
        try:
            reply = call.result()
        except ConnectionAbortedError:
            raise
        except ConnectionError:
            await self._clock.sleep(self._times.retry)
            return
        self._take_in(request.seq, reply)

    def _due(self) -> float:
        """When what no call has carried is to be sent: at once when half of the lanes wait for it, else soon."""
        if self._waiting_since is None:
            return math.inf
        if len(self._state.live) * 2 <= self._state.lanes:
            return self._waiting_since
        return self._waiting_since + min(self._times.flush, self._times.flush_share * self._usual)

    def _take_in(self, seq: int, reply: ExchangeReply) -> None:
        received = self._state.receive(seq, reply, self._clock.monotonic())
        self._fill_lanes()
        for grant in received.grants:
            self._running[grant.attempt] = self._begin(grant)
            if grant.attempt in self._state.parked:
                self._queued[grant.attempt] = asyncio.get_running_loop().create_future()
        if received.grants:
            self._spawn(self._begin_lanes([grant.attempt for grant in received.grants]))
        for attempt in received.durable:
            durable = self._durable[attempt]
            if not durable.done():
                durable.set_result(None)
        for top_up in received.top_ups:
            if self.allowed is not None:
                self.allowed(top_up.attempt, top_up.total)
        for command in received.commands:
            self._obey(command)
        if self._holding:
            self._mind_silence()

    def _fill_lanes(self) -> None:
        """Let those that wait for nothing but a lane have what is free: who has been at work comes first."""
        if self.on_free_lane is not None:
            self.on_free_lane()
        for attempt, turn in list(self._queued.items()):
            if not self._state.unpark(attempt):
                return
            del self._queued[attempt]
            turn.set_result(None)

    async def _begin_lanes(self, granted: Sequence[int]) -> None:
        for place, attempt in enumerate(granted, 1):
            self._spawn(self._lane(attempt, self._running[attempt]))
            if place % _ABREAST == 0:
                await _next_round()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._lanes.add(task)
        task.add_done_callback(self._lanes.discard)

    async def _lane(self, identifier: int, attempt: Attempt) -> None:
        if (turn := self._queued.get(identifier)) is not None:
            await turn
            self._state.end_wait(identifier, self._clock.monotonic())
        began = self._clock.monotonic()
        sealed = await attempt.run()
        self._usual += (self._clock.monotonic() - began - self._usual) / _SMOOTHING
        del self._running[identifier]
        self._state.seal(sealed)
        self._hand_over_soon()

    def _hand_over_soon(self) -> None:
        if self._waiting_since is None:
            self._waiting_since = self._clock.monotonic()
        self._news.set()

    def _obey(self, command: WorkerCommand) -> None:
        if command.kind is CommandKind.CANCEL and command.attempt in self._running:
            self._cancel(command.attempt, command.reason)

    def _mind_silence(self) -> None:
        """Start nothing that may outlive the leases, and end everything when they may be over."""
        contact = self._state.contact(self._clock.monotonic())
        if contact is Contact.LOST:
            self._cancel_all("the coordinator has not answered for a whole lease time")
        elif contact is Contact.STALE or self._holding:
            self._holding = contact is Contact.STALE
            for attempt in self._running.values():
                attempt.hold(back=self._holding)

    def _cancel_all(self, reason: str) -> None:
        for attempt in self._running:
            self._cancel(attempt, reason)

    def _cancel(self, attempt: int, reason: str) -> None:
        self._running[attempt].cancel(reason)
        if (turn := self._queued.pop(attempt, None)) is not None:
            turn.set_result(None)  # it ends as soon as it begins, and needs no lane for that

    async def _close(self) -> None:
        self._cancel_all("the worker stops")
        while self._lanes:  # those that have not begun are begun, and end as cancelled
            await asyncio.wait(self._lanes)


@types.coroutine
def _next_round() -> Generator[None]:
    """Let all that is ready have its turn."""
    yield


def _forget(call: asyncio.Future[ExchangeReply]) -> None:
    if not call.cancelled():
        call.exception()


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    """Until the event is set or `seconds` have passed."""
    if event.is_set() or seconds <= 0:
        return
    loop = asyncio.get_running_loop()
    timer = loop.call_later(seconds, event.set)
    await event.wait()
    timer.cancel()
