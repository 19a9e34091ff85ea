"""Places where a test wants this very process killed."""

from __future__ import annotations

import os
import signal


class Failpoints:
    """Kills this process at the place it is armed for: `after_copy`, or `after_copy:3` for the third time there.

    `after_copy:3@/tmp/armed/fired` kills only one process of a run, though each of them is armed alike: from the
    third time on, the one that makes that file. Until its folder exists nobody can.
    """

    def __init__(self, armed: str | None) -> None:
        place, _, self._marker = (armed or "").partition("@")
        name, _, times = place.partition(":")
        self._name = name
        self._left = int(times or 1)

    def __call__(self, name: str) -> None:
        """Pass the place `name`. Does not return when this is the armed time."""
        if name != self._name:
            return
        self._left -= 1
        due = self._left <= 0 and _made(self._marker) if self._marker else self._left == 0
        if due:
            os.kill(os.getpid(), signal.SIGKILL)


def _made(marker: str) -> bool:
    """Whether this process, and no other before it, made the file."""
    try:
        os.close(os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except (FileExistsError, FileNotFoundError):
        return False
    return True
