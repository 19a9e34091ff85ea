"""Each descriptor's function is called when there is something to read, and never after it was removed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from evalfleet.process_readers import Readers


@asynccontextmanager
async def opened() -> AsyncGenerator[Readers]:
    readers = Readers(asyncio.get_running_loop())
    try:
        yield readers
    finally:
        readers.close()
        readers.close()


async def test_functions_are_called_while_there_is_something_to_read() -> None:
    async with opened() as readers:
        reader, writer = os.pipe()
        seen: list[bytes] = []
        ended = asyncio.Event()

        def read() -> None:
            seen.append(os.read(reader, 2))
            if not seen[-1]:
                readers.remove(reader)
                ended.set()

        readers.add(reader, read)
        os.write(writer, b"abcde")
        os.close(writer)
        await ended.wait()
        os.close(reader)
        assert seen == [b"ab", b"cd", b"e", b""]


async def test_what_one_function_removes_is_not_called_any_more() -> None:
    async with opened() as readers:
        pipes = [os.pipe() for _ in range(2)]
        called: list[int] = []
        first_called = asyncio.Event()

        def alone(own: int, other: int) -> None:
            called.append(own)
            first_called.set()
            readers.remove(own)
            readers.remove(other)

        (first, _), (second, _) = pipes
        readers.add(first, lambda: alone(first, second))
        readers.add(second, lambda: alone(second, first))
        for _, writer in pipes:
            os.write(writer, b"x")
        await first_called.wait()
        await asyncio.sleep(0.05)
        assert len(called) == 1
        for descriptor in (*pipes[0], *pipes[1]):
            os.close(descriptor)
