"""One command and everything it started, as the worker sees it: its end, its output, the proof that it is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Callable

from evalfleet import process_protocol
from evalfleet.errors import InfrastructureError
from evalfleet.process_readers import Readers
from evalfleet.sandbox_ports import Command

#: How long a killed tree may take to be gone: SIGKILL acts at once unless a process hangs inside the kernel.
_DEATH_SECONDS = 5.0
#: After its exit, a command whose background children hold its output gets this long for what is under way.
_DRAIN_SECONDS = 0.1
_READ_BYTES = 1 << 16
#: A pipe holds less than this many reads; who still writes after the end is not listened to.
_LAST_READS = 32


class Tree:
    """A command and everything it started, seen through its supervisor's socket.

    `exited` becomes the supervisor's report of the command's own end, None when there was none; `gone` is set
    when no process of the tree is left.
    """

    def __init__(
        self,
        readers: Readers,
        control: socket.socket,
        output_limit: int,
        on_gone: Callable[[Tree, socket.socket | None], None],
    ) -> None:
        loop = self._loop = readers.loop
        self._readers = readers
        self._control = control
        self._on_gone = on_gone
        self._handed_over = False
        self._reusable = True
        self.stdout = Capture(readers, output_limit)
        self.stderr = Capture(readers, output_limit)
        self.exited: asyncio.Future[str | None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        readers.add(control.fileno(), self._hear)

    async def start(self, request: bytes, stdin: bytes | None) -> None:
        """Hand the command and its streams to the supervisor; whether that worked shows in `exited`."""
        streams = [_input_file(stdin), self.stdout.take_writer(), self.stderr.take_writer()]
        try:
            with contextlib.suppress(ConnectionError):  # the supervisor is dead, as the end of its socket will tell
                sent = socket.send_fds(self._control, [request], streams)
                if sent < len(request):
                    await self._send(request[sent:])
                self._handed_over = True
        finally:
            for stream in streams:
                os.close(stream)

    async def drain(self) -> None:
        """Give output under way a moment to arrive when background children hold the pipes."""
        if not self.gone.done():
            await asyncio.wait((self.stdout.ended, self.stderr.ended), timeout=_DRAIN_SECONDS)

    async def end(self) -> None:
        """Kill what is left and wait for the proof that nothing is."""
        if self.gone.done():
            return
        try:
            self._reusable = self._handed_over and self._control.send(process_protocol.END) > 0
        except OSError:
            self._reusable = False
        if not self._reusable:  # the end of the conversation is an end for the tree too
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)
        _, waiting = await asyncio.wait((self.gone,), timeout=_DEATH_SECONDS)
        if waiting:
            raise InfrastructureError(f"a process would not die within {_DEATH_SECONDS:g} s of SIGKILL")

    async def _send(self, rest: bytes) -> None:
        """Send what did not fit at once, unless the supervisor dies meanwhile: nobody would take it then."""
        sending = asyncio.ensure_future(self._loop.sock_sendall(self._control, rest))
        try:
            await asyncio.wait((sending, self.gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
        if sending.done():
            sending.result()

    def _hear(self) -> None:
        try:
            lines = self._control.recv(1024)
        except BlockingIOError:
            return
        except ConnectionError:
            lines = b""
        for line in lines.decode().splitlines():
            if line == process_protocol.GONE:
                self._settle(reusable=self._reusable)
            elif not self.exited.done():
                self.exited.set_result(line)
        if not lines:
            self._settle(reusable=False)

    def _settle(self, *, reusable: bool) -> None:
        self._readers.remove(self._control.fileno())
        self.stdout.finish()
        self.stderr.finish()
        if not reusable:
            self._control.close()
        if not self.exited.done():
            self.exited.set_result(None)
        self.gone.set_result(None)
        self._on_gone(self, self._control if reusable else None)


def ending(report: str | None, command: Command) -> tuple[int | None, int | None]:
    """Exit code and signal of a supervisor's report; an unknown end is an error, never success."""
    program = command.argv[0]
    if report is None:
        raise InfrastructureError(f"how {program!r} ended is unknown: its supervisor went away, or the sandbox closed")
    kind, value, *about = report.split()
    number = int(value)
    if kind == process_protocol.ERROR and about == ["supervisor"]:
        raise InfrastructureError(f"no process can be started for {program!r}: {os.strerror(number)}")
    if kind == process_protocol.ERROR and about == ["namespaces"]:
        raise InfrastructureError(f"{program!r} can't be started in its sandbox: {os.strerror(number)}")
    if kind == process_protocol.ERROR:
        raise OSError(number, os.strerror(number), command.cwd if about == ["cwd"] else program)
    return (number, None) if kind == process_protocol.EXIT else (None, number)


def _input_file(data: bytes | None) -> int:
    """A descriptor that reads `data`; a file, since a pipe would need someone to feed it."""
    if data is None:
        return os.open(os.devnull, os.O_RDONLY)
    if sys.platform == "linux":
        descriptor = os.memfd_create("stdin")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class Capture:
    """Reads a pipe as output comes and keeps the head and the tail of it, together at most `limit` bytes."""

    def __init__(self, readers: Readers, limit: int) -> None:
        self._readers = readers
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._tail_limit = limit // 2
        self._head_limit = limit - self._tail_limit
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        self.ended: asyncio.Future[None] = readers.loop.create_future()
        readers.add(self._reader, self._read)

    def take_writer(self) -> int:
        """The writing end, which the caller now has to close."""
        writer, self._writer = self._writer, -1
        return writer

    def kept(self) -> bytes:
        return bytes(self._head) + bytes(self._tail[max(0, len(self._tail) - self._tail_limit) :])

    def finish(self) -> None:
        """Take what has been written so far, and close."""
        if self._writer >= 0:
            os.close(self.take_writer())
        for _ in range(_LAST_READS):
            if self.ended.done() or not self._read():
                break
        self._close()

    def _read(self) -> bool:
        """Take a chunk; False when there is none at the moment."""
        try:
            chunk = os.read(self._reader, _READ_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self._close()
            return False
        self._keep(chunk)
        return True

    def _keep(self, chunk: bytes) -> None:
        self.total += len(chunk)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if chunk and self._tail_limit:
            self._tail += chunk
            if len(self._tail) > 2 * self._tail_limit + _READ_BYTES:
                del self._tail[: len(self._tail) - self._tail_limit]

    def _close(self) -> None:
        if not self.ended.done():
            self._readers.remove(self._reader)
            os.close(self._reader)
            self.ended.set_result(None)
