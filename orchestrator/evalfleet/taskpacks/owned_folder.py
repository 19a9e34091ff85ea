"""A temporary folder of this process, which who comes next removes once the process is proven dead. Blocking.

The proof is a lock on a file in the folder: the kernel drops it with the process, however that ended. A folder whose
lock can't be had, or that has none, is left alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
import weakref
from pathlib import Path

_LOCK = ".owner"


class OwnedFolder:
    """Made when it is first asked for, in each process anew, and removed when the process ends or this is let go of."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._making = threading.Lock()
        self._made: tuple[int, Path] | None = None

    def path(self) -> Path:
        """The folder. What dead processes left of the kind is removed before it is made."""
        with self._making:  # the first attempts ask for it at the same time, and all have to get the same one
            process = os.getpid()
            if self._made is None or self._made[0] != process:
                sweep(self._prefix)
                folder = Path(tempfile.mkdtemp(prefix=self._prefix))
                weakref.finalize(self, _leave, folder, _held(folder), process)
                self._made = process, folder
            return self._made[1]


def sweep(prefix: str) -> list[str]:
    """Remove the folders of dead processes; their names. Two who do so at once do no harm."""
    removed: list[str] = []
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # none of ours, of another user, or gone meanwhile
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder.name)
        finally:
            os.close(lock)
    return removed


def _held(folder: Path) -> int:
    """The lock of a folder, which has it from the moment at which it can be found there."""
    lock, aside = tempfile.mkstemp(dir=folder)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.replace(aside, folder / _LOCK)
    return lock


def _leave(folder: Path, lock: int, process: int) -> None:
    """Remove a folder; in a fork of its process, which has the same one, only let go of the lock."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
