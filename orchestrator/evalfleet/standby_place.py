"""Where the standby of `orchestrate up` listens."""

from __future__ import annotations

from pathlib import Path

from evalfleet.settings import Settings
from evalfleet.socket_places import socket_folder

_NAME = "standby.sock"


def standby_socket(settings: Settings) -> Path:
    """Its socket, which is there only while a command line may be handed over."""
    return socket_folder(settings.state_dir / "up", _NAME) / _NAME
