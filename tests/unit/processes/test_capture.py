"""What is kept of an output: all of it up to the limit, else its head and its tail, however it arrives."""

from __future__ import annotations

import asyncio
import os
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from evalfleet.process_readers import Readers
from evalfleet.process_tree import Capture


@given(chunks=st.lists(st.binary(min_size=1, max_size=300), max_size=12), limit=st.integers(0, 700))
def test_head_and_tail_are_kept_and_everything_is_counted(chunks: list[bytes], limit: int) -> None:
    async def captured() -> Capture:
        capture = Capture(Readers(asyncio.get_running_loop()), limit)
        writer = capture.take_writer()
        for chunk in chunks:
            os.write(writer, chunk)
            await asyncio.sleep(0)
        os.close(writer)
        capture.finish()
        return capture

    capture = asyncio.run(captured())
    data = b"".join(chunks)
    head = limit - limit // 2
    expected = data if len(data) <= limit else data[:head] + data[len(data) - limit // 2 :]
    assert (capture.kept(), capture.total) == (expected, len(data))


def test_memory_stays_bounded() -> None:
    async def swallow(total: int) -> None:
        capture = Capture(Readers(asyncio.get_running_loop()), 1000)
        writer = capture.take_writer()
        for _ in range(total // 50_000):
            os.write(writer, b"x" * 50_000)
            await asyncio.sleep(0.001)
        os.close(writer)
        capture.finish()
        assert capture.total == total

    tracemalloc.start()
    try:
        asyncio.run(swallow(10_000_000))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
