"""Lock files of a killed Postgres: the process they name is a zombie, nobody, or somebody else by now."""

from __future__ import annotations

import contextlib
from pathlib import Path

from evalfleet.store.watchdog import works_in

#: A process id that no system gives.
_NOBODY = 2**31 - 1


def disown(lock_file: Path, data: Path) -> None:
    """Strike a process out of its lock file if it is dead or no Postgres of `data`; without a file nothing happens.

    What else the file says is kept: from it Postgres learns whether children of the dead server still use its
    memory, and it doesn't start as long as they do.
    """
    # what was read is what is written to: a server that starts meanwhile puts a file of its own in its place
    with contextlib.suppress(FileNotFoundError, PermissionError), lock_file.open("r+") as file:
        pid, _, rest = file.read().partition("\n")
        if pid.isdecimal() and works_in(int(pid), data) is False:
            file.seek(0)
            file.write(f"{_NOBODY}\n{rest}")
