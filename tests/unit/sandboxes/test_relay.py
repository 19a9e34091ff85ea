"""A relay between real processes: bytes whole, slow readers held up alone, cuts seen as such, nothing more let in."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet_sandboxes.relay import Relays, SocketPipe
from evalfleet_sandboxes.relay_inside import CREDIT, DATA, END, HEAD, HELLO, OPEN, PIECE, PING, STREAMS, WINDOW
from evalfleet_sandboxes.relay_session import CutError, Pipe, Session

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the inner end runs where Linux containers do")
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Processes:
    """Starts inner ends as processes of this machine. `argv0` is what is run as python3."""

    def __init__(self) -> None:
        self.argv0 = sys.executable
        self.all: list[asyncio.subprocess.Process] = []
        self._streams: list[asyncio.StreamWriter] = []

    @asynccontextmanager
    async def start(self, argv: tuple[str, ...]) -> AsyncGenerator[Pipe]:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                self.argv0, *argv[1:], stdin=theirs.fileno(), stdout=theirs.fileno()
            )
        self.all.append(process)
        reader, writer = await asyncio.open_connection(sock=ours)
        self._streams.append(writer)
        try:
            yield SocketPipe(reader, writer)
        finally:
            writer.transport.abort()
            await process.wait()

    async def started(self, times: int) -> None:
        while True:
            if len(self.all) >= times:
                return
            await asyncio.sleep(0.02)

    async def cut(self) -> None:
        """Break the stream, not the process: the kernel would end its connections in order."""
        self._streams[-1].transport.abort()
        await self.all[-1].wait()


@asynccontextmanager
async def served(serve: Serve, processes: Processes | None = None) -> AsyncGenerator[tuple[int, Relays]]:
    """The port of a relay to a server of this process."""
    relays = Relays((processes or Processes()).start, backoff=(0.05, 0.05, 0.1))
    inlet = await relays.listen()
    server = await asyncio.start_server(serve, sock=socket.socket(fileno=inlet.descriptor))
    try:
        yield inlet.port, relays
    finally:
        server.close()
        await relays.close()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.write(b"all")
    writer.close()


async def _asked(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def say() -> None:
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    saying = asyncio.create_task(say())
    heard = await reader.read()
    await saying
    writer.close()
    return heard


async def test_what_is_said_on_many_connections_comes_whole_both_ways() -> None:
    async with served(_echo) as (port, _):
        data = [bytes([number]) * (300_000 + number) for number in range(STREAMS + 10)]  # more than there is room for
        async with asyncio.timeout(60):
            heard = await asyncio.gather(*(_asked(port, each) for each in data))
        assert heard == [each + b"all" for each in data]
        assert await _asked(port, b"") == b"all"


async def test_who_does_not_read_holds_up_nobody_else_and_is_held_up_himself() -> None:
    written = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        if await reader.read(1) == b"e":
            return await _echo(reader, writer)
        with contextlib.suppress(OSError):
            while True:
                writer.write(b"x" * PIECE)
                await writer.drain()
                written += PIECE

    async with served(pour) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"p")
        await asyncio.sleep(0.5)
        held = written
        assert await _asked(port, b"e" + b"y" * 1_000_000) == b"y" * 1_000_000 + b"all"
        assert held == written < 8 << 20, "the kernel's buffers and a window are all that it may fill"
        assert await reader.readexactly(1_000_000) == b"x" * 1_000_000
        writer.transport.abort()


async def test_a_cut_is_no_end_and_the_port_answers_again() -> None:
    processes = Processes()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await reader.read()
        writer.close()

    async with served(greet, processes) as (port, relays):
        for number in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.readexactly(5) == b"hello"
            await processes.cut()
            with pytest.raises(ConnectionResetError):
                await reader.read()
            writer.close()
            async with asyncio.timeout(20):
                await processes.started(number + 2)
                await _answering(port)
        relays.require()


async def _answering(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.02)
        else:
            return writer.close()


async def test_a_relay_that_can_not_be_started_again_is_told() -> None:
    processes = Processes()
    async with served(_echo, processes) as (port, relays):
        assert await _asked(port, b"x") == b"xall"
        processes.argv0 = "/bin/false"
        processes.all[-1].kill()
        with pytest.raises(AttemptFailure, match="the relay in it has failed: its stream") as caught:
            async with asyncio.timeout(20):
                while True:
                    relays.require()
                    await asyncio.sleep(0.02)
        assert (caught.value.kind, caught.value.code) == (FailureKind.SANDBOX, "SANDBOX_UNREACHABLE")


async def test_one_that_can_not_be_started_at_all_is_told_at_once() -> None:
    processes = Processes()
    processes.argv0 = "/bin/false"
    relays = Relays(processes.start, backoff=(0.05,))
    with pytest.raises(AttemptFailure, match="its network can't be entered from here"):
        await relays.listen()
    await relays.close()


async def test_where_nobody_listens_any_more_a_connection_is_reset() -> None:
    relays = Relays(Processes().start)
    inlet = await relays.listen()
    socket.socket(fileno=inlet.descriptor).close()
    with pytest.raises(ConnectionResetError):
        await _asked(inlet.port, b"x")
    await relays.close()
    with pytest.raises(ConnectionRefusedError):
        await _asked(inlet.port, b"x")


def frame(kind: int, number: int = 0, count: int = 0) -> bytes:
    return HEAD.pack(kind, number, count)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param(b"GET / HTTP/1.1\r\n", "no frame", id="not a frame"),
        pytest.param(frame(DATA, 1, PIECE + 1), "no frame", id="a frame too large"),
        pytest.param(frame(HELLO, 0, 70_000), "another port", id="no port"),
        pytest.param(frame(OPEN, 1) + frame(OPEN, 1), "more connections", id="one twice"),
        pytest.param(b"".join(frame(OPEN, each) for each in range(2 * STREAMS + 1)), "more connections", id="too many"),
        pytest.param(
            frame(OPEN, 1) + (frame(DATA, 1, PIECE) + b"x" * PIECE) * (WINDOW // PIECE + 1), "more came", id="a flood"
        ),
        pytest.param(frame(OPEN, 1) + frame(END, 1) + frame(DATA, 1, 1) + b"x", "more came", id="after the end"),
        pytest.param(frame(DATA, 7, 1) + b"x" + frame(CREDIT, 7, 1) + frame(PING), "stream ended", id="of none"),
    ],
)
async def test_what_the_inner_end_may_not_say_cuts_it_off(said: bytes, why: str) -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)

    async def nowhere() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        await asyncio.Event().wait()
        raise AssertionError

    def port(given: int) -> None:
        if given > 65535:
            raise ValueError("another port")

    with theirs:
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(CutError, match=why):
            await Session(SocketPipe(reader, writer), nowhere).run(port)
    writer.close()
