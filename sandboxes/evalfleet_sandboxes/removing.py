"""Removing a directory whose makers are dead and were never trusted: locked, deep, linked to anywhere. Blocking."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

R = TypeVar("R")

#: How many directories deep it goes, and how long a path it names; what lies deeper is moved up and goes later.
_DEEPEST, _LONGEST = 50, 2000


def remove(folder: Path) -> None:
    """Remove a directory, unless it is gone already. Follows no link. Raises OSError when something stays."""
    if os.path.lexists(folder):
        empty(folder)
        os.rmdir(folder)


def empty(folder: Path) -> None:
    """Remove all that is in a directory. Follows no link. Raises OSError when something stays."""
    root = os.path.abspath(folder)
    places = (f"{root}/{number}" for number in itertools.count())
    while _clear(root, 0, places):
        pass


def _clear(folder: str, depth: int, places: Iterator[str]) -> bool:
    """Remove what is in a directory; whether something was moved to one of the places instead."""
    moved = False
    for entry in _unlocked(folder, _listed, folder):
        if not entry.is_dir(follow_symlinks=False):
            _unlocked(folder, os.unlink, entry.path)
        elif depth < _DEEPEST and len(entry.path) < _LONGEST:
            moved |= _clear(entry.path, depth + 1, places)
            _unlocked(folder, os.rmdir, entry.path)
        else:
            os.chmod(entry.path, stat.S_IRWXU)  # a directory that can't be written in can't be moved either
            _unlocked(folder, lambda deep: os.rename(deep, _free(places)), entry.path)
            moved = True
    return moved


def _unlocked(folder: str, action: Callable[[str], R], path: str) -> R:
    """Do something in a directory that its maker may have locked."""
    try:
        return action(path)
    except PermissionError:
        os.chmod(folder, stat.S_IRWXU)
        return action(path)


def _listed(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


def _free(places: Iterator[str]) -> str:
    return next(place for place in places if not os.path.lexists(place))
