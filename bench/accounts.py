"""CPU accounts: what a command and everything it ever started has used, daemons included.

A command may start processes that outlive it and are nobody's children (Ray's, an embedded Postgres). A cgroup counts
all of them to the nanosecond. Where none can be made, this process becomes the reaper of orphans: the dead are counted
when they are waited for, the living by /proc, in ticks of 10 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

_V1 = Path("/sys/fs/cgroup/cpuacct")
_V2 = Path("/sys/fs/cgroup")
_SET_CHILD_SUBREAPER = 36
_TICK = os.sysconf("SC_CLK_TCK")
_JOIN = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
_numbers = itertools.count(1)


class Account(Protocol):
    """One command and its offspring. `start` may be called once; `close` after everything has ended."""

    def start(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, out: IO[bytes], err: IO[bytes]) -> int:
        """Start a command in a session of its own; its process id."""
        ...

    def ended(self) -> int | None:
        """The command's exit code, negative for a signal; None while it runs."""
        ...

    def cpu(self) -> float:
        """User and system seconds used so far, by the living and the dead."""
        ...

    def pids(self) -> frozenset[int]: ...

    def close(self) -> None: ...


def open_account() -> Account:
    """The best account that this machine allows."""
    for root in (_V1, _V2):
        if root == _V1 or (root / "cgroup.controllers").exists():
            group = root / f"evalfleet-bench-{os.getpid()}-{next(_numbers)}"
            with contextlib.suppress(OSError):
                group.mkdir()
                return CgroupAccount(group)
    return ReaperAccount()


def kill_all(account: Account, seconds: float = 20.0) -> None:
    """SIGKILL every process of the account, until none is left."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for pid in account.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        account.ended()
        if not account.pids():
            return
        time.sleep(0.02)
    raise TimeoutError(f"processes {sorted(account.pids())} survive SIGKILL")


class CgroupAccount:
    """An account by a cgroup of its own (version 1 `cpuacct`, or version 2)."""

    name = "cgroup"

    def __init__(self, group: Path) -> None:
        self._group = group
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, out: IO[bytes], err: IO[bytes]) -> int:
        joining = ("/bin/sh", "-c", _JOIN, str(self._group), *argv)
        self._process = _popen(joining, env, cwd, out, err)
        return self._process.pid

    def ended(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def cpu(self) -> float:
        usage = self._group / "cpuacct.usage"
        if usage.exists():
            return int(usage.read_text()) / 1e9
        facts = dict(line.split() for line in (self._group / "cpu.stat").read_text().splitlines())
        return int(facts["usage_usec"]) / 1e6

    def pids(self) -> frozenset[int]:
        return frozenset(map(int, (self._group / "cgroup.procs").read_text().split()))

    def close(self) -> None:
        for _ in range(100):
            with contextlib.suppress(OSError):
                return self._group.rmdir()
            time.sleep(0.05)


class ReaperAccount:
    """An account by waiting for every orphan. An orphan that nobody knows is taken by the newest account."""

    name = "reaper"
    _open: list[ReaperAccount] = []  # noqa: RUF012 - all accounts of this process share its children

    def __init__(self) -> None:
        _reap_orphans(True)
        self._not_mine = {pid for pid, parent in _parents().items() if parent == os.getpid()}
        self._root = 0
        self._known: set[int] = set()
        self._code: int | None = None
        self._dead = 0.0
        self._open.append(self)

    def start(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, out: IO[bytes], err: IO[bytes]) -> int:
        process = _popen(argv, env, cwd, out, err)
        process.returncode = 0  # waited for below, not by its destructor
        self._root = process.pid
        self._known.add(process.pid)
        return process.pid

    def ended(self) -> int | None:
        self._look()
        return self._code

    def cpu(self) -> float:
        self._look()
        return self._dead + sum(map(_living_cpu, self._known))

    def pids(self) -> frozenset[int]:
        self._look()
        return frozenset(self._known)

    def close(self) -> None:
        self._open.remove(self)
        if not self._open:
            _reap_orphans(False)

    def _look(self) -> None:
        parents = _parents()
        grown = True
        while grown:
            fresh = {pid for pid, parent in parents.items() if parent in self._known} - self._known
            self._known |= fresh
            grown = bool(fresh)
        if self._open[-1] is self:
            known = self._not_mine.union(*(account._known for account in self._open))
            self._known |= {pid for pid, parent in parents.items() if parent == os.getpid()} - known
        for pid in [pid for pid in self._known if parents.get(pid) == os.getpid()]:
            waited, status, usage = os.wait4(pid, os.WNOHANG)
            if waited:
                self._known.discard(pid)
                self._dead += _seconds(usage)
                if pid == self._root:
                    self._code = os.waitstatus_to_exitcode(status)
        self._known &= parents.keys()


def _reap_orphans(yes: bool) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)


def _popen(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, out: IO[bytes], err: IO[bytes]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
    )


def _seconds(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, beginning with the state; empty for a process that is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def _parents() -> dict[int, int]:
    found = {int(name): _stat(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    return {pid: int(fields[1]) for pid, fields in found.items() if fields}


def _living_cpu(pid: int) -> float:
    return sum(map(int, _stat(pid)[11:15])) / _TICK
