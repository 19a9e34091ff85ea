"""What one process follows the workdirs of its sandboxes with."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from evalfleet.errors import ConfigurationError
from evalfleet.execution.git import GitTool
from evalfleet.execution.private_folders import PrivateFolders
from evalfleet.processes import process_alive
from evalfleet.sandbox_ports import Spawner
from evalfleet.settings import engine_environment

if TYPE_CHECKING:
    from evalfleet.planning.plan import Plan


def git_tool(state_dir: Path, spawner: Spawner) -> GitTool:
    """Git with its private folders below the state folder, from which those of dead processes go first."""
    folders = PrivateFolders(state_dir / "changes", socket.gethostname(), os.getpid())
    folders.sweep(process_alive)
    return GitTool(spawner=spawner, environment=engine_environment(), folders=folders)


def check_git(plan: Plan) -> None:
    """Raises ConfigurationError when evals of the plan follow their workdirs and this machine has no git."""
    follows = any(spec is not None and spec.changes is not None for spec in plan.sandboxes.values())
    if follows and shutil.which("git", path=engine_environment().get("PATH")) is None:
        raise ConfigurationError("an eval follows the changes in its sandbox, which takes git: install git")
