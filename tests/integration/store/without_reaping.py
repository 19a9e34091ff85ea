"""Run a command and adopt all that it leaves behind, but reap none of it: `python without_reaping.py COMMAND…`.

As the first process of many a container does, for a second or for ever. Killed, it leaves its zombies to the next one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_SET_CHILD_SUBREAPER = 36


def main(command: list[str]) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.fork() == 0:
        os.execvp(command[0], command)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
