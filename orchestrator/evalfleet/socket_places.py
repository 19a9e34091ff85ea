"""Where a unix socket of ours stands: its path is bounded by the system, and nobody else may put one there."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from evalfleet.errors import ConfigurationError

#: Bytes, a little below what any system allows.
_LIMIT = 100


def socket_folder(wanted: Path, name: str) -> Path:
    """`wanted`, or a short path that stands for it when that of a socket `name` in it would be too long."""
    if len(os.fsencode(wanted / name)) < _LIMIT:
        return wanted
    digest = hashlib.sha256(os.fsencode(wanted.parent)).hexdigest()[:12]
    return Path("/tmp") / f"evalfleet-{os.geteuid()}-{digest}"


def is_ours(folder: Path, *, or_of: int | None = None) -> bool:
    """Whether nobody but us, or the user `or_of`, can write there. Raises OSError when there is no such folder."""
    owner = folder.stat()
    return not (folder.is_symlink() or owner.st_mode & 0o077 or owner.st_uid not in (os.geteuid(), or_of))


def make_ours(folder: Path, otherwise: str, *, or_of: int | None = None) -> None:
    """Make the folder when it is absent. Raises ConfigurationError with what to do `otherwise` when it is not ours."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_ours(folder, or_of=or_of):
        raise ConfigurationError(f"{folder} belongs to somebody else; remove it, or {otherwise}")
