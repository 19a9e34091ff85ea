"""The first process of an enclosure: it starts commands in there and holds them together.

Orphans never leave a process namespace, so this is the parent that they need; with its end all of them are dead, as
the kernel has it. Nobody in there can end it or look into it. One command at a time it supervises by itself, which
saves a process; for others it forks supervisors, and for all where they enter control groups, which it does not.
"""

from __future__ import annotations

import functools
import os
import select
import socket
from collections.abc import Sequence

from evalfleet.process_children import any_child, collect_dead, kill_children, poll, wake_on_child
from evalfleet.process_namespaces import acting_as, settle
from evalfleet.process_protocol import ASK, User, receive, send_error
from evalfleet.process_supervisor import Supervisor, supervise


class First:
    """Serves those who ask for supervisors until the worker ends it or dies. `doors` lead to the control groups."""

    def __init__(self, requests: socket.socket, worker_death: int | None, doors: Sequence[int]) -> None:
        self._requests = requests
        self._worker_death = worker_death
        self._doors = doors
        self._woken = wake_on_child()
        self._forks: set[int] = set()
        self._own: tuple[socket.socket, Supervisor] | None = None
        self._events = poll(requests.fileno(), self._woken, worker_death)

    def run(self) -> None:
        while True:
            ready = {descriptor for descriptor, _ in self._events.poll()}
            if self._worker_death in ready:
                return
            if self._woken in ready:
                os.read(self._woken, 512)
                self._bury()
            if self._own is not None and self._own[0].fileno() in ready:
                self._hear(*self._own)
            if self._requests.fileno() in ready:
                message, sockets = receive(self._requests, ASK.size, 1)
                if not message:
                    return
                _, uid, gid = ASK.unpack(message)
                self._seat(socket.socket(fileno=sockets[0]), (uid, gid))

    def _seat(self, control: socket.socket, user: User) -> None:
        if self._own is None and not self._doors:
            acting = functools.partial(acting_as, user)
            self._own = control, Supervisor(control, self._woken, self._forks, acting)
            self._events.register(control, select.POLLIN)
            return
        try:
            pid = os.fork()
        except OSError as error:
            send_error(control, error, "supervisor")
        else:
            if pid == 0:
                self._supervise(control, user)
                os._exit(0)
            self._forks.add(pid)
        control.close()

    def _supervise(self, control: socket.socket, user: User) -> None:
        try:
            settle(user, self._doors, keep=(control.fileno(),))
        except OSError as error:
            send_error(control, error, "namespaces")
        else:
            supervise(control, None)  # of the worker's death the first process knows

    def _hear(self, control: socket.socket, supervisor: Supervisor) -> None:
        if not supervisor.hear():
            supervisor.kill_tree()
            self._events.unregister(control)
            control.close()
            self._own = None

    def _bury(self) -> None:
        """Collect the dead. A supervisor that did not end by itself left orphans: they are ours now, and end."""
        dead, more = collect_dead()
        if any(pid in self._forks and status != 0 for pid, status in dead):
            kill_children(spare=self._forks)
        self._forks.difference_update(pid for pid, _ in dead)
        if self._own is not None:
            self._own[1].report(dead, more and any_child(self._forks))
