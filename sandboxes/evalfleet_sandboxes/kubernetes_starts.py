"""How many Pods of this process may start at once: more while they start well, fewer when the cluster pushes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

FIRST, MOST = 8, 64
#: A start that was not over after so many seconds is a sign that the cluster has enough to do.
SLOW_SECONDS = 30.0


class Starts:
    """A window on starts. It grows by one with each that went well while it was full, and halves at a push back."""

    def __init__(self, first: int = FIRST, most: int = MOST) -> None:
        self._most = most
        self._window = first
        self._running = 0
        self._pushes = 0
        self._room = asyncio.Condition()

    @property
    def window(self) -> int:
        return self._window

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[Callable[[], None]]:
        """A place in the window, from the creation of a Pod until it runs; what it gives is called at a push back."""
        async with self._room:
            await self._room.wait_for(lambda: self._running < self._window)
            self._running += 1
        seen, full = self._pushes, self._running >= self._window
        slow = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._push, seen)
        try:
            yield lambda: self._push(seen)
            if full and seen == self._pushes:
                self._window = min(self._most, self._window + 1)
        finally:
            slow.cancel()
            async with self._room:
                self._running -= 1
                self._room.notify_all()

    def _push(self, seen: int) -> None:
        """Halve the window, once for all starts that were under way together."""
        if seen == self._pushes:
            self._pushes += 1
            self._window = max(1, self._window // 2)
