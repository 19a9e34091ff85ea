"""Supervising commands, one at a time: each is started here, reported of, and its whole tree ended."""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import signal
import socket
import sys
from collections.abc import Callable, Collection, Sequence

from evalfleet.process_children import (
    adopt_orphans,
    collect_dead,
    end_children,
    kill,
    poll,
    shrug_off_all,
    wake_on_child,
)
from evalfleet.process_protocol import END, ERROR, EXIT, GONE, HEADER, SIGNAL, receive, receive_body

_LINUX = sys.platform == "linux"
#: Python ignores these; commands must find them as they expect them.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def supervise(control: socket.socket, worker_death: int | None) -> None:
    """Be a supervisor until the worker ends the conversation or dies; what still runs then is ended first."""
    adopt_orphans()
    shrug_off_all()
    woken = wake_on_child()
    supervisor = Supervisor(control, woken)
    events = poll(control.fileno(), woken, worker_death)
    while True:
        ready = {descriptor for descriptor, _ in events.poll()}
        if worker_death in ready:
            break
        if woken in ready:
            os.read(woken, 512)
            supervisor.report(*collect_dead())
        if control.fileno() in ready and not supervisor.hear():
            break
    supervisor.kill_tree()


class Supervisor:
    """The parent of one command at a time: reports how it ended and holds its tree together.

    All children of this process are its tree, but for those of `spare`. Commands start within `acting`.
    """

    def __init__(
        self,
        control: socket.socket,
        woken: int,
        spare: Collection[int] = (),
        acting: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._control = control
        self._woken = woken
        self._spare = spare
        self._acting = acting
        self._group: int | None = None
        self._running = False
        self._gone = True

    def hear(self) -> bool:
        """Do what the worker says next; False when it has ended the conversation."""
        header, streams = receive(self._control, HEADER, 3)
        if len(header) < HEADER:
            return False
        if header == END:
            self._end()
            return True
        body = receive_body(self._control, header)
        if body is None:
            return False
        with self._acting():
            self._start(streams, *marshal.loads(body))
        for stream in streams:
            os.close(stream)
        return True

    def _start(self, streams: Sequence[int], argv: list[bytes], cwd: bytes, env: dict[bytes, bytes]) -> None:
        about = "cwd"
        try:
            os.chdir(cwd)
            about = "program"
            self._group = os.posix_spawn(
                _find_program(argv[0], env.get(b"PATH", os.fsencode(os.defpath))),
                argv,
                env,
                file_actions=[(os.POSIX_SPAWN_DUP2, stream, number) for number, stream in enumerate(streams)],
                setsid=True,
                setsigdef=_IGNORED_BY_PYTHON,
            )
            self._running, self._gone = True, False
        except (OSError, ValueError) as error:  # ValueError: a NUL byte, or "=" in a variable's name
            number = error.errno if isinstance(error, OSError) else errno.EINVAL
            self._send(f"{ERROR} {number} {about}\n{GONE}\n")
        finally:
            os.chdir("/")

    def report(self, dead: list[tuple[int, int]], more: bool) -> None:
        """Tell the worker which children have died, and whether any is left of the tree.

        Between two commands there is nothing to tell: who died then is no part of a tree, and the next command would
        take the word for the end of its own.
        """
        if self._gone:
            return
        lines = ""
        for pid, status in dead:
            if pid == self._group:
                self._running = False  # from now on its number may be another's
                code = os.waitstatus_to_exitcode(status)
                lines += f"{EXIT} {code}\n" if code >= 0 else f"{SIGNAL} {-code}\n"
        if dead and not more:
            lines += f"{GONE}\n"
            self._gone = True
        self._send(lines)

    def _end(self) -> None:
        """Kill what is left of the last command, and report that alone."""
        if not self._gone:
            self.kill_tree()
            self._running, self._gone = False, True
            self._send(f"{GONE}\n")

    def kill_tree(self) -> None:
        """End what is left of the last command."""
        if self._group is not None and (self._running or not _LINUX):
            kill(-self._group)  # most of a tree; without subreapers all that we can reach
        end_children(self._woken if self._running else None, spare=self._spare)

    def _send(self, lines: str) -> None:
        with contextlib.suppress(ConnectionError):  # the worker is gone, as the next look at the socket will tell
            self._control.sendall(lines.encode())


def _find_program(name: bytes, path: bytes) -> bytes:
    if b"/" in name:
        return name
    for folder in path.split(b":"):
        candidate = os.path.join(folder, name)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
