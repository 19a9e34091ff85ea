"""Stops the embedded server when no client is left: a script of its own, so that it costs nothing to keep.

Run as `python -I -S watchdog.py DIRECTORY SOCKET`; imports the standard library only. Clients hold a shared lock
on `clients.lock` while they live, so one that was killed counts no longer than one that left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
from pathlib import Path

#: The server goes after this many looks, a second apart, without a client.
_IDLE_LOOKS = 3
_STOP_SECONDS = 60
_LOOK_SECONDS = 1.0
_STOP_LOOK_SECONDS = 0.02


def answers(path: str) -> bool:
    """Whether a server accepts connections on the socket at `path`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def try_lock(descriptor: int) -> bool:
    """Take the exclusive lock if nobody stands in the way."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def postmaster(directory: Path) -> int | None:
    """The process id in the server's pid file, None without one."""
    try:
        return int((directory / "data" / "postmaster.pid").read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None


def works_in(pid: int, data: Path) -> bool | None:
    """Whether a process works in `data`, as a Postgres of it does; None when that can't be told.

    The dead work nowhere, also those that nobody has reaped.
    """
    if sys.platform != "linux":
        return None
    try:
        return Path(f"/proc/{pid}/cwd").samefile(data)
    except FileNotFoundError:
        return False
    except PermissionError:
        return None


def lives(directory: Path, path: str) -> bool:
    """Whether a server of this directory lives: it may be coming up still, or going down."""
    pid = postmaster(directory)
    return answers(path) or (pid is not None and works_in(pid, directory / "data") is True)


def stop(directory: Path, path: str) -> None:
    """Shut the server down cleanly and wait for it; by force after a minute."""
    pid = postmaster(directory)
    if pid is None or not lives(directory, path):
        return
    for how in (signal.SIGINT, signal.SIGQUIT):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)
        for _ in range(int(_STOP_SECONDS / _STOP_LOOK_SECONDS)):
            if postmaster(directory) != pid:
                return
            select.select((), (), (), _STOP_LOOK_SECONDS)


def main(directory: Path, path: str) -> None:
    own = os.open(directory / "watchdog.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not try_lock(own):
        return
    clients = os.open(directory / "clients.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    idle = 0
    while idle < _IDLE_LOOKS:
        select.select((), (), (), _LOOK_SECONDS)
        if not try_lock(clients):
            idle = 0
            continue
        idle += 1
        if idle < _IDLE_LOOKS:
            fcntl.flock(clients, fcntl.LOCK_UN)
    # a client that comes now waits for its shared lock, then finds neither server nor watchdog and starts both
    stop(directory, path)
    os.close(own)
    os.close(clients)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
