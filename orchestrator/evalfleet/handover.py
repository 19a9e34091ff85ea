"""Handing a command line over to a process that is ready for it: terminal, directory and environment go along.

Whoever hands over has started in no time, so nothing heavy is imported here. The giver sends what was typed with its
three streams; the taker says whether it takes it; only when the giver has said go does it begin, so that nothing is
ever done twice. From then on signals are passed on, and the end of the one is the end of the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from evalfleet.errors import InfrastructureError
from evalfleet.settings import Settings, own_environment, use_environment
from evalfleet.socket_places import is_ours, socket_folder

_SOCKET = "standby.sock"
_PATIENCE = 2.0
_STREAMS = (0, 1, 2)
_SIZE = struct.Struct("!Q")
_GO = b"g"
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_LIMITS = ("nofile", "nproc", "as", "data", "cpu", "fsize")


def standby_socket(settings: Settings) -> Path:
    """Where the standby of `orchestrate up` listens; it is there only while a command line may be handed over."""
    return socket_folder(settings.state_dir / "up", _SOCKET) / _SOCKET


class CommandLine(NamedTuple):
    """A command line, without the program's name, and what it would have of its process; `limits` are soft and hard."""

    arguments: list[str]
    directory: str
    environment: Mapping[str, str]
    umask: int
    limits: Mapping[str, list[int]]

    @classmethod
    def here(cls, arguments: list[str]) -> CommandLine:
        """This process's own. Raises OSError when its directory is gone."""
        return cls(arguments, os.getcwd(), own_environment(), _umask(), own_limits())


def own_limits() -> dict[str, list[int]]:
    """What the system allows this process."""
    return {name: list(resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))) for name in _LIMITS}


def hand_over(path: Path, line: CommandLine) -> int | None:
    """The exit code of the process that carried it out; None when no process takes it.

    Raises InfrastructureError when the process that took it has ended without one.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_PATIENCE)
        try:
            if not is_ours(path.parent):
                return None
            connection.connect(str(path))
            data = json.dumps(line._asdict()).encode()
            socket.send_fds(connection, [_SIZE.pack(len(data))], _STREAMS)
            connection.sendall(data)
            pid = _received(connection).get("taken")
        except OSError:
            return None
        if pid is None:
            return None
        with _signals_passed_on(pid):
            connection.settimeout(None)
            try:
                connection.sendall(_GO)
                return int(_received(connection)["exit"])
            except OSError as error:
                raise InfrastructureError(f"process {pid}, which carried this out, has ended amid it") from error


class Taken:
    """A command line that this process carries out for another, whose streams it has from `begin` on."""

    def __init__(self, connection: socket.socket, line: CommandLine, streams: list[int]) -> None:
        self.line = line
        self._connection = connection
        self._streams = streams
        self._over = threading.Event()

    def begin(self) -> None:
        """Be what the other one would have been. Raises OSError when its directory is gone."""
        for given, own in zip(self._streams, _STREAMS, strict=True):
            os.dup2(given, own)
            os.close(given)
        for stream in (sys.__stdout__, sys.__stderr__):
            if stream is not None:
                stream.reconfigure(line_buffering=stream.isatty())  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        use_environment(self.line.environment)
        os.umask(self.line.umask)
        os.chdir(self.line.directory)
        threading.Thread(target=self._die_with_other, name="die-with-giver", daemon=True).start()

    def finish(self, code: int) -> None:
        """Let the other one end with this code."""
        self._over.set()
        with contextlib.suppress(OSError):
            _send(self._connection, {"exit": code})

    def _die_with_other(self) -> None:
        with contextlib.suppress(OSError):
            while self._connection.recv(1):
                pass
        if not self._over.is_set():
            os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def listening(path: Path) -> Generator[socket.socket]:
    """A socket at `path`, which is there only while somebody may be taken."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.unlink(missing_ok=True)
        listener.bind(str(fresh))
        listener.listen(16)
        fresh.replace(path)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def take(listener: socket.socket, unfit: Callable[[CommandLine], str | None]) -> Taken:
    """The first command line that is fit for this process and still wanted; the others are refused with a reason."""
    while True:
        connection, _ = listener.accept()
        connection.settimeout(_PATIENCE)
        streams: list[int] = []
        try:
            head, streams, _, _ = socket.recv_fds(connection, _SIZE.size, len(_STREAMS))
            line = CommandLine(**json.loads(_exactly(connection, _SIZE.unpack(head)[0])))
            refused = unfit(line) if len(streams) == len(_STREAMS) else "it came without its streams"
            _send(connection, {"refused": refused} if refused else {"taken": os.getpid()})
            if refused is None and connection.recv(1) == _GO:
                connection.settimeout(None)
                return Taken(connection, line, streams)
        except (OSError, ValueError, TypeError, struct.error):
            pass  # it went, or it is none of ours
        for stream in streams:
            os.close(stream)
        connection.close()


@contextmanager
def _signals_passed_on(pid: int) -> Generator[None]:
    def passed_on(number: int, _frame: FrameType | None) -> None:
        _kill(pid, number)

    def stopped(_number: int, _frame: FrameType | None) -> None:
        _kill(pid, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        _kill(pid, signal.SIGCONT)  # reached once this process goes on

    before = {number: signal.signal(number, passed_on) for number in _PASSED_ON}
    before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, stopped)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    data = json.dumps(message).encode()
    connection.sendall(_SIZE.pack(len(data)) + data)


def _received(connection: socket.socket) -> dict[str, Any]:
    size = _SIZE.unpack(_exactly(connection, _SIZE.size))[0]
    return json.loads(_exactly(connection, size))


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 16))
        if not part:
            raise ConnectionError("the other side has gone")
        data += part
    return bytes(data)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
