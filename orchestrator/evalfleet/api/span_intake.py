"""The spans of a worker's attempts on their way into the record store: received, rid of secrets, written in batches.

A reply of 200 says that spans are in this process's queue. The queue is bounded: while the store is away senders are
asked for patience, and what is still in it when the worker ends is lost and said so.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from evalfleet.errors import ConfigurationError, StoreError
from evalfleet.execution.job import AttemptJob
from evalfleet.execution.outlets import SpanOutlet
from evalfleet.gateway.listener import serve
from evalfleet.gateway.loopback import LoopbackGateway
from evalfleet.model.experiment import Telemetry
from evalfleet.ports import Clock, Random
from evalfleet.redact import Redactor
from evalfleet.sandbox_ports import Routes
from evalfleet.store.spans import SpanBatch, SpanCounts, SpanStore
from evalfleet.telemetry.bodies import Encoding
from evalfleet.telemetry.inbox import Arrived, Cause, Inbox
from evalfleet.telemetry.port import PortSpans
from evalfleet.telemetry.receiver import TRACES, AttemptSpans
from evalfleet.telemetry.rewriting import without_secrets
from evalfleet.telemetry.sending import otel_environment
from evalfleet.telemetry.traces import trace_id, traceparent

#: Seconds to gather spans before they are written.
_GATHERING = 0.25
#: Seconds between tries to reach a store that is away.
_PAUSE = 1.0
#: Seconds that a worker which ends waits for the store.
_FAREWELL = 15.0
_ENCODINGS = tuple(Encoding)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRun:
    """Whose spans these are, how they are taken, and what is hidden of them whatever attempt they are of."""

    id: str
    key: int
    telemetry: Telemetry
    hidden: Redactor


@dataclass(frozen=True, slots=True)
class _Outlet:
    """One attempt's receiver. `base` is where it is found on this machine's loopback."""

    routes: Routes
    traceparent: str
    base: str
    about: Mapping[str, str]
    end: Callable[[], None]

    def environment(self, base: str | None = None) -> Mapping[str, str]:
        return otel_environment(base or self.base, self.traceparent, self.about)


class SpanIntake:
    """The `SpanOutlets` of one worker. `open_intake` makes one."""

    def __init__(self, run: SpanRun, store: SpanStore, clock: Clock, random: Random) -> None:
        self._run = run
        self._clock = clock
        self._store = store
        self._inbox = Inbox()
        self._hides: dict[int, Callable[[], Redactor]] = {}
        self._over: list[int] = []
        self._taken: list[Arrived] = []
        self._waiting: list[SpanBatch] = []
        self._number = 0
        self._opened = AsyncExitStack()
        self._loopback = LoopbackGateway(random)
        self._pump: asyncio.Task[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._counted = SpanCounts()
        self._grace_until = 0.0

    async def begin(self) -> None:
        """Listen. Raises ConfigurationError when the run's own port is taken."""
        await self._opened.enter_async_context(self._loopback)
        port = self._run.telemetry.port
        if port is not None:
            try:
                # every worker of a machine listens at it, and any of them knows whose a span is
                listener = socket.create_server(("127.0.0.1", port), reuse_port=True)
            except OSError as error:
                why = error.strerror or str(error)
                raise ConfigurationError(f"telemetry.port: {port} can't be listened at: {why}") from error
            self._opened.callback(listener.close)
            server = await serve(listener, PortSpans(self._inbox, self._run.id, self._run.key))
            self._opened.push_async_callback(server.shutdown, [listener])
        self._pump = asyncio.create_task(self._write_all())

    async def open(self, job: AttemptJob, redactor: Callable[[], Redactor]) -> SpanOutlet:
        """See `SpanOutlets.open`."""
        spans = AttemptSpans(self._inbox, job.attempt)
        routes: Routes = {TRACES: spans}
        serving = self._loopback.serving(routes)
        base = serving.__enter__()
        self._hides[job.attempt] = redactor
        case = job.case
        about = {
            "evalfleet.run": job.run,
            "evalfleet.attempt": str(job.attempt),
            "evalfleet.case": str(case.ordinal),
            "evalfleet.eval": case.eval_id,
            "evalfleet.arm": case.arm,
            "evalfleet.repetition": str(case.repetition),
        }

        def over() -> None:
            spans.end()
            serving.__exit__(None, None, None)
            self._over.append(job.attempt)

        def end() -> None:
            grace = self._run.telemetry.grace
            self._grace_until = max(self._grace_until, self._clock.monotonic() + grace)
            asyncio.get_running_loop().call_later(grace, over)

        parent = traceparent(trace_id(job.run, self._run.key, job.attempt))
        return _Outlet(routes, parent, base, about, end)

    async def close(self) -> None:
        """Wait for the grace of the last attempts, take nothing more, and write what came, as long as that may take."""
        if self._used:
            await self._clock.sleep(max(0.0, self._grace_until - self._clock.monotonic()))
        await self._opened.aclose()
        if self._pump is not None:
            self._pump.cancel()
        try:
            async with asyncio.timeout(_FAREWELL):
                if self._writing is not None:
                    await asyncio.wait({self._writing})
                    self._writing.exception()  # what it did not write is written now
                while self._taken or self._inbox.occupied or self._waiting or self._counts() != self._counted:
                    await self._write()
        except (StoreError, TimeoutError) as error:
            left = [*self._taken, *self._inbox.take(1 << 30)]
            lost = sum(batch.spans for batch in self._waiting) + sum(each.delivery.count for each in left)
            sys.stderr.write(f"{lost} spans are lost, since they could not be written: {error or 'it took too long'}\n")
        self._inbox.close()
        await self._store.close()

    @property
    def _used(self) -> bool:
        counters = self._inbox.counters
        return bool(counters.accepted or counters.late or counters.refused or counters.dropped)

    async def _write_all(self) -> None:
        while True:
            await self._inbox.arrived()
            await self._clock.sleep(_GATHERING)
            self._writing = asyncio.ensure_future(self._write())
            try:
                await asyncio.shield(self._writing)  # who ends the pump lets a write come to its end
            except StoreError:
                await self._clock.sleep(_PAUSE)  # meanwhile the inbox fills, and senders are asked for patience

    async def _write(self) -> None:
        """Write what waits. Raises StoreError; then it waits still."""
        if not self._waiting:
            self._taken = self._taken or self._inbox.take()
            hides = {each.attempt: self._redactor(each.attempt) for each in self._taken}
            self._waiting, unreadable = await asyncio.to_thread(self._batches, self._taken, hides)
            self._taken = []
            self._inbox.counters.dropped[Cause.BAD_BODY] += unreadable
        counts = self._counts()
        if not await self._store.write(tuple(self._waiting), counts):
            self._inbox.counters.dropped[Cause.RUN_GONE] += sum(batch.spans for batch in self._waiting)
        self._waiting = []
        self._counted = counts
        if not self._inbox.occupied:
            while self._over:
                self._hides.pop(self._over.pop(), None)

    def _redactor(self, attempt: int) -> Redactor:
        hide = self._hides.get(attempt)
        return self._run.hidden if hide is None else hide()

    def _batches(self, taken: Sequence[Arrived], hides: Mapping[int, Redactor]) -> tuple[list[SpanBatch], int]:
        """The batches, and the number of spans that can't be rid of secrets."""
        found: list[SpanBatch] = []
        unreadable = 0
        for each in taken:
            try:
                delivery = without_secrets(each.delivery, hides[each.attempt])
            except (ValueError, RecursionError):  # what nobody reads may be nested deeper than we go
                unreadable += each.delivery.count
                continue
            self._number += 1
            encoding = _ENCODINGS.index(delivery.encoding)
            found.append(SpanBatch(each.attempt, self._number, delivery.count, encoding, delivery.body))
        return found, unreadable

    def _counts(self) -> SpanCounts:
        counters = self._inbox.counters
        dropped = {cause.value: number for cause, number in counters.dropped.items() if number}
        refused = {cause.value: number for cause, number in counters.refused.items() if number}
        return SpanCounts(counters.accepted, counters.late, dropped, refused)


async def open_intake(run: SpanRun, url: str, clock: Clock, random: Random) -> SpanIntake:
    """An intake that listens. Raises ConfigurationError when the run's own port is taken."""
    intake = SpanIntake(run, SpanStore(url, run.key, random.bits(62)), clock, random)
    try:
        await intake.begin()
    except BaseException:
        await intake.close()
        raise
    return intake
