"""Which process an id means: a system gives the id of a dead one to another."""

from __future__ import annotations

from pathlib import Path


def start_of(pid: int) -> str | None:
    """When a living process of this machine began, in its kernel's ticks; None when there is none, or no such count."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]
