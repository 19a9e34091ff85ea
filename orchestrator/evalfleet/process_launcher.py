"""The launcher: a small process beside each worker that starts commands and lets none of them outlive it.

    worker ─ socket: asks for one more supervisor ─► launcher ─ fork ─► supervisor ─ spawn ─► command ─► its tree
       ╰─────────── each supervisor's own socket: request →, ← reports, end of file = "end the tree" ─╯

Why not start commands from the worker: forking a large process is slow, it blocks the event loop, and only a
parent of its own can hold a command's tree together. A supervisor is a *subreaper*: whatever its command starts,
and however that detaches itself, ends up as the supervisor's child. So the end of a tree is proven by `ECHILD`
and needs no mark that a process could shed. It serves one command after another, and ends what is left when the
worker says so or dies. Should someone kill a supervisor, the launcher inherits its tree and ends that.

A supervisor whose first command starts in other namespaces goes there for good: a fork of it serves inside, where it
can adopt orphans (they never leave their process namespace), and itself only waits for that one.

`evalfleet.processes` runs `main` in an interpreter that has only this module, its two siblings and the standard
library, and little of that: forking it has to be cheap.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import marshal
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Collection, Mapping, Sequence

from evalfleet.process_namespaces import join, settle

#: What a supervisor reports, a line each: `exit 0`, `signal 9`, `error 2 program` (an errno, and what it is
#: about: program, cwd, supervisor or namespaces), and `gone` once nothing of the command's tree is left.
EXIT, SIGNAL, ERROR, GONE = "exit", "signal", "error", "gone"

_LINUX = sys.platform == "linux"
_LENGTH = struct.Struct("!I")
#: Sent in place of a request: end what is left of the last one.
END = _LENGTH.pack(0)
_PR_SET_CHILD_SUBREAPER = 36
_prctl = ctypes.CDLL(None).prctl if _LINUX else None
#: How long the rest of a tree may take to die by itself before it is looked for.
_DEATH_MILLISECONDS = 50
#: How long a supervisor may take to end its tree and itself before it is killed, and its tree by the launcher.
_SUPERVISOR_MILLISECONDS = 3000
#: A handler, not SIG_IGN, which commands would inherit: they may signal their parent, and it shrugs.
_SHRUGGED_OFF = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
#: Python ignores these; commands must find them as they expect them.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)

#: Process id, user, group, cgroup folders, whether filtered: the fields of `sandbox_ports.Inside`.
Entrance = tuple[int, int, int, list[bytes], bool]


def encode_request(argv: Sequence[str], cwd: str, env: Mapping[str, str], entrance: Entrance | None) -> bytes:
    """A request for one command, sent together with its three streams. Both ends are the same interpreter.

    A supervisor gets the same entrance with each of its requests.
    """
    environment = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    body = marshal.dumps((entrance, [os.fsencode(part) for part in argv], os.fsencode(cwd), environment))
    return _LENGTH.pack(len(body)) + body


class Launcher:
    """Forks a supervisor for each socket that the worker sends; ends with the worker."""

    def __init__(self, requests: socket.socket, worker: int) -> None:
        self._requests = requests
        self._worker_death = _death_of(worker)
        self._woken = _wake_on_child()
        self._supervisors: set[int] = set()
        _adopt_orphans()

    def run(self) -> None:
        gc.freeze()
        events = _poll(self._requests.fileno(), self._woken, self._worker_death)
        while True:
            ready = {descriptor for descriptor, _ in events.poll()}
            if self._worker_death in ready:
                break
            if self._woken in ready:
                os.read(self._woken, 512)
                self._bury()
            if self._requests.fileno() in ready:
                message, sockets = _receive(self._requests, 1, 1)
                if not message:
                    break
                self._fork(sockets[0])
        # The supervisors end by themselves; killed, one inside a sandbox would leave its tree to that.
        _end_children(self._woken, _SUPERVISOR_MILLISECONDS)

    def _fork(self, control: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            os.write(control, f"{ERROR} {error.errno} supervisor\n".encode())
        else:
            if pid == 0:
                self._requests.close()
                os.close(self._woken)
                Supervisor(socket.socket(fileno=control), self._worker_death).run()
                os._exit(0)
            self._supervisors.add(pid)
        os.close(control)

    def _bury(self) -> None:
        """Collect the dead. A supervisor that did not end by itself left orphans: they are ours now, and end."""
        dead, _ = _collect_dead()
        orphans = any(pid not in self._supervisors or status != 0 for pid, status in dead)
        self._supervisors.difference_update(pid for pid, _ in dead)
        if orphans:
            _kill_children(spare=self._supervisors)


class Supervisor:
    """The parent of one command at a time: reports how it ended and holds its tree together."""

    def __init__(self, control: socket.socket, worker_death: int | None) -> None:
        self._control = control
        self._worker_death = worker_death
        self._group: int | None = None
        self._running = False
        self._gone = True
        self._inside = False
        self._take_over()

    def _take_over(self) -> None:
        """Make this process the one that adopts, shrugs and is woken."""
        _adopt_orphans()
        for number in _SHRUGGED_OFF:
            signal.signal(number, _shrug)
        self._woken = _wake_on_child()
        self._events = _poll(self._control.fileno(), self._woken, self._worker_death)

    def run(self) -> None:
        """Serve until the worker ends the conversation or dies; what still runs then is ended first."""
        while True:
            ready = {descriptor for descriptor, _ in self._events.poll()}
            if self._worker_death in ready:
                break
            if self._woken in ready:
                os.read(self._woken, 512)
                self._report()
            if self._control.fileno() in ready and not self._accept():
                break
        self._kill_tree()

    def _accept(self) -> bool:
        """Do what the worker says next; False when it has ended the conversation."""
        header, streams = _receive(self._control, _LENGTH.size, 3)
        if len(header) < _LENGTH.size:
            return False
        if header == END:
            self._end()
            return True
        (length,) = _LENGTH.unpack(header)
        body = bytearray()
        while len(body) < length:
            chunk = self._control.recv(length - len(body))
            if not chunk:
                return False
            body += chunk
        entrance, argv, cwd, env = marshal.loads(body)
        if entrance is not None and not self._inside:
            self._go_inside(streams, *entrance)
        self._start(streams, argv, cwd, env)
        for stream in streams:
            os.close(stream)
        return True

    def _go_inside(
        self, streams: Sequence[int], pid: int, uid: int, gid: int, cgroups: Sequence[bytes], filtered: bool
    ) -> None:
        """Returns in a fork that serves inside; this process waits for its end and ends."""
        try:
            doors = join(pid, cgroups)
            child = os.fork()
            if child == 0:
                settle(uid, gid, doors=doors, filtered=filtered, keep=(self._control.fileno(), *streams))
        except OSError as error:
            self._send(f"{ERROR} {error.errno} namespaces\n")
            os._exit(0)
        if child:
            for stream in streams:
                os.close(stream)
            self._wait_for(child)
        self._inside = True
        self._worker_death = None
        self._take_over()

    def _wait_for(self, child: int) -> None:
        """End when the process inside has, telling it of the worker's death, which it can't see."""
        events = _poll(self._woken, self._worker_death)
        while True:
            ready = {descriptor for descriptor, _ in events.poll()}
            if self._worker_death in ready:
                events.unregister(self._worker_death)
                self._control.shutdown(socket.SHUT_RDWR)
            if self._woken in ready:
                os.read(self._woken, 512)
                if not _collect_dead()[1]:
                    os._exit(0)

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

    def _report(self) -> None:
        dead, more = _collect_dead()
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
            self._kill_tree()
            self._running, self._gone = False, True
            self._send(f"{GONE}\n")

    def _kill_tree(self) -> None:
        if self._group is not None and (self._running or not _LINUX):
            _kill(-self._group)  # most of a tree; without subreapers all that we can reach
        _end_children(self._woken if self._running else None)

    def _send(self, lines: str) -> None:
        with contextlib.suppress(ConnectionError):  # the worker is gone, as the next look at the socket will tell
            self._control.sendall(lines.encode())


def _receive(sender: socket.socket, size: int, descriptors: int) -> tuple[bytes, list[int]]:
    """Up to `size` bytes and the descriptors that came with them, not to be inherited by what we start."""
    message, received, _, _ = socket.recv_fds(sender, size, descriptors)
    for descriptor in received:
        os.set_inheritable(descriptor, False)  # recv_fds ignores its flags, so MSG_CMSG_CLOEXEC is no use
    return message, received


def _find_program(name: bytes, path: bytes) -> bytes:
    if b"/" in name:
        return name
    for folder in path.split(b":"):
        candidate = os.path.join(folder, name)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _death_of(worker: int) -> int | None:
    """A descriptor that becomes readable when the worker dies, even while a fork of it holds our sockets open."""
    if not _LINUX:
        return None
    try:
        descriptor = os.pidfd_open(worker)
    except OSError:
        return None  # refused by an old kernel or a filter: the end of the socket has to do
    if os.getppid() != worker:
        sys.exit()  # it died before we looked
    return descriptor


def _adopt_orphans() -> None:
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _shrug(*_: object) -> None:
    """Only wakes the poll."""


def _wake_on_child() -> int:
    """A descriptor that becomes readable when a child of this process ends."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _shrug)
    return woken


def _poll(*descriptors: int | None) -> select.poll:
    events = select.poll()
    for descriptor in descriptors:
        if descriptor is not None:
            events.register(descriptor, select.POLLIN)
    return events


def _collect_dead() -> tuple[list[tuple[int, int]], bool]:
    """Pid and wait status of each child that has died, and whether any other child is left."""
    dead: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return dead, False
        if pid == 0:
            return dead, True
        dead.append((pid, status))


def _end_children(woken: int | None = None, patience: int = _DEATH_MILLISECONDS) -> None:
    """Kill until nothing is left. Each death hands the dead one's own children to us.

    With `woken` the rest dies by itself, as a rule: it is looked for, which comes dear, when nothing died for so
    many milliseconds.
    """
    while _collect_dead()[1]:
        if woken is None or not _poll(woken).poll(patience):
            _kill_children()
            os.waitpid(-1, 0)
        else:
            os.read(woken, 512)


def _kill_children(spare: Collection[int] = ()) -> None:
    """SIGKILL all children but `spare`, each with its whole process group."""
    own_group = os.getpgrp()
    for child, group in _children():
        if child not in spare:
            if group != own_group:  # a child of a spawn that has not reached setsid yet is in ours
                _kill(-group)
            _kill(child)


def _kill(target: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # not ours to kill: the worker will see it live on
        os.kill(target, signal.SIGKILL)


def _children() -> list[tuple[int, int]]:
    """Pid and process group of each child of this process, zombies included."""
    if not _LINUX:
        return []
    me = os.getpid()
    found: list[tuple[int, int]] = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == me:
            found.append((int(name), int(fields[2])))
    return found


def main(worker: int) -> None:
    """Serve the worker's requests, which come through standard input, until it ends them or dies."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # whatever a library of the worker left inheritable
    Launcher(socket.socket(fileno=0), worker).run()
