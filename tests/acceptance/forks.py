"""`orchestrate` in processes of its own that skip its imports: most of what a short command costs is those."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Self

from tests.acceptance.cli.conftest import Ended, Orchestrate

_SERVER = Path(__file__).with_name("fork_server.py")
#: What no page of the documents and no test in `cli/` or `quickstart/` starts as installed is never forked.
_NOT_FORKED = ("cancel", "delete", "export", "import", "judge", "sandbox")


class Forks:
    """A server that forks; started for the first command, gone with the block. Any thread may ask it."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with theirs:
            self._server = subprocess.Popen([sys.executable, _SERVER], stdin=theirs.fileno(), env=own)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._control.close()
        self._server.wait()

    def run(self, request: dict[str, object]) -> Ended:
        """Wait for the command; one that takes longer than 100 seconds is killed."""
        with (
            TemporaryFile("w+", encoding="utf-8") as asked,
            TemporaryFile("w+", encoding="utf-8") as out,
            TemporaryFile("w+", encoding="utf-8") as err,
        ):
            json.dump(request, asked)
            asked.seek(0)
            told, tell = os.pipe()
            with os.fdopen(told) as end:
                try:
                    socket.send_fds(self._control, [b"!"], [asked.fileno(), out.fileno(), err.fileno(), tell])
                finally:
                    os.close(tell)
                code = int(end.read())
            out.seek(0)
            err.seek(0)
            return Ended(code, out.read(), err.read())


@dataclass(frozen=True, kw_only=True)
class Forked(Orchestrate):
    """The command as a fork; of what Python itself reads when it starts, one heeds PYTHONPATH alone.

    What is started to be watched or killed is the installed one, as always.
    """

    forks: Forks

    def __call__(self, *arguments: str, cwd: Path | None = None) -> Ended:
        if arguments[0] in _NOT_FORKED:
            return super().__call__(*arguments, cwd=cwd)
        where = {"cwd": str(cwd or self.home), "environment": self.environment}
        return self.forks.run({"arguments": arguments, **where})
