"""What the first signal does, wherever it comes."""

from __future__ import annotations

import asyncio
import io
import signal
from typing import TYPE_CHECKING

import pytest

from evalfleet.cli.interrupts import cancelled_by_signals

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Interrupted(io.RawIOBase):
    """A stream during whose first write a signal comes."""

    def __init__(self) -> None:
        self.written = b""

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        if not self.written:
            signal.raise_signal(signal.SIGINT)
        self.written += bytes(data)
        return memoryview(data).nbytes


async def test_a_signal_amid_a_write_to_the_stream_of_its_note_cancels_and_is_noted_after_it() -> None:
    raw = _Interrupted()
    stream = io.BufferedWriter(raw)

    def note(text: str) -> None:
        stream.write(text.encode())
        stream.flush()

    async def work() -> None:
        with cancelled_by_signals(note):
            note("6/20 settled")
            await asyncio.sleep(30)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work())
    assert raw.written.startswith(b"6/20 settledstopping: ")
