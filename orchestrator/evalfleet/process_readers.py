"""Calling functions when descriptors can be read. A command has three of them, each for a moment."""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Callable


class Readers:
    """The descriptors that are watched in one event loop, each with the function that reads it.

    On Linux the loop itself watches one epoll instead of them all: entering and leaving the loop's own selector
    costs more than what is read.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._functions: dict[int, Callable[[], object]] = {}
        self._epoll = _epoll()
        if self._epoll is not None:
            loop.add_reader(self._epoll.fileno(), self._dispatch, self._epoll)

    def add(self, descriptor: int, function: Callable[[], object]) -> None:
        """Call the function whenever the descriptor can be read. It may be called once too often."""
        if self._epoll is None:
            self.loop.add_reader(descriptor, function)
        else:
            self._functions[descriptor] = function
            self._epoll.register(descriptor, select.EPOLLIN)

    def remove(self, descriptor: int) -> None:
        """Call no more; to be said before the descriptor is closed."""
        if self._epoll is None:
            self.loop.remove_reader(descriptor)
        else:
            del self._functions[descriptor]
            self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Watch nothing any more. May be called twice, and after the loop was closed."""
        if self._epoll is not None and not self._epoll.closed:
            if not self.loop.is_closed():
                self.loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def _dispatch(self, epoll: select.epoll) -> None:
        for descriptor, _ in epoll.poll(0):
            function = self._functions.get(descriptor)
            if function is not None:  # not removed by a function before it
                function()


def _epoll() -> select.epoll | None:
    return select.epoll() if sys.platform == "linux" else None
