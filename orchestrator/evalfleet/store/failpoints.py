"""Places where a test wants this very process killed."""

from __future__ import annotations

import os
import signal


class Failpoints:
    """Kills this process at the place it is armed for: `after_copy`, or `after_copy:3` for the third time there."""

    def __init__(self, armed: str | None) -> None:
        name, _, times = (armed or "").partition(":")
        self._name = name
        self._left = int(times or 1)

    def __call__(self, name: str) -> None:
        """Pass the place `name`. Does not return when this is the armed time."""
        if name != self._name:
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
