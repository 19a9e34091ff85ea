"""The outer end of a relay: connections that come in frames over one stream, each carried to a socket of this process.

What comes is the sandbox's word: it opens connections to that one socket and nothing else, and never holds more than
a window of each in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from evalfleet_sandboxes.blocking import pause
from evalfleet_sandboxes.relay_inside import (
    CREDIT,
    DATA,
    END,
    HEAD,
    HELLO,
    OPEN,
    PIECE,
    PING,
    RESET,
    SILENCE,
    STREAMS,
    WINDOW,
    Frames,
)

#: Seconds between signs of life, and how long none from the other end is borne.
_BETWEEN_PINGS = SILENCE / 4
_LASTING = 4
#: What connects to where a relay's connections are to go.
Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class Pipe(Protocol):
    """The stdin and stdout of the inner end. Both raise CutError once it is gone."""

    async def send(self, data: bytes) -> None:
        """Returns when there is room for more."""
        ...

    async def receive(self) -> bytes:
        """Some bytes, never none."""
        ...


class CutError(Exception):
    """The stream to the inner end is gone, or not what it should be; the message says what was seen of it."""


@dataclass(slots=True, kw_only=True)
class _Carried:
    """One connection. `credit` is what may be sent of it to the inner end, `held` what is here of the other way."""

    task: asyncio.Task[None] | None = None
    credit: int = WINDOW
    held: int = 0
    heard_all: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)
    coming: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue[bytes]())


class Session:
    """One stream of frames, from the inner end's greeting until it is cut."""

    def __init__(self, pipe: Pipe, connect: Connect) -> None:
        self._pipe = pipe
        self._connect = connect
        self._sending = asyncio.Lock()
        self._carried: dict[int, _Carried] = {}
        self._pings = 0

    @property
    def lasted(self) -> bool:
        """Whether it lived for a good while."""
        return self._pings > _LASTING

    async def run(self, greeted: Callable[[int], None]) -> None:
        """Carry until the stream is cut; `greeted` is told the port inside. Raises CutError, always."""
        pinging = asyncio.create_task(self._ping(), name="pings of a relay")
        try:
            await self._follow(greeted)
        except ValueError as error:
            raise CutError(str(error)) from error
        finally:
            tasks = [pinging, *(each.task for each in self._carried.values() if each.task is not None)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, greeted: Callable[[int], None]) -> None:
        frames = Frames()
        while True:
            try:
                async with asyncio.timeout(SILENCE):
                    data = await self._pipe.receive()
            except TimeoutError:
                raise CutError(f"nothing was heard of it for {SILENCE:g} s") from None
            for kind, number, count, body in frames.take(data):
                if kind == HELLO:
                    greeted(count)
                else:
                    self._take(kind, number, count, body)

    def _take(self, kind: int, number: int, count: int, body: bytes) -> None:
        """Act on a frame. Raises ValueError for one that may not come."""
        if kind == OPEN:
            if number in self._carried or len(self._carried) >= 2 * STREAMS:
                raise ValueError("more connections came than may")
            carried = self._carried[number] = _Carried()
            carried.task = asyncio.create_task(self._carry(number, carried), name=f"connection {number} of a relay")
            return
        carried = self._carried.get(number)
        if carried is None:
            return  # it was reset meanwhile
        if kind == DATA:
            carried.held += len(body)
            if carried.held > WINDOW or carried.heard_all:
                raise ValueError("more came of a connection than may")
            carried.coming.put_nowait(body)
        elif kind == END and not carried.heard_all:
            carried.heard_all = True
            carried.coming.put_nowait(b"")
        elif kind == CREDIT:
            carried.credit = min(WINDOW, carried.credit + count)
            carried.news.set()
        elif kind == RESET and carried.task is not None:
            carried.task.cancel()

    async def _carry(self, number: int, carried: _Carried) -> None:
        """One connection from its beginning to its end; one that breaks is broken on both sides."""
        writer: asyncio.StreamWriter | None = None
        try:
            reader, writer = await self._connect()
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._up(number, carried, reader))
                ways.create_task(self._down(number, carried, writer))
            writer.close()
        except* OSError:
            with contextlib.suppress(CutError):
                await self._say(RESET, number)
        except* CutError:
            pass  # whoever reads the stream says so
        finally:
            if writer is not None and not writer.is_closing():
                writer.transport.abort()
            self._carried.pop(number, None)

    async def _up(self, number: int, carried: _Carried, reader: asyncio.StreamReader) -> None:
        while True:
            while not carried.credit:
                carried.news.clear()
                await carried.news.wait()
            data = await reader.read(min(PIECE, carried.credit))
            if not data:
                return await self._say(END, number)
            carried.credit -= len(data)
            await self._say(DATA, number, len(data), data)

    async def _down(self, number: int, carried: _Carried, writer: asyncio.StreamWriter) -> None:
        while data := await carried.coming.get():
            writer.write(data)
            await writer.drain()
            carried.held -= len(data)
            await self._say(CREDIT, number, len(data))
        writer.write_eof()

    async def _ping(self) -> None:
        with contextlib.suppress(CutError):  # whoever reads the stream says so
            while True:
                await self._say(PING, 0)
                self._pings += 1
                await pause(_BETWEEN_PINGS)

    async def _say(self, kind: int, number: int, count: int = 0, data: bytes = b"") -> None:
        async with self._sending:
            await self._pipe.send(HEAD.pack(kind, number, count) + data)
