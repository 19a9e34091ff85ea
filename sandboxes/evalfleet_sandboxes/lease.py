"""An owner's directory on this machine, and how others see whether its process lives. Blocking: for a thread."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from urllib.parse import quote, unquote

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.sandbox_ports import FoundSandbox
from evalfleet_sandboxes.removing import remove

#: How often, and how far apart in seconds, a lock that is held is tried again.
_LOOKS, _LOOK_SECONDS = 50, 0.01
#: What stands in the lock of a directory that was left on purpose, behind the id of the process that left it.
_KEPT = "kept"


class Lease:
    """An owner's directory, held by a lock on a file beside it that the kernel drops when this process dies."""

    def __init__(self, state: Path, owner: str) -> None:
        name = quote(owner, safe="").replace(".", "%2E")  # a lock's name is the only one with a dot
        self.root = state.absolute() / name
        self._owner = owner
        self._lock = self.root.parent / f"{name}.lock"
        self._held: int | None = None

    @property
    def held(self) -> bool:
        return self._held is not None

    def take(self) -> None:
        """Make the directory, empty. Raises AttemptFailure SANDBOX_EXISTS when someone else holds it.

        Somebody who only looks whether its owner lives holds the lock for a moment, too.
        """
        for _ in range(_LOOKS):
            self._held = _try_lock(self._lock)
            if self._held is not None:
                break
            threading.Event().wait(_LOOK_SECONDS)
        if self._held is None:
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_EXISTS", f"{self._owner} has a sandbox here already")
        length = os.pwrite(self._held, str(os.getpid()).encode(), 0)
        if os.fstat(self._held).st_size > length:  # a file that is emptied first is written to disk when it is closed
            os.ftruncate(self._held, length)
        try:
            os.mkdir(self.root, 0o700)
        except FileExistsError:
            remove(self.root)  # of an earlier life of this owner
            os.mkdir(self.root, 0o700)

    def release(self) -> None:
        """Remove the directory, then the lock. May be called twice, or without having taken it."""
        if self._held is not None:
            remove(self.root)
            self._lock.unlink(missing_ok=True)
            os.close(self._held)
            self._held = None

    def keep(self) -> None:
        """Let go of the lock and leave the directory to who comes later, marked as kept."""
        if self._held is not None:
            os.pwrite(self._held, f"{os.getpid()} {_KEPT}".encode(), 0)
            os.close(self._held)
            self._held = None


def found_leases(state: Path, host: str) -> list[FoundSandbox]:
    """The directories below `state` with their owners; a lock that can be had belongs to a dead process."""
    found: list[FoundSandbox] = []
    for lock in sorted(state.glob("*.lock")):
        try:
            created, text = lock.stat().st_mtime, lock.read_text(encoding="ascii", errors="replace")
        except FileNotFoundError:
            continue
        pid, _, mark = text.partition(" ")
        held = _try_lock(lock, create=False)
        if held is not None:
            os.close(held)
        found.append(
            FoundSandbox(
                id=lock.stem,
                owner=unquote(lock.stem),
                host=host,
                pid=int(pid) if pid.isdecimal() else 0,
                created_at=created,
                alive=held is None,
                kept=mark == _KEPT,
            )
        )
    return found


def reap_lease(state: Path, identifier: str) -> bool:
    """Remove the directory of a dead process, and say so; one that lives keeps it."""
    lock = state / f"{identifier}.lock"
    held = _try_lock(lock, create=False)
    if held is None:
        return False
    remove(lock.with_suffix(""))
    lock.unlink(missing_ok=True)
    os.close(held)
    return True


def _try_lock(lock: Path, *, create: bool = True) -> int | None:
    """The descriptor that holds the lock file; None when someone else does, or there is none to be had."""
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
        except FileNotFoundError:
            if not create:
                return None
            lock.parent.mkdir(parents=True, exist_ok=True)
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        os.close(descriptor)  # its holder removed it between our two looks: that one locks nothing
