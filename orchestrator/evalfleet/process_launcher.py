"""The launcher: a small process beside each worker that starts commands and lets none of them outlive it.

    worker ─ socket: asks for one more supervisor ─► launcher ─ fork ─► supervisor ─ spawn ─► command ─► its tree
       ╰─────────── each supervisor's own socket: request →, ← reports, end of file = "end the tree" ─╯

Why not start commands from the worker: forking a large process is slow, it blocks the event loop, and only a
parent of its own can hold a command's tree together. A supervisor is a *subreaper*: whatever its command starts,
and however that detaches itself, ends up as the supervisor's child. So the end of a tree is proven by `ECHILD`
and needs no mark that a process could shed. It serves one command after another, and ends what is left when the
worker says so or dies. Should someone kill a supervisor, the launcher inherits its tree and ends that.

In a sandbox the first process is such a launcher, too: `process_warden`.

`process_pool` runs `main` of `process_main` in an interpreter that has only these modules and the standard library, and
little of that: forking it has to be cheap.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from evalfleet.process_children import adopt_orphans, collect_dead, end_children, kill_children, poll, wake_on_child
from evalfleet.process_protocol import ASK, User, receive, send_error

#: How long a supervisor may take to end its tree and itself before it is killed, and its tree by the launcher.
_SUPERVISOR_MILLISECONDS = 3000


class Launcher:
    """Forks a process that does `serve` for each socket that the worker sends; ends with the worker.

    `serve` gets that socket, and what is asked for of what user and group.
    """

    def __init__(
        self, requests: socket.socket, worker_death: int | None, serve: Callable[[socket.socket, bytes, User], None]
    ) -> None:
        self._requests = requests
        self._worker_death = worker_death
        self._serve = serve
        self._woken = wake_on_child()
        self._children: set[int] = set()
        adopt_orphans()

    def run(self) -> None:
        events = poll(self._requests.fileno(), self._woken, self._worker_death)
        while True:
            ready = {descriptor for descriptor, _ in events.poll()}
            if self._worker_death in ready:
                break
            if self._woken in ready:
                os.read(self._woken, 512)
                self._bury()
            if self._requests.fileno() in ready:
                message, sockets = receive(self._requests, ASK.size, 1)
                if not message:
                    break
                self._fork(socket.socket(fileno=sockets[0]), *ASK.unpack(message))
        # The supervisors end by themselves; killed, one inside a sandbox would leave its tree to that.
        end_children(self._woken, _SUPERVISOR_MILLISECONDS)

    def _fork(self, control: socket.socket, kind: bytes, uid: int, gid: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            send_error(control, error, "supervisor")
        else:
            if pid == 0:
                self._requests.close()
                os.close(self._woken)
                self._serve(control, kind, (uid, gid))
                os._exit(0)
            self._children.add(pid)
        control.close()

    def _bury(self) -> None:
        """Collect the dead. A supervisor that did not end by itself left orphans: they are ours now, and end."""
        dead, _ = collect_dead()
        orphans = any(pid not in self._children or status != 0 for pid, status in dead)
        self._children.difference_update(pid for pid, _ in dead)
        if orphans:
            kill_children(spare=self._children)
