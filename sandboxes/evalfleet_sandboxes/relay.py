"""A socket that listens in a network which can't be entered from here: a script inside listens and carries.

How the script is started is the backend's: in the sandbox itself, or in a container beside it that shares its network.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.sandbox_ports import Inlet
from evalfleet_sandboxes import relay_inside
from evalfleet_sandboxes.blocking import in_thread, pause
from evalfleet_sandboxes.relay_inside import BOOT
from evalfleet_sandboxes.relay_program import PYTHON, REMEDY
from evalfleet_sandboxes.relay_session import CutError, Pipe, Session

#: Seconds before each further try of a stream that was cut; they begin anew after one that lasted.
_BACKOFF = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
#: Seconds until the inner end has to say that it listens.
_GREETING = 90.0
_BACKLOG = 128
#: Of what a temporary directory is in: a socket's path has about a hundred bytes.
_LONGEST = 70

#: Starts the inner end: an argv whose stdin begins with the script; its stdin and stdout while the block lasts.
Start = Callable[[tuple[str, ...]], AbstractAsyncContextManager[Pipe]]


class Relay:
    """One listener, made by `open`. It outlives cuts of its stream: connections under way are reset by one."""

    def __init__(self, start: Start, backoff: tuple[float, ...] = _BACKOFF) -> None:
        self._start = start
        self._backoff = backoff
        self._folder: Path | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._port = 0
        self._greeted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._failure: AttemptFailure | None = None

    async def open(self) -> Inlet:
        """Listen. Raises AttemptFailure SANDBOX_UNREACHABLE when the inner end can't be started."""
        folder = self._folder = await in_thread(short_folder)
        with contextlib.ExitStack() as opened:
            listener = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(str(folder / "in"))
            listener.listen(_BACKLOG)
            self._keeping = asyncio.create_task(self._keep(str(folder / "in")), name="relay")
            await asyncio.wait((self._keeping, self._greeted), timeout=_GREETING, return_when=asyncio.FIRST_COMPLETED)
            self.require()
            if not self._greeted.done():
                raise _unreachable(f"it did not say within {_GREETING:g} s that it listens")
            return Inlet(descriptor=listener.detach(), port=self._greeted.result())

    def require(self) -> None:
        """Raises AttemptFailure SANDBOX_UNREACHABLE once the stream is gone for good."""
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """End it. May be called twice."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait((self._keeping,))
        if self._folder is not None:
            await in_thread(shutil.rmtree, self._folder, True)

    async def _keep(self, path: str) -> None:
        """Have one stream after the other, until that does not succeed any more."""
        tries, said = 0, ""
        while tries <= len(self._backoff):
            if tries:
                await pause(self._backoff[tries - 1])
            session: Session | None = None
            try:
                text = await in_thread(Path(relay_inside.__file__).read_bytes)
                argv = (PYTHON, "-I", "-S", "-c", BOOT, str(len(text)), str(self._port))
                async with self._start(argv) as pipe:
                    await pipe.send(text)
                    session = Session(pipe, lambda: asyncio.open_unix_connection(path))
                    await session.run(self._greet)
            except CutError as error:
                said = str(error)
            except AttemptFailure as failure:
                self._failure = failure
                return
            tries = 1 if session is not None and session.lasted else tries + 1
        self._failure = _unreachable(said)

    def _greet(self, port: int) -> None:
        if not 0 < port < 1 << 16 or self._port not in (0, port):
            raise ValueError(f"it listens on another port: {port}")
        self._port = port
        if not self._greeted.done():
            self._greeted.set_result(port)


class Relays:
    """The relays of one sandbox. `start` is how their inner ends are started."""

    def __init__(self, start: Start, backoff: tuple[float, ...] = _BACKOFF) -> None:
        self._start = start
        self._backoff = backoff
        self._open: list[Relay] = []

    async def listen(self) -> Inlet:
        """See `Listening.listen`."""
        relay = Relay(self._start, self._backoff)
        self._open.append(relay)
        try:
            return await relay.open()
        except BaseException:
            self._open.remove(relay)
            await asyncio.shield(relay.close())
            raise

    def require(self) -> None:
        """Raises AttemptFailure SANDBOX_UNREACHABLE when one of them is gone for good."""
        for relay in self._open:
            relay.require()

    async def close(self) -> None:
        """End them all. May be called twice."""
        ending, self._open = self._open, []
        for relay in ending:
            await relay.close()


def short_folder() -> Path:
    """A new directory of our own whose sockets have paths that a kernel takes. Blocking."""
    usual = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="evalfleet-", dir=usual if len(usual) < _LONGEST else "/tmp"))


class SocketPipe:
    """A `Pipe` over a socket of this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise CutError(f"its stream broke: {error}") from error

    async def receive(self) -> bytes:
        try:
            data = await self._reader.read(1 << 16)
        except OSError as error:
            raise CutError(f"its stream broke: {error}") from error
        if not data:
            raise CutError("its stream ended")
        return data


def no_python(said: str) -> AttemptFailure:
    """What an image without the program says of it, for good."""
    return _unreachable(f"{PYTHON} can't be run: {said}")


def _unreachable(why: str) -> AttemptFailure:
    message = f"its network can't be entered from here, and the relay in it has failed: {why}: {REMEDY}"
    return AttemptFailure(FailureKind.SANDBOX, "SANDBOX_UNREACHABLE", message)
