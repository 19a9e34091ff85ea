"""Files as a tar that holds their names, modes and content, and nothing of who made it where."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path


def tar_of(files: Mapping[str, Path]) -> bytes:
    """The tar of files, folders and links by their name in it. Links stay links. Blocking. Raises OSError."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, path in files.items():
            info = tar.gettarinfo(path, arcname=name)
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            if info.isreg() or info.islnk():
                content = path.read_bytes()
                info.type, info.size = tarfile.REGTYPE, len(content)
                tar.addfile(info, io.BytesIO(content))
            elif info.isdir() or info.issym():
                tar.addfile(info)
    return stream.getvalue()
