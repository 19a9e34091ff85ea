"""Folders that only this process uses, and what dead processes of this machine left of theirs. Blocking."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PrivateFolders:
    """Below `root`, which processes of several machines may share, each folder names its maker."""

    root: Path
    host: str
    pid: int

    def make(self) -> tempfile.TemporaryDirectory[str]:
        """An empty folder that only this user may enter, and that goes whatever modes its content has."""
        self.root.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix=self._prefix(self.pid), dir=self.root, ignore_cleanup_errors=True)

    def sweep(self, alive: Callable[[int], bool]) -> int:
        """Remove what processes of this machine left that are not alive any more; how many folders."""
        swept = 0
        for folder in self.root.glob(f"{_plain(self.host)}~*"):
            pid = folder.name.split("~")[1]
            if pid.isdecimal() and not alive(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)
                swept += 1
        return swept

    def _prefix(self, pid: int) -> str:
        return f"{_plain(self.host)}~{pid}~"


def _plain(host: str) -> str:
    """A host name as part of a file's name and of a pattern."""
    return "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in host)
