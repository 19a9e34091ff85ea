"""A warden: makes enclosures after one template, for as long as its worker lives. Linux only.

    launcher ─ fork, enters the template ─► warden ─ fork, new namespaces ─► first process ─ spawn ─► command

What the first process of an enclosure is, says `process_first`.
"""

from __future__ import annotations

import marshal
import os
import select
import socket

from evalfleet.process_children import collect_dead, end_children, kill, poll, shrug_off_all, wake_on_child
from evalfleet.process_first import First
from evalfleet.process_namespaces import Home, enter, fork_first, furnish, guard, move_in, part
from evalfleet.process_protocol import ASK, HEADER, UP, Enclosure, receive, receive_body, send_error

_ABOUT = "namespaces"
_MOST_CGROUPS = 8


def be_warden(requests: socket.socket, worker_death: int | None) -> None:
    """Enter the template that is told of and serve there, in a fork; this process waits for that one's end."""
    body = receive_body(requests, requests.recv(HEADER))
    if body is None:
        return
    try:
        user_space = enter(marshal.loads(body))
        child = os.fork()
        if child == 0:
            kept = [requests.fileno()] if worker_death is None else [requests.fileno(), worker_death]
            shrug_off_all()  # as the first processes do then
            Warden(requests, worker_death, move_in(user_space, keep=kept)).run()
            os._exit(0)
    except OSError as error:
        send_error(requests, error, _ABOUT)
        return
    requests.close()
    os.waitpid(child, 0)


class Warden:
    """Forks the first process of each enclosure, and ends it when the worker says so.

    An enclosure's socket is for that process to read; the copy here is closed once it is dead, with all others in it.
    """

    def __init__(self, requests: socket.socket, worker_death: int | None, home: Home) -> None:
        self._requests = requests
        self._worker_death = worker_death
        self._home = home
        self._woken = wake_on_child()
        self._controls: dict[int, socket.socket] = {}  # by process id
        self._firsts: dict[int, int] = {}  # process ids by the descriptor of the socket, until it says the end
        self._events = poll(requests.fileno(), self._woken, worker_death)

    def run(self) -> None:
        self._requests.sendall(f"{UP}\n".encode())
        while True:
            ready = {descriptor for descriptor, _ in self._events.poll()}
            if self._worker_death in ready:
                break
            for descriptor in ready & self._firsts.keys():
                self._events.unregister(descriptor)
                kill(self._firsts.pop(descriptor))  # and the kernel all others in there, before its end is reported
            if self._woken in ready:
                os.read(self._woken, 512)
                self._bury()
            if self._requests.fileno() in ready:
                message, sockets = receive(self._requests, ASK.size, 1)
                if not message:
                    break
                self._enclose(socket.socket(fileno=sockets[0]))
        for first in self._firsts.values():
            kill(first)
        end_children(self._woken)

    def _enclose(self, control: socket.socket) -> None:
        asked, doors = self._asked(control)
        if asked is None:
            control.close()
            return
        try:
            first = fork_first(self._home)
            if first == 0:
                self._begin(control, asked, doors)
        except OSError as error:
            send_error(control, error, _ABOUT)
            control.close()
            return
        finally:
            for door in doors:
                os.close(door)
        self._controls[first] = control
        self._firsts[control.fileno()] = first
        self._events.register(control, select.POLLRDHUP)

    def _asked(self, control: socket.socket) -> tuple[Enclosure | None, list[int]]:
        """What is asked for, with the files of its control groups. The worker sends it at once, unless it died.

        It is read before the fork, in which each page that is touched first is copied.
        """
        if control.fileno() not in {descriptor for descriptor, _ in poll(control.fileno(), self._worker_death).poll()}:
            return None, []
        try:
            header, doors = receive(control, HEADER, _MOST_CGROUPS)
            body = receive_body(control, header)
        except ConnectionError:
            return None, []
        return None if body is None else marshal.loads(body), doors

    def _begin(self, control: socket.socket, enclosure: Enclosure, doors: list[int]) -> None:
        """Be the first process of an enclosure, to the end."""
        user, mounts, network, filtered = enclosure
        try:
            part(network=network)
            furnish(mounts, network=network)
            shown = [os.open("/", os.O_RDONLY | os.O_DIRECTORY), os.open("/proc/self/ns/net", os.O_RDONLY)]
            kept = [control.fileno(), *shown, *doors]
            if self._worker_death is not None:
                kept.append(self._worker_death)
            guard(user, self._home, filtered=filtered, keep=kept)
        except OSError as error:
            send_error(control, error, _ABOUT)
            os._exit(0)

        first = First(control, self._worker_death, doors)
        socket.send_fds(control, [f"{UP}\n".encode()], shown)
        for descriptor in shown:
            os.close(descriptor)
        first.run()
        os._exit(0)

    def _bury(self) -> None:
        for first, _ in collect_dead()[0]:
            control = self._controls.pop(first)
            if self._firsts.pop(control.fileno(), None) is not None:
                self._events.unregister(control)
            control.close()
