"""Ctrl-C and SIGTERM: once to stop in good order, twice to stop at once."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def cancelled_by_signals(note: Callable[[str], None]) -> Generator[None, None, None]:
    """Cancel the current task at the first signal; raise KeyboardInterrupt at the next, wherever the code is.

    Signal handlers belong to the main thread; in another one nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    seen = 0

    def stop() -> None:
        note("stopping: what runs is cancelled and cleaned up; once more to stop at once")
        if task is not None:
            task.cancel()

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen > 1:
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(stop)  # not here, which may be amid a write to the stream that the note goes to

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def plain_interrupts() -> Generator[None, None, None]:
    """While somebody is asked a question, the first Ctrl-C already raises KeyboardInterrupt."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
