"""Which paths lie in a workdir: files and links, without what is left out. Blocking; call it from a thread."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evalfleet.model.path_pattern import IgnoreRules

#: Files above this many bytes are known by their facts alone.
LARGE = 1 << 20
_LOOKED_AT = 8_000
#: Git takes no link of this name.
_REFUSED_LINK = ".gitmodules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a look at a workdir found, paths sorted.

    `unread` are files and folders that this process may not read, `binary` the large files that hold a NUL, `rules`
    says that there is a .gitignore.
    """

    paths: tuple[str, ...]
    unread: tuple[str, ...]
    binary: frozenset[str]
    rules: bool


def scan(root: Path, ignored: IgnoreRules) -> Scan:
    """Walk the workdir; pipes, sockets and devices have no content and are passed over. Raises OSError without one."""
    paths: list[str] = []
    unread: list[str] = []
    binary: list[str] = []
    rules = False
    for path, entry in _walk(root, ignored, unread):
        try:
            size = entry.stat(follow_symlinks=False).st_size
        except FileNotFoundError:  # gone since its folder was listed
            continue
        link = entry.is_symlink()
        if entry.name == _REFUSED_LINK if link else not os.access(entry.path, os.R_OK):
            unread.append(path)
            continue
        paths.append(path)
        rules = rules or entry.name == ".gitignore"
        if not link and size > LARGE and _holds_nul(entry.path):
            binary.append(path)
    return Scan(paths=tuple(sorted(paths)), unread=tuple(sorted(unread)), binary=frozenset(binary), rules=rules)


def _walk(root: Path, ignored: IgnoreRules, unread: list[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            entries = list(os.scandir(root / folder))
        except PermissionError:
            if not folder:
                raise
            unread.append(folder)
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if ignored.leave_out(path, entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)
            elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                yield path, entry


def _holds_nul(path: str) -> bool:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return b"\0" in file.read(_LOOKED_AT)
    except OSError:  # gone or replaced since it was seen: git will say what is there
        return False
