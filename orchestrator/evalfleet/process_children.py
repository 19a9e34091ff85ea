"""The children of a process that holds trees together: to hear of their deaths, to collect them, to end them all.

It stands on the standard library alone and little of that, since the launcher is forked with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
from collections.abc import Collection

_LINUX = sys.platform == "linux"
_PR_SET_CHILD_SUBREAPER = 36
_prctl = ctypes.CDLL(None).prctl if _LINUX else None
#: A handler, not SIG_IGN, which commands would inherit.
_SHRUGGED_OFF = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
#: How long the rest of a tree may take to die by itself before it is looked for.
_DEATH_MILLISECONDS = 50


def adopt_orphans() -> None:
    """Become the parent of whatever our children leave behind."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def shrug(*_: object) -> None:
    """A signal handler that only wakes the poll."""


def shrug_off_all() -> None:
    """Let no signal end this process that commands may send to their parent."""
    for number in _SHRUGGED_OFF:
        signal.signal(number, shrug)


def wake_on_child() -> int:
    """A descriptor that becomes readable when a child of this process ends; forks need one of their own."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    return woken


def poll(*descriptors: int | None) -> select.poll:
    """To wait until one of the descriptors can be read."""
    events = select.poll()
    for descriptor in descriptors:
        if descriptor is not None:
            events.register(descriptor, select.POLLIN)
    return events


def collect_dead() -> tuple[list[tuple[int, int]], bool]:
    """Pid and wait status of each child that has died, and whether any other child is left."""
    dead: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return dead, False
        if pid == 0:
            return dead, True
        dead.append((pid, status))


def end_children(woken: int | None = None, patience: int = _DEATH_MILLISECONDS, spare: Collection[int] = ()) -> None:
    """Kill until nothing is left but `spare`. Each death hands the dead one's own children to us.

    With `woken` the rest dies by itself, as a rule: it is looked for, which comes dear, when nothing died for so
    many milliseconds.
    """
    while collect_dead()[1] and any_child(spare):
        if woken is None or not poll(woken).poll(patience):
            kill_children(spare)
            os.waitpid(-1, 0)
        else:
            os.read(woken, 512)


def any_child(spare: Collection[int] = ()) -> bool:
    """Whether one of the children that are left is not of `spare`."""
    return not spare or any(child not in spare for child, _ in _children())


def kill_children(spare: Collection[int] = ()) -> None:
    """SIGKILL all children but `spare`, each with its whole process group."""
    own_group = os.getpgrp()
    for child, group in _children():
        if child not in spare:
            if group != own_group:  # a child of a spawn that has not reached setsid yet is in ours
                kill(-group)
            kill(child)


def kill(target: int) -> None:
    """SIGKILL a process, or a group by its negative."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # not ours to kill: the worker will see it live on
        os.kill(target, signal.SIGKILL)


def _children() -> list[tuple[int, int]]:
    """Pid and process group of each child of this process, zombies included."""
    if not _LINUX:
        return []
    me = os.getpid()
    found: list[tuple[int, int]] = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == me:
            found.append((int(name), int(fields[2])))
    return found
