"""A worker's governor of model calls: those that may not be made yet wait here, first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from evalfleet.errors import ConfigurationError
from evalfleet.governor.accounts import account_key
from evalfleet.governor.limiter import LocalAccount, Started
from evalfleet.governor.messages import AccountReport, Allotment, RateLimits, WorkerReport
from evalfleet.governor.ration import ration
from evalfleet.governor.state import GovernorState
from evalfleet.model.model_call import Account, AccountUse, CallEnd, CallFate, ModelCall
from evalfleet.ports import Clock, Random, Secrets

#: Seconds between two reports while calls wait, while none do, and at least.
_WAITING, _FLOWING, _APART = 0.25, 0.5, 0.05
#: The longest part of a wait, and the most seconds, by which a worker goes on later than it might: not all at once.
_JITTER, _MOST_JITTER = 0.05, 1.0
#: Seconds for which an answer is waited for.
_PATIENCE = 5.0

_NEVER_SENT = CallEnd(fate=CallFate.REFUSED)


class Rationing(Protocol):
    """The governor, wherever it is."""

    async def ration(self, report: WorkerReport) -> tuple[Allotment, ...]:
        """What the worker may do until its next report. Raises ConnectionError when nobody answered."""
        ...


class OwnRationing:
    """A governor in this process, for its own calls."""

    def __init__(self, clock: Clock) -> None:
        self._state = GovernorState()
        self._clock = clock

    async def ration(self, report: WorkerReport) -> tuple[Allotment, ...]:
        """See `Rationing.ration`."""
        return ration(self._state, report, self._clock.monotonic())


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """Who calls: a run, one incarnation of one of its workers, the limits its experiment sets, and its secrets.

    `rates` is by `provider:model`.
    """

    run: str
    worker: str
    rates: Mapping[str, RateLimits]
    secrets: Secrets


@dataclass(slots=True, eq=False)
class _Waiter:
    call: ModelCall
    tokens: float
    ready: Callable[[], bool]
    turn: asyncio.Future[_Admitted]


@dataclass(slots=True, eq=False)
class _Queue:
    account: LocalAccount
    waiters: deque[_Waiter] = field(default_factory=deque[_Waiter])

    @property
    def is_used(self) -> bool:
        return self.account.active and bool(self.account.in_flight or self.waiters or self.account.throttle)


class LocalGovernor:
    """The `Governor` of one worker. Must be used within one loop.

    While an account that has a limit is used, the worker reports to the governor and follows its allotments; else it
    says nothing.
    """

    def __init__(self, consumer: Consumer, rationing: Rationing, clock: Clock, random: Random) -> None:
        self._consumer = consumer
        self._rationing = rationing
        self._clock = clock
        self._random = random
        self._keys: dict[Account, _Queue] = {}
        self._queues: dict[str, _Queue] = {}
        self._reporting: asyncio.Task[None] | None = None
        self._urgent = asyncio.Event()
        self.trouble: str | None = None

    def at_once(self, call: ModelCall) -> _Admitted | None:
        """See `Governor.at_once`."""
        queue = self._keys.get(call.account) or self._meet(call.account)
        account = queue.account
        tokens, now = account.estimate(call), self._clock.monotonic()
        if queue.waiters or not account.may_start(tokens, now):
            return None
        admitted = _Admitted(self, queue, account.start(call, tokens, now))
        if account.active:
            self._report_soon(urgent=False)
        return admitted

    async def admit(self, call: ModelCall, ready: Callable[[], bool]) -> _Admitted:
        """See `Governor.admit`."""
        queue = self._keys.get(call.account) or self._meet(call.account)
        waiter = _Waiter(call, queue.account.estimate(call), ready, asyncio.get_running_loop().create_future())
        queue.waiters.append(waiter)
        self._pump(queue)
        self._report_soon(urgent=len(queue.waiters) == 1)
        try:
            return await waiter.turn
        except BaseException:
            if waiter.turn.done() and not waiter.turn.cancelled():
                waiter.turn.result().end(_NEVER_SENT)
            else:
                queue.waiters.remove(waiter)
            raise

    def pump(self) -> None:
        """Let those go on that may: a lane has become free."""
        for queue in self._queues.values():
            if queue.waiters:
                self._pump(queue)

    def uses(self) -> tuple[AccountUse, ...]:
        """What this worker makes of each account that is governed and used."""
        now = self._clock.monotonic()
        return tuple(queue.account.use(len(queue.waiters), now) for queue in self._queues.values() if queue.is_used)

    async def close(self) -> None:
        """Report nothing more."""
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.gather(self._reporting, return_exceptions=True)

    def ended(self, queue: _Queue, started: Started, end: CallEnd) -> None:
        """A call of ours ended."""
        urgent = queue.account.end(started, end, self._clock.monotonic())
        if queue.account.active:
            self._pump(queue)
            self._report_soon(urgent=urgent)

    def _meet(self, account: Account) -> _Queue:
        secret = None
        if account.key is not None:
            try:
                secret = self._consumer.secrets.resolve(account.key)
            except ConfigurationError:
                secret = None  # its adapter says so
        key = account_key(account, secret)
        queue = self._queues.get(key)
        if queue is None:
            limits = self._consumer.rates.get(account.rate_name, RateLimits())
            queue = self._queues[key] = _Queue(LocalAccount(key, account.rate_name, limits))
        self._keys[account] = queue
        return queue

    def _pump(self, queue: _Queue) -> None:
        now, account, waiters = self._clock.monotonic(), queue.account, queue.waiters
        held_up: list[_Waiter] = []
        while waiters and account.may_start(waiters[0].tokens, now):
            waiter = waiters.popleft()
            if waiter.turn.done():
                held_up.append(waiter)  # cancelled, and about to say so
            elif waiter.ready():
                waiter.turn.set_result(_Admitted(self, queue, account.start(waiter.call, waiter.tokens, now)))
            else:
                held_up.append(waiter)
        waiters.extendleft(reversed(held_up))

    # --- reports ----------------------------------------------------------------------------------------------

    def _report_soon(self, *, urgent: bool) -> None:
        if self._reporting is None or self._reporting.done():
            self._reporting = asyncio.get_running_loop().create_task(self._report(), name="evalfleet-governor")
        elif urgent:
            self._urgent.set()

    @property
    def _is_used(self) -> bool:
        return any(queue.is_used for queue in self._queues.values())

    async def _report(self) -> None:
        """Report until nothing that is governed is used any more, and once more then."""
        while True:
            governed = [queue for queue in self._queues.values() if queue.account.active]
            used = self._is_used
            await self._exchange(governed)
            self.pump()
            if not used and not self._is_used:
                return
            await self._clock.sleep(_APART)
            await self._rest(governed)

    async def _exchange(self, used: Iterable[_Queue]) -> None:
        now = self._clock.monotonic()
        reports = [
            queue.account.report(len(queue.waiters), sum(waiter.tokens for waiter in queue.waiters), now)
            for queue in used
        ]
        report = WorkerReport(run=self._consumer.run, worker=self._consumer.worker, accounts=tuple(reports))
        try:
            allotments = await asyncio.wait_for(self._rationing.ration(report), _PATIENCE)
        except (ConnectionError, TimeoutError) as error:
            self.trouble = f"the governor of rates does not answer ({error}): what was allotted last goes on"
            self._take_back(reports)
            return
        self.trouble = None
        now = self._clock.monotonic()
        for allotment in allotments:
            self._queues[allotment.account].account.take_in(allotment, now)

    def _take_back(self, reports: Iterable[AccountReport]) -> None:
        now = self._clock.monotonic()
        for report in reports:
            self._queues[report.account].account.untold(report, now)

    async def _rest(self, used: Iterable[_Queue]) -> None:
        """Until the next report is due, or something urgent has to be said."""
        now = self._clock.monotonic()
        waiting = [queue.account.blocked_until - now for queue in used if queue.waiters]
        seconds = _FLOWING
        if waiting:
            blocked = min(waiting)
            jitter = self._random.uniform(0.0, min(_MOST_JITTER, _JITTER * max(0.0, blocked)))
            seconds = min(_FLOWING, blocked + jitter) if blocked > 0 else _WAITING
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds - _APART, self._urgent.set)
        await self._urgent.wait()
        timer.cancel()
        self._urgent.clear()


class _Admitted:
    """A call that may be made; the first word of its end counts."""

    __slots__ = ("_governor", "_queue", "_started")

    def __init__(self, governor: LocalGovernor, queue: _Queue, started: Started) -> None:
        self._governor = governor
        self._queue = queue
        self._started: Started | None = started

    def end(self, end: CallEnd) -> None:
        """See `AdmittedCall.end`."""
        started, self._started = self._started, None
        if started is not None:
            self._governor.ended(self._queue, started, end)
