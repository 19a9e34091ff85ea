"""`orchestrate` as a process that a drill watches and kills."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

PROGRAM = Path(sys.executable).with_name("orchestrate")
#: Of a Ray that is joined, and of who joins it: what lies in this user's home doesn't matter.
AUTHENTICATION = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "of-the-joined-ray" * 4}
RUN = re.compile(r"^run (\w+)\n", re.MULTILINE)


@dataclass(frozen=True)
class Surroundings:
    """What a drilled command sees: a state directory of its own and, if it is to join them, a store and a Ray."""

    home: Path
    database_url: str = ""
    address: str | None = None

    def environment(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("EVALFLEET_", "RAY_", "XDG_STATE_HOME"))}
        joined = {} if self.address is None else AUTHENTICATION
        ours = {"EVALFLEET_HOME": str(self.home), "EVALFLEET_DATABASE_URL": self.database_url}
        return {**kept, **joined, **ours, **more}


class Command:
    """One running `orchestrate`; its output is kept in files beside the project."""

    def __init__(self, process: asyncio.subprocess.Process, out: Path, err: Path) -> None:
        self._process = process
        self._out = out
        self._err = err

    @classmethod
    async def started(
        cls, surroundings: Surroundings, folder: Path, *arguments: str, env: Mapping[str, str] | None = None
    ) -> Self:
        """Start `orchestrate ARGUMENTS` in `folder`, in a session of its own."""
        number = len(list(folder.glob("*.out")))
        out, err = folder / f"{number}.out", folder / f"{number}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                PROGRAM,
                *arguments,
                cwd=folder,
                env=surroundings.environment(**(env or {})),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        return cls(process, out, err)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def over(self) -> bool:
        return self._process.returncode is not None

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def ended(self, seconds: float = 240.0) -> int:
        """The exit code, or minus the signal. Killed when it takes longer."""
        try:
            async with asyncio.timeout(seconds):
                return await self._process.wait()
        except TimeoutError:
            self.send(signal.SIGKILL)
            await self._process.wait()
            raise AssertionError(f"orchestrate did not end within {seconds:.0f} s; it said: {self.said}") from None

    @property
    def said(self) -> str:
        return self._err.read_text()

    @property
    def printed(self) -> str:
        return self._out.read_text()

    @property
    def value(self) -> dict[str, Any]:
        """What `--json` printed last."""
        return json.loads(self.printed.splitlines()[-1])

    async def run_id(self) -> str:
        """The id of the run that a `submit` made, as soon as it says so."""
        while True:
            if (line := RUN.search(self.said)) is not None:
                return line[1]
            if self.over:
                raise AssertionError(f"orchestrate ended with {self._process.returncode}: {self.said or self.printed}")
            await asyncio.sleep(0.01)
