"""What one process follows the workdirs of its sandboxes with."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from evalfleet.execution.git import GitTool
from evalfleet.execution.private_folders import PrivateFolders
from evalfleet.processes import process_alive
from evalfleet.sandbox_ports import Spawner
from evalfleet.settings import engine_environment


def git_tool(state_dir: Path, spawner: Spawner) -> GitTool:
    """Git with its private folders below the state folder, from which those of dead processes go first."""
    folders = PrivateFolders(state_dir / "changes", socket.gethostname(), os.getpid())
    folders.sweep(process_alive)
    return GitTool(spawner=spawner, environment=engine_environment(), folders=folders)
