"""Telling an observer the run events of a run while it is carried out, and ending the run when the observer fails."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from evalfleet.api.listeners import Observer
from evalfleet.clock import SystemClock
from evalfleet.errors import ObserverFailed, describe
from evalfleet.execution.threads import AuthorThreads
from evalfleet.model.run_events import BEGINNING, EventCursor, RunEvent
from evalfleet.scheduling.coordinator import AtOnce
from evalfleet.store.event_log import EventLog

#: Why a run ended whose observer failed: what it has in flight would be told to nobody.
OBSERVER_FAILED = AtOnce("its observer failed")
#: A coordinator says once a second that it is at work; who observes a run from within looks more often.
_LOOK_SECONDS = 0.25


async def observed(work: Coroutine[Any, Any, None], log: EventLog, observer: Observer) -> None:
    """Carry `work` out and tell the observer each run event from now on, the last ones when `work` has ended.

    Raises ObserverFailed when it raises or takes too long: later events are not told, and `work` is cancelled first,
    which ends all that the run has in flight. Raises what `work` raises.
    """
    try:
        after = await _last_event(log)
    except BaseException:
        work.close()
        raise
    working = asyncio.create_task(work)
    telling = asyncio.create_task(_tell(log, _Teller(observer), working, after))
    try:
        await asyncio.wait({working, telling}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel(OBSERVER_FAILED)
        await asyncio.wait({working})
        if not working.cancelled() and working.exception() is not None:
            telling.cancel()  # of a store that is away it would wait for its return once more
        await asyncio.wait({telling})
    except asyncio.CancelledError:
        working.cancel()
        await asyncio.gather(working, telling, return_exceptions=True)
        raise
    if not telling.cancelled():
        telling.result()
    working.result()


async def _last_event(log: EventLog) -> EventCursor:
    """Where an observer begins that is told what happens from now on."""
    after = BEGINNING
    async with aclosing(log.news(after)) as pages:
        async for page in pages:
            after = page[-1].cursor
    return after


async def _tell(log: EventLog, teller: _Teller, working: asyncio.Task[None], after: EventCursor) -> None:
    try:
        while True:
            over = working.done()
            async with aclosing(log.news(after)) as pages:
                async for page in pages:
                    await teller.tell(page)
                    after = page[-1].cursor
            if over:
                return
            await log.wait(_LOOK_SECONDS)
    finally:
        teller.close()


class _Teller:
    """Calls the observer for one event after the other. Raises ObserverFailed naming the event that it failed at."""

    def __init__(self, observer: Observer) -> None:
        self._call: Any = observer.tell
        self._by_page = observer.by_page
        self._deadline = observer.deadline
        self._clock = SystemClock()
        self._threads = AuthorThreads(limit=1)
        self._since = 0.0
        self._at: RunEvent | None = None

    def close(self) -> None:
        self._threads.close()

    async def tell(self, page: Sequence[RunEvent]) -> None:
        self._begin(page[0])
        calling = self._await_each if iscoroutinefunction(self._call) else self._call_each
        work = asyncio.ensure_future(calling(page))
        try:
            while not work.done():
                left = self._since + self._deadline - self._clock.monotonic()
                if left <= 0:
                    raise self._failed(f"it took longer than {self._deadline:g} s")
                await asyncio.wait({work}, timeout=left)
        finally:
            work.cancel()
        if (error := work.result()) is not None:
            raise self._failed(f"{type(error).__name__}: {describe(error)}") from error

    def _calls(self, page: Sequence[RunEvent]) -> Iterable[tuple[RunEvent, Any]]:
        """What is told at a time, each with its first event."""
        return [(page[0], page)] if self._by_page else zip(page, page, strict=True)

    def _begin(self, event: RunEvent) -> None:
        self._at, self._since = event, self._clock.monotonic()

    async def _await_each(self, page: Sequence[RunEvent]) -> Exception | None:
        try:
            for first, told in self._calls(page):
                self._begin(first)
                await self._call(told)
        except Exception as error:  # noqa: BLE001 - whatever it raises is the observer's failure
            return error
        return None

    async def _call_each(self, page: Sequence[RunEvent]) -> BaseException | None:
        return await self._threads.run(partial(self._call_in_thread, page))

    def _call_in_thread(self, page: Sequence[RunEvent]) -> BaseException | None:
        try:
            for first, told in self._calls(page):
                self._begin(first)
                self._call(told)
        except BaseException as error:  # noqa: BLE001 - also an exit: it would end a thread, and nobody would know
            return error
        return None

    def _failed(self, why: str) -> ObserverFailed:
        event = self._at
        place = "" if event is None else f" at event {event.sequence} ({event.type})"
        run = "" if event is None else event.run
        return ObserverFailed(
            f"the observer of run {run} failed{place}: {why}; what is settled stays, and `orchestrate resume {run}` "
            f"goes on with what is left [{ObserverFailed.code}]",
            run=run,
        )
