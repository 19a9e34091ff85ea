"""pydantic-evals: it stores nothing, so its report is written as JSON once at the end."""

from __future__ import annotations

from pathlib import Path

from bench.peers.base import SCRIPTS, Command, make_venv


class PydanticEvals:
    name = "pydantic-evals"
    version = "2.62.0"

    def __init__(self, peers: Path) -> None:
        self._folder = peers / "pydantic-evals"

    def install(self) -> None:
        make_venv(self._folder, f"pydantic-evals=={self.version}")

    def null(self, n: int, folder: Path) -> Command:
        return self._run(n, folder, "100", "0")

    def latent(self, n: int, lanes: int, folder: Path) -> Command:
        return self._run(n, folder, str(lanes), "0.2")

    def slow(self, n: int, log: Path, folder: Path) -> None:
        """A killed run leaves nothing to go on with."""
        return None

    def resume(self, n: int, log: Path, folder: Path) -> None:
        return None

    def _run(self, n: int, folder: Path, *more: str) -> Command:
        python = str(self._folder / "bin" / "python")
        return Command((python, str(SCRIPTS / "pydantic_evals_run.py"), str(n), str(folder), *more))
