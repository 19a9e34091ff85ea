"""A watch over code that may not end: a task with a time limit that nothing it does can extend."""

from __future__ import annotations

import asyncio
import math
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

#: Timers may ring this much early, in seconds.
_EARLY = 1e-3


@types.coroutine
def _one_step() -> Generator[None, None, None]:
    """Let what is ready take one step."""
    yield


class Watch:
    """Runs one coroutine at a time in a task, and returns when it ended or was given up.

    `arm` sets what happens when the time is over, `interrupt` cancels the task and gives it up when it ignores
    that. `cancelled` tells whether whoever waited was cancelled meanwhile.
    """

    __slots__ = ("_due", "_expired", "_given_up", "_loop", "_task", "_timer", "_wake", "cancelled")

    def __init__(self) -> None:
        self.cancelled = False
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._expired: Callable[[], None] | None = None
        self._due = math.inf
        self._given_up = False

    async def run(self, coroutine: Coroutine[Any, Any, None], on_cancelled: Callable[[], None]) -> asyncio.Task[None]:
        """Run `coroutine`; its task afterwards is done, or was given up and runs on.

        The cancellation of whoever waits goes to `on_cancelled`, which decides what becomes of the task.
        """
        self._given_up = False
        task = self._task = self._loop.create_task(coroutine)
        try:
            await _one_step()  # what ends in its first step, as fast agents do, needs no future and no timer
        except asyncio.CancelledError:
            self.cancelled = True
            on_cancelled()
        if not task.done():
            await self._wait(task, on_cancelled)
        self._task = None
        return task

    async def _wait(self, task: asyncio.Task[None], on_cancelled: Callable[[], None]) -> None:
        task.add_done_callback(self._ended)
        while not (task.done() or self._given_up):
            self._wake = self._loop.create_future()
            self._set_timer()
            try:
                await self._wake
            except asyncio.CancelledError:
                self.cancelled = True
                on_cancelled()
        self._wake = None

    def arm(self, seconds: float | None, expired: Callable[[], None]) -> None:
        """Call `expired` in `seconds`, instead of what was armed before; None never."""
        self._expired = expired
        self._due = math.inf if seconds is None else self._loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._due:
            self._timer.cancel()
            self._timer = None
        if self._wake is not None:
            self._set_timer()  # one that rings too early is kept: it finds nothing due

    def interrupt(self, grace: float) -> None:
        """Cancel the task; give it up when it has not ended in `grace` seconds."""
        if self._task is not None and not self._task.done():
            self.arm(grace, self.give_up)
            self._task.cancel()

    def give_up(self) -> None:
        """Wait no longer."""
        self._given_up = True
        self._ended()

    def stop(self) -> None:
        """Disarm for good."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._expired = None

    def _set_timer(self) -> None:
        if self._timer is None and self._due < math.inf:
            self._timer = self._loop.call_at(self._due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._due - self._loop.time() > _EARLY:
            self._set_timer()
        elif self._expired is not None:
            self._due = math.inf
            self._expired()

    def _ended(self, _: asyncio.Task[None] | None = None) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
