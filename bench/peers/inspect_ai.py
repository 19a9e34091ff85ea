"""Inspect AI: a task of its own solver without a model, default log format, realtime log and all."""

from __future__ import annotations

from pathlib import Path

from bench.peers.base import SCRIPTS, Command, make_venv

_QUIET = {"INSPECT_DISPLAY": "none"}


class InspectAI:
    name = "inspect"
    version = "0.3.285"

    def __init__(self, peers: Path) -> None:
        self._folder = peers / "inspect"

    @property
    def python(self) -> Path:
        return self._folder / "bin" / "python"

    def install(self) -> None:
        make_venv(self._folder, f"inspect-ai=={self.version}")

    def null(self, n: int, folder: Path) -> Command:
        return self._run("null", n, folder)

    def latent(self, n: int, lanes: int, folder: Path) -> Command:
        return self._run("latent", n, folder, str(lanes))

    def slow(self, n: int, log: Path, folder: Path) -> Command:
        return self._run("slow", n, folder, "10", str(log))

    def resume(self, n: int, log: Path, folder: Path) -> Command:
        return self.slow(n, log, folder)

    def shell(self, n: int, lanes: int, folder: Path) -> Command:
        """W3: three commands a row in a sandbox of its own, which isolates nothing."""
        return self._run("shell", n, folder, str(lanes))

    def read(self, what: str, folder: Path) -> Command:
        """Open the log that `null` left in `folder`: its header, or all of it."""
        return Command((str(self.python), str(SCRIPTS / "inspect_read.py"), what, str(folder)), _QUIET)

    def _run(self, mode: str, n: int, folder: Path, *more: str) -> Command:
        argv = (str(self.python), str(SCRIPTS / "inspect_run.py"), mode, str(n), str(folder), *more)
        return Command(argv, _QUIET)
