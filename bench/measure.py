"""One command measured from its start until its last process has ended."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.accounts import Account, kill_all, open_account

_COORDINATOR = b"ray::CoordinatorActor"
_LOOK = 0.05
_LINGER = 15.0


class CommandFailed(RuntimeError):
    """A measured command ended otherwise than it has to; the message ends with what it said last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Seconds of wall and CPU clock, bytes of memory, and what the command printed.

    `cpu` is that of the whole process tree and of the servers beside it, `cpu_servers` their part of it. `rss` is
    the peak of the process that coordinates: Ray's coordinator actor, else the command itself. `load` is the
    one-minute load average before the command.
    """

    wall: float
    cpu: float
    cpu_servers: float
    rss: int
    load: float
    stdout: bytes = field(repr=False)


@dataclass(slots=True)
class Running:
    """A started command. `began` is in seconds since the epoch."""

    account: Account
    pid: int
    began: float
    out: Path
    err: Path


@dataclass(slots=True)
class Bench:
    """Runs commands in `work`. What `servers` use meanwhile is part of each command's CPU."""

    work: Path
    env: Mapping[str, str]
    servers: list[Account] = field(default_factory=list)
    _opened: list[Account] = field(default_factory=list)

    def start(self, argv: Sequence[str | Path], cwd: Path, env: Mapping[str, str] | None = None) -> Running:
        account = open_account()
        self._opened.append(account)
        logs = self.work / "logs"
        logs.mkdir(exist_ok=True)
        number = len(list(logs.iterdir()))
        out, err = logs / f"{number}.out", logs / f"{number}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            began = time.time()
            pid = account.start([str(part) for part in argv], {**self.env, **(env or {})}, cwd, stdout, stderr)
        return Running(account, pid, began, out, err)

    def end(self, account: Account) -> None:
        """Kill what still runs of a command, and close its account."""
        kill_all(account)
        account.close()
        self._opened.remove(account)

    def close(self) -> None:
        """End every command that was started, also after a failure half-way."""
        for account in tuple(self._opened):
            self.end(account)

    def run(
        self,
        argv: Sequence[str | Path],
        cwd: Path,
        env: Mapping[str, str] | None = None,
        *,
        codes: Sequence[int] = (0,),
        timeout: float = 3600.0,
        linger: bool = True,
    ) -> Measurement:
        """Measure a command. Raises CommandFailed for an exit code that is not among `codes`.

        With `linger` what it left behind may end by itself and counts; what then still runs is killed.
        """
        load = os.getloadavg()[0]
        before = self._servers_cpu()
        began = time.monotonic()
        running = self.start(argv, cwd, env)
        memory = _Memory(running)
        while (code := running.account.ended()) is None:
            memory.look()
            if time.monotonic() - began > timeout:
                raise CommandFailed(f"{argv[0]} took more than {timeout:.0f} s{_tail(running.err)}")
            time.sleep(_LOOK)
        wall = time.monotonic() - began
        if code not in codes:
            raise CommandFailed(f"{_shown(argv)} ended with {code}{_tail(running.err)}")
        _wait_empty(running.account, _LINGER if linger else 0.0)
        cpu, servers = running.account.cpu(), self._servers_cpu() - before
        self.end(running.account)
        return Measurement(
            wall=wall,
            cpu=cpu + servers,
            cpu_servers=servers,
            rss=memory.peak,
            load=load,
            stdout=running.out.read_bytes(),
        )

    def _servers_cpu(self) -> float:
        return sum(account.cpu() for account in self.servers)


class _Memory:
    """The peak resident memory of the coordinating process, looked up while it runs."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._own = 0
        self._coordinator = 0
        self._next = 0.0

    @property
    def peak(self) -> int:
        return self._coordinator or self._own

    def look(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 0.2
        self._own = max(self._own, _high_water(self._running.pid))
        for pid in self._running.account.pids():
            with suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(_COORDINATOR):
                    self._coordinator = max(self._coordinator, _high_water(pid))


def _high_water(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0


def _wait_empty(account: Account, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while account.pids() and time.monotonic() < deadline:
        time.sleep(_LOOK)


def _shown(argv: Sequence[str | Path]) -> str:
    return " ".join(map(str, argv))


def _tail(path: Path) -> str:
    lines = path.read_text("utf-8", "replace").strip().splitlines()
    return ":\n  " + "\n  ".join(lines[-8:]) if lines else ""


def quiet(argv: Sequence[str | Path], env: Mapping[str, str], cwd: Path | None = None) -> str:
    """The output of a command that is not measured. Raises CommandFailed."""
    done = subprocess.run([str(part) for part in argv], env=dict(env), cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise CommandFailed(f"{_shown(argv)} ended with {done.returncode}:\n  " + "\n  ".join(said[-8:]))
    return done.stdout
