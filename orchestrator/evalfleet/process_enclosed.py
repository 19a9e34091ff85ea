"""Wardens and enclosures as the worker sees them; `process_warden` says what is at the other ends of their sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping

from evalfleet import process_protocol
from evalfleet.enclosure_ports import Enclosure
from evalfleet.errors import InfrastructureError
from evalfleet.process_commands import Commands, asked
from evalfleet.process_pool import Supervisors
from evalfleet.process_protocol import ENCLOSURE, UP, User, encode_ask
from evalfleet.process_readers import Readers
from evalfleet.sandbox_ports import Command, CommandResult

#: Supervisors kept inside for the next commands.
_MAX_IDLE = 2
_DEATH_SECONDS = 5.0
_GROUP = "enclosed"


class Far:
    """The far end of a socket: says once that it is up, with descriptors, and closes when all there is dead."""

    def __init__(self, control: socket.socket, readers: Readers) -> None:
        self.control = control
        self.loop = readers.loop
        self.shown: list[int] = []
        self._readers = readers
        self._up: asyncio.Future[str] = readers.loop.create_future()
        self._ended: asyncio.Future[None] = readers.loop.create_future()
        readers.add(control.fileno(), self._hear)

    @property
    def ended(self) -> bool:
        return self._ended.done()

    async def begin(self, request: bytes, files: list[int]) -> None:
        """Send what it is to be, with files. Raises InfrastructureError when that can't be."""
        try:
            with contextlib.suppress(ConnectionError):  # it is dead, as the end of its socket will tell
                sent = socket.send_fds(self.control, [request], files)
                await self.loop.sock_sendall(self.control, request[sent:])
            report = await self._up
        except BaseException:
            await asyncio.shield(self.end())
            raise
        if report != UP:
            await self.end()
            why = os.strerror(int(report.split()[1])) if report else "who makes them went away"
            raise InfrastructureError(f"no namespaces can be made: {why}")

    async def end(self) -> None:
        """Have it ended. Raises InfrastructureError when something won't die. May be called twice."""
        if not self.ended:
            with contextlib.suppress(OSError):
                self.control.shutdown(socket.SHUT_WR)
            _, waiting = await asyncio.wait((self._ended,), timeout=_DEATH_SECONDS)
            if waiting:
                raise InfrastructureError(f"a process would not die within {_DEATH_SECONDS:g} s of SIGKILL")
        while self.shown:
            os.close(self.shown.pop())

    def _hear(self) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(self.control, 1024, 2)
        except BlockingIOError:
            return
        except ConnectionError:
            message, descriptors = b"", []
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self.shown += descriptors
        if not self._up.done():
            self._up.set_result(message.decode().strip())
        if not message:
            self._readers.remove(self.control.fileno())
            self.control.close()
            self._ended.set_result(None)


class WardenProcess:
    """See `enclosure_ports.Warden`. `on_end` is called when it was let go."""

    def __init__(self, control: socket.socket, readers: Readers, on_end: Callable[[WardenProcess], None]) -> None:
        self._far = Far(control, readers)
        self._readers = readers
        self._on_end = on_end
        self._asking = Supervisors(control, 0)
        self._enclosed: set[EnclosedProcesses] = set()

    async def begin(self, template: int) -> None:
        await self._far.begin(process_protocol.encode_template(template), [])

    async def enclose(self, enclosure: Enclosure) -> EnclosedProcesses:
        """See `Warden.enclose`."""
        with contextlib.ExitStack() as opened:
            doors: list[int] = []
            for folder in enclosure.cgroups:
                doors.append(os.open(os.path.join(folder, "cgroup.procs"), os.O_WRONLY))
                opened.callback(os.close, doors[-1])
            try:
                control = await self._asking.ask(encode_ask(ENCLOSURE))
            except ConnectionError:
                raise InfrastructureError("no namespaces can be made: who makes them went away") from None
            enclosed = EnclosedProcesses(control, self._readers, self._enclosed.discard)
            self._enclosed.add(enclosed)
            try:
                await enclosed.begin(_encode(enclosure), doors)
            except BaseException:
                self._enclosed.discard(enclosed)  # ended by itself
                raise
        return enclosed

    async def end(self) -> None:
        """See `Warden.end`."""
        await asyncio.gather(*[enclosed.end() for enclosed in self._enclosed])
        await self._far.end()
        self._on_end(self)


class EnclosedProcesses:
    """See `enclosure_ports.Enclosed`. `on_end` is called when it was ended."""

    def __init__(self, control: socket.socket, readers: Readers, on_end: Callable[[EnclosedProcesses], None]) -> None:
        self._on_end = on_end
        self._far = Far(control, readers)
        self._readers = readers
        self._supervisors = Supervisors(control, _MAX_IDLE)
        self._commands = Commands()

    @property
    def ended(self) -> bool:
        return self._far.ended

    @property
    def root(self) -> int:
        return self._far.shown[0]

    @property
    def network(self) -> int:
        return self._far.shown[1]

    async def begin(self, request: bytes, doors: list[int]) -> None:
        await self._far.begin(request, doors)

    async def run(self, command: Command, *, base_env: Mapping[str, str], user: User) -> CommandResult:
        """See `Enclosed.run`."""
        request = asked(command, base_env)
        try:
            supervisor = await self._supervisors.take(user)
        except ConnectionError:
            message = f"{command.argv[0]!r} can't be started in its sandbox: what held that together is gone"
            raise InfrastructureError(message) from None

        def keep(idle: socket.socket) -> None:
            self._supervisors.keep(idle, user)

        return await self._commands.run(request, supervisor, self._readers, keep, _GROUP)

    async def end(self) -> None:
        """See `Enclosed.end`."""
        await self._far.end()
        await self._commands.end(_GROUP)
        self._supervisors.let_go()
        self._on_end(self)


def _encode(enclosure: Enclosure) -> bytes:
    mounts = [
        (
            os.fsencode(mount.source or ""),
            os.fsencode(mount.target),
            mount.mode,
            mount.size,
            [os.fsencode(path) for path in mount.below],
        )
        for mount in enclosure.mounts
    ]
    return process_protocol.encode_enclosure((enclosure.user, mounts, enclosure.network, enclosure.filtered))
