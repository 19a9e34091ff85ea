"""The worker's ends of launchers: each is asked for supervisors, and keeps the idle ones for the next commands."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import weakref
from pathlib import Path

from evalfleet.process_protocol import SUPERVISOR, User, encode_ask

#: Supervisors kept for the next commands.
_MAX_IDLE = 64
#: How long a launcher may take to end itself and what is left of its supervisors.
_DISMISS_SECONDS = 5.0
#: Runs the launcher out of our package's folder, but without the package's front door and what that loads.
_LAUNCH = """\
import sys, types
package = sys.modules["evalfleet"] = types.ModuleType("evalfleet")
package.__path__ = [sys.argv[1]]
from evalfleet import process_main
process_main.main(int(sys.argv[2]))
"""


class Supervisors:
    """Those of the launcher that listens at the other end of `requests`; at most so many idle ones of each user."""

    def __init__(self, requests: socket.socket, most_idle: int) -> None:
        self._requests = requests
        self._most_idle = most_idle
        self._asking = asyncio.Lock()
        self._idle: dict[User | None, list[socket.socket]] = {}

    async def take(self, user: User | None = None) -> socket.socket:
        """The socket of an idle supervisor, or a new one's. Raises ConnectionError when the launcher is dead."""
        idle = self._idle.get(user, [])
        while idle:
            control = idle.pop()
            with contextlib.suppress(BlockingIOError):  # nothing to read: it is alive and silent, as it should be
                control.recv(1, socket.MSG_PEEK)
                control.close()
                continue
            return control
        return await self.ask(encode_ask(SUPERVISOR, user))

    async def ask(self, request: bytes) -> socket.socket:
        """Our end of a socket whose other end goes to the launcher. Raises ConnectionError when that is dead."""
        control, theirs = socket.socketpair()
        control.setblocking(False)
        with theirs:
            try:
                async with self._asking:
                    while not self._sent(request, theirs):
                        await self._writable()
            except BaseException:
                control.close()
                raise
        return control

    def keep(self, supervisor: socket.socket, user: User | None = None) -> None:
        """Take back a supervisor that has become idle; it is let go when there are enough."""
        idle = self._idle.setdefault(user, [])
        if self._requests.fileno() < 0 or len(idle) >= self._most_idle:
            supervisor.close()
        else:
            idle.append(supervisor)

    def let_go(self) -> None:
        """Let all go that are idle."""
        _close_all(self._idle)

    def _sent(self, request: bytes, theirs: socket.socket) -> bool:
        try:
            socket.send_fds(self._requests, [request], [theirs.fileno()])
        except BlockingIOError:  # hundreds are being made
            return False
        except OSError as error:  # closed, or nobody listens
            raise ConnectionError(str(error)) from error
        return True

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        loop.add_writer(self._requests, ready.set_result, None)
        try:
            await ready
        finally:
            loop.remove_writer(self._requests)


class HostLauncher(Supervisors):
    """The launcher beside this process, and its supervisors."""

    def __init__(self) -> None:
        requests, theirs = socket.socketpair()
        requests.setblocking(False)
        with theirs:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", _LAUNCH, str(Path(__file__).parent), str(os.getpid())],
                {},  # no secret of ours is to be found in the parent of a command
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)],
                setsid=True,  # a terminal's Ctrl-C is for us to handle
                setsigmask=(),
            )
        super().__init__(requests, _MAX_IDLE)
        self.dismiss = weakref.finalize(self, _dismiss, pid, os.getpid(), requests, self._idle)


def _close_all(idle: dict[User | None, list[socket.socket]]) -> None:
    for sockets in idle.values():
        for each in sockets:
            each.close()
    idle.clear()


def _dismiss(pid: int, owner: int, requests: socket.socket, idle: dict[User | None, list[socket.socket]]) -> None:
    if os.getpid() != owner:
        return  # a fork of the owner must not end what it inherited
    _close_all(idle)
    with requests, contextlib.suppress(OSError):
        requests.shutdown(socket.SHUT_WR)  # reaches the other end even when a fork holds a copy
        requests.settimeout(_DISMISS_SECONDS)
        requests.recv(1)  # nothing, when the launcher has ended
        os.waitpid(pid, 0)
