"""The only place that starts processes: trusted tools, daemons, and commands whose whole tree must die with us."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from evalfleet import process_launcher
from evalfleet.process_readers import Readers
from evalfleet.process_tree import Tree, ending
from evalfleet.sandbox_ports import Command, CommandResult, Inside

_PR_SET_PDEATHSIG = 1
_PARENT_POLL_SECONDS = 0.5

#: Supervisors kept for the next commands.
_MAX_IDLE = 64
#: Supervisors kept inside one sandbox for its next commands.
_MAX_IDLE_INSIDE = 2
#: How long a launcher may take to end itself and what is left of its supervisors.
_DISMISS_SECONDS = 5.0
#: Runs the launcher out of our package's folder, but without the package's front door and what that loads.
_LAUNCH = """\
import sys, types
package = sys.modules["evalfleet"] = types.ModuleType("evalfleet")
package.__path__ = [sys.argv[1]]
from evalfleet import process_launcher
process_launcher.main(int(sys.argv[2]))
"""

#: What a supervisor is bound to: the group that ends its commands, and where they start.
_Place = tuple[str | None, Inside | None]


def die_with_parent() -> None:
    """End this process, by SIGKILL, as soon as its parent is gone; the first line of every actor.

    On Linux the kernel does it, and the setting belongs to the calling thread: call it from one that lives as
    long as the process. Elsewhere a thread polls the parent's id.
    """
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it went before the call took effect
            os.kill(os.getpid(), signal.SIGKILL)
    else:
        threading.Thread(target=_poll_parent, args=(parent,), name="die-with-parent", daemon=True).start()


def _poll_parent(parent: int) -> None:
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(_PARENT_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def start_daemon(argv: Sequence[str], *, env: Mapping[str, str] | None, log: Path) -> int:
    """Start a process that outlives this one, in its own session, and return its pid.

    Its output is appended to `log`; it has no input; `env` replaces the environment unless None. It is reaped
    should it end while this process lives. Raises OSError when the program can't be started.
    """
    with log.open("ab") as output:
        daemon = subprocess.Popen(
            list(argv),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    threading.Thread(target=daemon.wait, name=f"reap-{daemon.pid}", daemon=True).start()
    return daemon.pid


def become(argv: Sequence[str]) -> NoReturn:
    """Be this program from now on, on the same terminal and in the same environment.

    Raises OSError when it can't be started.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(argv[0], list(argv))


async def run(
    argv: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes | None = None,
) -> CommandResult:
    """Run a trusted, well-behaved tool (git, initdb) to its end, keeping all of its output.

    `timeout` is in seconds; the tool's process group is killed when it passes or the caller is cancelled.
    `env` replaces the environment unless None. Raises OSError when the program can't be started.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    process = await asyncio.create_subprocess_exec(
        *argv,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    talk = asyncio.ensure_future(process.communicate(stdin))
    try:
        _, unfinished = await asyncio.wait((talk,), timeout=timeout)
    finally:
        if not talk.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.wait((talk,))
    timed_out = bool(unfinished)
    stdout, stderr = talk.result()
    code = process.returncode
    killed = code is not None and code < 0
    return CommandResult(
        exit_code=None if killed or timed_out else code,
        stdout=stdout,
        stderr=stderr,
        duration=loop.time() - started,
        timed_out=timed_out,
        signal=-code if code is not None and killed and not timed_out else None,
        stdout_bytes=len(stdout),
        stderr_bytes=len(stderr),
    )


class SystemSpawner:
    """Runs commands under supervisors (see `process_launcher`), so that no process outlives its owner.

    Timeout, cancellation, `end` and the death of this process each kill a command's whole tree, detached
    children included. A relative `cwd` starts at this process's own directory. Use it from one event loop at a
    time, and close it.
    """

    def __init__(self) -> None:
        self._launcher: _Launcher | None = None
        self._asking = asyncio.Lock()
        self._trees: dict[Tree, _Place] = {}
        self._readers: Readers | None = None

    async def run(
        self,
        command: Command,
        *,
        base_env: Mapping[str, str],
        group: str | None = None,
        inside: Inside | None = None,
    ) -> CommandResult:
        """See `Spawner.run`."""
        if inside is not None and sys.platform != "linux":
            raise OSError(errno.ENOSYS, "only Linux has namespaces to enter")
        loop = asyncio.get_running_loop()
        started = loop.time()
        request = _encode(command, {**base_env, **command.env}, inside)
        place = (group, inside)
        supervisor = await self._supervisor(place)
        tree = Tree(self._readers_in(loop), supervisor, command.output_limit, self._forget)
        self._trees[tree] = place
        report: str | None = None
        timed_out = False
        try:
            async with asyncio.timeout(command.timeout):
                await tree.start(request, command.stdin)
                report = await tree.exited
        except TimeoutError:
            timed_out = True
            await tree.end()
        except asyncio.CancelledError:
            await asyncio.shield(tree.end())
            raise
        duration = loop.time() - started
        await (tree.end() if group is None else tree.drain())
        code, number = (None, None) if timed_out else ending(report, command)
        return CommandResult(
            exit_code=code,
            stdout=tree.stdout.kept(),
            stderr=tree.stderr.kept(),
            duration=duration,
            timed_out=timed_out,
            signal=number,
            stdout_bytes=tree.stdout.total,
            stderr_bytes=tree.stderr.total,
        )

    async def end(self, group: str) -> None:
        """See `Spawner.end`."""
        await asyncio.gather(*[tree.end() for tree, (member_of, _) in self._trees.items() if member_of == group])
        if self._launcher is not None:
            self._launcher.let_go(group)

    async def close(self) -> None:
        """Kill all that runs and let the supervisors go. May be called twice."""
        try:
            await asyncio.gather(*[tree.end() for tree in self._trees])
        finally:
            if self._launcher is not None:
                self._launcher.dismiss()
                self._launcher = None
            if self._readers is not None:
                self._readers.close()
                self._readers = None

    def _readers_in(self, loop: asyncio.AbstractEventLoop) -> Readers:
        if self._readers is None or self._readers.loop is not loop:
            self._readers = Readers(loop)
        return self._readers

    async def _supervisor(self, place: _Place) -> socket.socket:
        """The socket of an idle supervisor of that place, or of a new one."""
        async with self._asking:
            while True:
                if self._launcher is None:
                    self._launcher = _Launcher()
                try:
                    return self._launcher.supervisor(place)
                except BlockingIOError:  # hundreds are being made
                    await self._launcher.writable()
                except ConnectionError:  # someone killed it; the supervisors it made go on
                    self._launcher.dismiss()
                    self._launcher = None

    def _forget(self, tree: Tree, supervisor: socket.socket | None) -> None:
        place = self._trees.pop(tree)
        if supervisor is not None and not (self._launcher is not None and self._launcher.keep(supervisor, place)):
            supervisor.close()


def _encode(command: Command, env: Mapping[str, str], inside: Inside | None) -> bytes:
    if not command.argv:
        raise OSError(errno.EINVAL, "a command needs a program")
    entrance: process_launcher.Entrance | None = None
    if inside is not None:
        groups = [os.fsencode(folder) for folder in inside.cgroups]
        entrance = (inside.pid, inside.uid, inside.gid, groups, inside.filtered)
    try:
        return process_launcher.encode_request(command.argv, os.path.abspath(command.cwd or ""), env, entrance)
    except UnicodeEncodeError as error:
        raise OSError(errno.EILSEQ, f"not representable as an argument or in the environment: {error}") from error


class _Launcher:
    """The worker's end of the launcher process, and the supervisors of it that are idle."""

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
        self._requests = requests
        self._idle: dict[_Place, list[socket.socket]] = {}
        self.dismiss = weakref.finalize(self, _dismiss, pid, os.getpid(), requests, self._idle)

    def supervisor(self, place: _Place) -> socket.socket:
        """The socket of an idle supervisor of that place, or a new one's.

        Raises BlockingIOError when the launcher can't take another request yet, ConnectionError when it is dead.
        """
        idle = self._idle.get(_shared(place), [])
        while idle:
            control = idle.pop()
            with contextlib.suppress(BlockingIOError):  # nothing to read: it is alive and silent, as it should be
                control.recv(1, socket.MSG_PEEK)
                control.close()
                continue
            return control
        control, theirs = socket.socketpair()
        control.setblocking(False)
        with theirs:
            try:
                socket.send_fds(self._requests, [b"+"], [theirs.fileno()])
            except OSError:
                control.close()
                raise
        return control

    def keep(self, supervisor: socket.socket, place: _Place) -> bool:
        """Keep a supervisor that has become idle, unless there are enough; True when it is kept."""
        group, inside = place
        if inside is not None and group is None:  # nobody would say when to let it go
            return False
        idle = self._idle.setdefault(_shared(place), [])
        if len(idle) >= (_MAX_IDLE if inside is None else _MAX_IDLE_INSIDE):
            return False
        idle.append(supervisor)
        return True

    def let_go(self, group: str) -> None:
        """Let those go that are idle inside the sandbox of a group."""
        for place in [place for place in self._idle if place[0] == group]:
            _close_all(self._idle.pop(place))

    async def writable(self) -> None:
        """Wait until the launcher can take another request; for one caller at a time."""
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        loop.add_writer(self._requests, ready.set_result, None)
        try:
            await ready
        finally:
            loop.remove_writer(self._requests)


def _shared(place: _Place) -> _Place:
    """Whose supervisors a place uses: outside of sandboxes all are alike."""
    return place if place[1] is not None else (None, None)


def _close_all(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()
    sockets.clear()


def _dismiss(pid: int, owner: int, requests: socket.socket, idle: dict[_Place, list[socket.socket]]) -> None:
    if os.getpid() != owner:
        return  # a fork of the owner must not end what it inherited
    for sockets in idle.values():
        _close_all(sockets)
    with requests, contextlib.suppress(OSError):
        requests.shutdown(socket.SHUT_WR)  # reaches the other end even when a fork holds a copy
        requests.settimeout(_DISMISS_SECONDS)
        requests.recv(1)  # nothing, when the launcher has ended
        os.waitpid(pid, 0)


def limit_memory(size: int) -> None:
    """Let this process allocate at most `size` bytes beyond what it holds now; more raises MemoryError."""
    held = 0
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as status:
        held = sum(int(line.split()[1]) << 10 for line in status if line.startswith("VmData:"))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = held + size
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def resident_memory() -> int:
    """The bytes of memory that this process holds, 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def process_alive(pid: int) -> bool:
    """Whether a process with this id lives on this machine; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"
    return True


def worker_memory() -> int:
    """The bytes that one worker on this machine may allocate: half of the memory, shared by a worker for two CPUs."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return total // 2 // max(1, (os.cpu_count() or 1) // 2)
