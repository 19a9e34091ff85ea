"""Programs that a command did not find in its sandbox although this machine has them: said, since it puzzles people."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator

#: How shells and `env` name a program that they don't find; of what a command wrote last, so many bytes are looked at.
_NAMED = re.compile(
    rb"(?:^|: )['\x60\xe2\x80\x98]*([\w./+-]+)['\xe2\x80\x99]*: (?:(?:command )?not found|No such file or directory)$",
    re.MULTILINE,
)
_LOOKED_AT = 4000
_MOST = 8


def missing_programs(program: str, stderr: bytes) -> Iterator[str]:
    """What a command that ended with exit code 127 may have looked for: `program`, and what its stderr names. Pure.

    Relative paths are left out: they are of the sandbox's own workdir.
    """
    named = [found.decode() for found in _NAMED.findall(stderr[-_LOOKED_AT:])]
    for name in list(dict.fromkeys([program, *named]))[:_MOST]:
        if name.startswith("/") or "/" not in name:
            yield name


def on_this_machine(name: str, path: str) -> str | None:
    """The file that the name is here, where `path` are the folders to search; None when there is none. Blocking."""
    found = shutil.which(name, path=path)
    return None if found is None else os.path.abspath(found)
