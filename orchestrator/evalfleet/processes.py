"""The only place that starts processes: trusted tools, daemons, and commands whose whole tree must die with us."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from evalfleet.errors import InfrastructureError
from evalfleet.process_commands import Commands, asked
from evalfleet.process_enclosed import WardenProcess
from evalfleet.process_pool import HostLauncher
from evalfleet.process_protocol import WARDEN, encode_ask
from evalfleet.process_readers import Readers
from evalfleet.sandbox_ports import Command, CommandResult

_PR_SET_PDEATHSIG = 1
_PARENT_POLL_SECONDS = 0.5


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
        self._launcher: HostLauncher | None = None
        self._commands = Commands()
        self._wardens: set[WardenProcess] = set()
        self._readers: Readers | None = None

    async def run(self, command: Command, *, base_env: Mapping[str, str], group: str | None = None) -> CommandResult:
        """See `Spawner.run`."""
        request = asked(command, base_env)
        launcher, supervisor = await self._with_launcher(HostLauncher.take)
        return await self._commands.run(request, supervisor, self._readers_here(), launcher.keep, group)

    async def warden(self, template: int) -> WardenProcess:
        """See `Enclosing.warden`."""
        if sys.platform != "linux":
            raise InfrastructureError("only Linux has namespaces")
        _, control = await self._with_launcher(lambda launcher: launcher.ask(encode_ask(WARDEN)))
        warden = WardenProcess(control, self._readers_here(), self._wardens.discard)
        self._wardens.add(warden)
        try:
            await warden.begin(template)
        except BaseException:
            self._wardens.discard(warden)  # ended by itself
            raise
        return warden

    async def end(self, group: str) -> None:
        """See `Spawner.end`."""
        await self._commands.end(group)

    async def close(self) -> None:
        """Kill all that runs and let the supervisors go. May be called twice."""
        try:
            await asyncio.gather(self._commands.end_all(), *[warden.end() for warden in self._wardens])
        finally:
            if self._launcher is not None:
                self._launcher.dismiss()
                self._launcher = None
            if self._readers is not None:
                self._readers.close()
                self._readers = None

    async def _with_launcher(
        self, ask: Callable[[HostLauncher], Awaitable[socket.socket]]
    ) -> tuple[HostLauncher, socket.socket]:
        """What the launcher gives; a new launcher when someone killed it: the supervisors that it made go on."""
        while True:
            launcher = self._launcher = self._launcher or HostLauncher()
            try:
                return launcher, await ask(launcher)
            except ConnectionError:
                launcher.dismiss()
                if self._launcher is launcher:
                    self._launcher = None

    def _readers_here(self) -> Readers:
        loop = asyncio.get_running_loop()
        if self._readers is None or self._readers.loop is not loop:
            self._readers = Readers(loop)
        return self._readers


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
