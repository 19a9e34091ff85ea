"""What a run was planned with: git revision, uncommitted changes, interpreter and package versions."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalfleet.errors import ConfigurationError
from evalfleet.model.ids import sha256
from evalfleet.plugins import installed_packages
from evalfleet.sandbox_ports import Command, CommandResult, Spawner

COMMAND_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Runs short commands in the project. `env` is the environment they get."""

    spawner: Spawner
    env: Mapping[str, str]
    folder: Path

    async def run(self, *argv: str) -> CommandResult | None:
        """How the command ended, None when there is no such program."""
        command = Command(argv=argv, cwd=str(self.folder), timeout=COMMAND_SECONDS)
        try:
            return await self.spawner.run(command, base_env=self.env)
        except OSError:
            return None

    async def output(self, script: str) -> str:
        """What a shell script prints, without the final newline. Raises ConfigurationError unless it succeeds."""
        result = await self.run("/bin/sh", "-c", script)
        if result is None or not result.ok:
            ended = "can't be started" if result is None else _ended(result)
            raise ConfigurationError(f"the command {script!r} {ended}")
        text = result.text.rstrip("\n")
        if not text:
            raise ConfigurationError(f"the command {script!r} prints nothing")
        return text


async def project_lock(commands: Commands) -> dict[str, Any]:
    """The project's state as JSON: `git` (revision, `dirty` digest or None), `python`, `packages`."""
    return {
        "git": await _git(commands),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": installed_packages(),
    }


async def _git(commands: Commands) -> dict[str, Any] | None:
    head = await commands.run("git", "rev-parse", "HEAD")
    if head is None or not head.ok:
        return None
    status = await commands.run("git", "status", "--porcelain=v1", "-z", "--untracked-files=normal")
    if status is None or not status.ok:
        return {"revision": head.text.strip(), "dirty": None}
    if not status.stdout_bytes:
        return {"revision": head.text.strip(), "dirty": None}
    diff = await commands.run("git", "diff", "HEAD", "--binary", "--no-ext-diff", "--no-color")
    changes = diff.stdout if diff is not None else b""
    return {"revision": head.text.strip(), "dirty": sha256(status.stdout + changes)}


def _ended(result: CommandResult) -> str:
    if result.timed_out:
        return f"took longer than {COMMAND_SECONDS:g} s"
    stderr = result.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"failed with exit code {result.exit_code}" + (f": {stderr[-1]}" if stderr else "")
