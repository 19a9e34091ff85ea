from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def values(self) -> list[Any]:
        """Stdout as JSON, a document a line."""
        return [json.loads(line, parse_constant=pytest.fail) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Orchestrate:
    """The installed command, with a state directory and a record store of its own, and more `variables` if need be."""

    home: Path
    database_url: str = ""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def environment(self) -> dict[str, str]:
        dropped = ("EVALFLEET_", "RAY_", "XDG_STATE_HOME")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        own = {"EVALFLEET_HOME": str(self.home), "EVALFLEET_DATABASE_URL": self.database_url}
        return {**kept, **own, **self.variables}

    def start(self, *arguments: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        program = Path(sys.executable).with_name("orchestrate")
        return subprocess.Popen(
            [program, *arguments],
            cwd=cwd or self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, cwd: Path | None = None) -> Ended:
        with self.start(*arguments, cwd=cwd) as process:
            out, err = process.communicate(timeout=100)
        return Ended(process.returncode, out, err)


@pytest.fixture(scope="module")
def orchestrate() -> Iterator[Orchestrate]:
    with tempfile.TemporaryDirectory(prefix="evalfleet-", ignore_cleanup_errors=True) as home:
        yield Orchestrate(Path(home))
