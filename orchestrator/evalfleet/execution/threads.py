"""Bounded threads for synchronous author code, and the bridge by which such code reaches the loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from queue import SimpleQueue
from typing import Any, TypeVar

from evalfleet.execution.signals import AttemptEnded

R = TypeVar("R")


class AuthorThreads:
    """Threads of our own, so that a stuck test body can't starve the loop's default pool or block exit.

    At most `limit` bodies run at a time. A body that outlives its attempt keeps its thread, counts in `leaked`
    until it returns, and its place is free again at once.
    """

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._idle: list[_Thread] = []
        self._busy = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._leaks: set[object] = set()

    @property
    def leaked(self) -> int:
        """How many bodies could not be stopped and still run, in threads or as tasks."""
        return len(self._leaks)

    def abandon(self, task: asyncio.Task[Any]) -> None:
        """Count a task that ignores its cancellation, until it ends. A loop that closes does not wait for it."""
        asyncio._unregister_task(task)  # pyright: ignore[reportPrivateUsage] - documented, for who extends asyncio
        task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue] - gather does so, too
        self._leaks.add(task)
        task.add_done_callback(self._returned)

    async def run(self, call: Callable[[], R]) -> R:
        """Run `call` in a thread. When this is cancelled, the thread is left behind and counted."""
        await self._enter()
        thread = self._idle.pop() if self._idle else _Thread()
        outcome: asyncio.Future[tuple[R | None, BaseException | None]] = asyncio.get_running_loop().create_future()
        thread.start(call, outcome)
        try:
            value, error = await asyncio.shield(outcome)
        except asyncio.CancelledError:
            self._leaks.add(outcome)
            outcome.add_done_callback(self._returned)
            thread.stop()
            raise
        else:
            self._idle.append(thread)
        finally:
            self._leave()
        if error is not None:
            raise error
        return value  # pyright: ignore[reportReturnType] - without an error there is a value

    def close(self) -> None:
        """Let idle threads end."""
        while self._idle:
            self._idle.pop().stop()

    async def _enter(self) -> None:
        if self._busy >= self._limit:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._leave()
                raise
        else:
            self._busy += 1

    def _leave(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)  # the place passes on; `_busy` stays as it is
                return
        self._busy -= 1

    def _returned(self, leak: asyncio.Future[Any]) -> None:
        self._leaks.discard(leak)
        if not leak.cancelled():
            leak.exception()  # retrieved, so that nothing is logged about it later


class _Thread:
    """One daemon thread that runs what is put into its inbox."""

    def __init__(self) -> None:
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._serve, name="evalfleet-author", daemon=True).start()

    def start(self, call: Callable[[], R], outcome: asyncio.Future[tuple[R | None, BaseException | None]]) -> None:
        loop = outcome.get_loop()

        def work() -> None:
            result: tuple[R | None, BaseException | None]
            try:
                result = call(), None
            except BaseException as error:  # noqa: BLE001 - handed to the attempt, which attributes it
                result = None, error
            _deliver(loop, outcome, result)

        self._inbox.put(work)

    def stop(self) -> None:
        self._inbox.put(None)

    def _serve(self) -> None:
        while (work := self._inbox.get()) is not None:
            work()


def _deliver(loop: asyncio.AbstractEventLoop, outcome: asyncio.Future[Any], result: Any) -> None:
    try:
        loop.call_soon_threadsafe(lambda: outcome.done() or outcome.set_result(result))
    except RuntimeError:
        return  # the loop is closed: nobody waits any more


class Bridge:
    """Lets one attempt's synchronous body await coroutines of the attempt's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._calls: set[Future[Any]] = set()
        self._closed = False

    def call(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run `coroutine` on the loop and wait for it in this thread. Raises AttemptEnded once closed."""
        with self._lock:
            if self._closed:
                coroutine.close()
                raise AttemptEnded
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            self._calls.add(future)
        try:
            return future.result()
        except CancelledError:
            raise AttemptEnded from None
        finally:
            self._calls.discard(future)

    def close(self) -> None:
        """Cancel what is under way and release the thread; called on the loop."""
        with self._lock:
            self._closed = True
        for future in tuple(self._calls):
            future.cancel()
