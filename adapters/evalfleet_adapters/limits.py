"""What bounds a send: its deadline, and the threads that synchronous agent code may use."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

from evalfleet.errors import Acceptance, FailureKind, SendFailure
from evalfleet.ports import AdapterContext

R = TypeVar("R")

#: Seconds by which timers set for the same moment may differ, and those until a deadline that moved is looked at again.
_SLACK, _LOOK_AGAIN = 0.05, 0.1


@asynccontextmanager
async def within_deadline(ctx: AdapterContext) -> AsyncGenerator[None, None]:
    """Cancel the block when the send's time is up. Raises SendFailure of kind deadline then."""
    seconds = ctx.deadline
    scope = asyncio.timeout(None)
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None

    def expire() -> None:
        nonlocal timer
        left = ctx.deadline
        if left is not None and left > _SLACK:  # it moves while a model call waits for its rate
            timer = loop.call_later(max(left, _LOOK_AGAIN), expire)
        else:
            scope.reschedule(0.0)  # long over: at once

    try:
        async with scope:
            if seconds is not None:
                timer = loop.call_later(seconds, expire)
            try:
                yield
            finally:
                if timer is not None:
                    timer.cancel()
    except Exception as error:
        if not scope.expired():
            raise
        raise SendFailure(
            f"the agent did not answer within {seconds:.3g} s",
            kind=FailureKind.DEADLINE,
            code="TURN_TIMEOUT",
            acceptance=Acceptance.UNKNOWN,
            partial=error.partial if isinstance(error, SendFailure) else None,
        ) from error


class AgentThreads:
    """Daemon threads for synchronous agent code: at most `limit` are waited for at a time, idle ones are used again.

    A call that outlives its cancelled send keeps its thread until it returns; its place is free at once.
    """

    def __init__(self, limit: int) -> None:
        self._places = asyncio.Semaphore(limit)
        self._idle: list[SimpleQueue[Callable[[], None] | None]] = []

    async def run(self, call: Callable[[], R]) -> R:
        """Run `call` in a thread, with the caller's context variables."""
        async with self._places:
            loop = asyncio.get_running_loop()
            outcome: asyncio.Future[tuple[R | None, BaseException | None]] = loop.create_future()
            context = contextvars.copy_context()

            def work() -> None:
                result: tuple[R | None, BaseException | None]
                try:
                    result = context.run(call), None
                except BaseException as error:  # noqa: BLE001 - raised again where the call is awaited
                    result = None, error
                _deliver(loop, outcome, result)

            inbox = self._idle.pop() if self._idle else _start_thread()
            inbox.put(work)
            try:
                value, error = await outcome
            except asyncio.CancelledError:
                inbox.put(None)
                raise
            self._idle.append(inbox)
        if error is not None:
            raise error
        return value  # pyright: ignore[reportReturnType] - without an error there is a value

    def close(self) -> None:
        """Let idle threads end."""
        while self._idle:
            self._idle.pop().put(None)


def _start_thread() -> SimpleQueue[Callable[[], None] | None]:
    """A thread that runs what is put into its inbox, until None."""
    inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def serve() -> None:
        while (work := inbox.get()) is not None:
            work()

    threading.Thread(target=serve, name="evalfleet-agent", daemon=True).start()
    return inbox


def _deliver(loop: asyncio.AbstractEventLoop, outcome: asyncio.Future[Any], result: Any) -> None:
    try:
        loop.call_soon_threadsafe(lambda: outcome.done() or outcome.set_result(result))
    except RuntimeError:
        return  # the loop is closed: nobody waits any more
