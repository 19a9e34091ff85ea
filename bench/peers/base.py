"""What the bench needs of a peer, and how a Python one is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.measure import quiet

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True, slots=True)
class Command:
    """A command line of a peer with what its environment adds; `cwd` where it does not run just anywhere."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None


class Peer(Protocol):
    """One peer. `version` is the installed one; a command returns None where the peer has no such thing.

    Each takes a folder of its own, in which it may leave what it likes.
    """

    name: str
    version: str

    def install(self) -> None: ...

    def null(self, n: int, folder: Path) -> Command:
        """W1: n rows through an agent that answers at once, one containment check each."""
        ...

    def latent(self, n: int, lanes: int, folder: Path) -> Command:
        """W2: the same with an agent of 200 ms."""
        ...

    def slow(self, n: int, log: Path, folder: Path) -> Command | None:
        """W4: an agent of 5 ms, ten at a time, that logs each execution."""
        ...

    def resume(self, n: int, log: Path, folder: Path) -> Command | None: ...


def make_venv(folder: Path, *requirements: str) -> Path:
    """An environment with these packages, compiled; made once. Its Python."""
    python = folder / "bin" / "python"
    marker = folder / "installed"
    wanted = "\n".join(requirements)
    if marker.exists() and marker.read_text() == wanted:
        return python
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")}
    if shutil.which("uv"):
        quiet(("uv", "venv", "--quiet", "--clear", "--python", sys.executable, folder), env)
        quiet(("uv", "pip", "install", "--quiet", "--python", python, *requirements), env)
    else:
        quiet((sys.executable, "-m", "venv", "--clear", folder), env)
        quiet((python, "-m", "pip", "install", "--quiet", *requirements), env)
    # as ours is compiled; a package's template that is no Python may fail and does no harm
    subprocess.run([python, "-m", "compileall", "-q", "-j", "2", folder / "lib"], env=env, capture_output=True)
    marker.write_text(wanted)
    return python
