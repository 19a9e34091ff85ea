"""Tars of files that a sandbox gets or gives. Blocking; call it from a thread.

A tar from a sandbox is hostile until proven otherwise: it is unpacked into an empty directory by rules of its own.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

_FILE_MODES = 0o777


def packed(source: Path, owner: tuple[int, int] | None = None) -> tuple[bytes, tuple[str, ...]]:
    """The tar of a directory's content, and its folders, parents first. Links stay links.

    With `owner`, a user's and a group's id, it is for an engine, which keeps them; else for whatever tar there is.
    Raises PermissionError at a link that leads out of the directory.
    """
    root = os.path.realpath(source)
    folders: list[str] = []
    stream = io.BytesIO()
    # small tars don't read the one format, podman does not read long names of the other
    form = tarfile.GNU_FORMAT if owner is None else tarfile.PAX_FORMAT
    with tarfile.open(fileobj=stream, mode="w", format=form) as tar:
        for path, name in _tree(root, ""):
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                continue
            info = tar.gettarinfo(path, arcname=name)
            info.uid, info.gid = owner or (0, 0)
            info.uname = info.gname = ""
            if info.isdir():
                folders.append(name)
                tar.addfile(info)
            elif info.issym():
                _check_link(root, path)
                tar.addfile(info)
            elif info.isreg() or info.islnk():
                info.type = tarfile.REGTYPE
                info.size = os.stat(path).st_size
                with open(path, "rb") as file:
                    tar.addfile(info, file)
    return stream.getvalue(), tuple(folders)


def unpack(archive: Path, offset: int, target: Path) -> None:
    """Unpack the tar that starts at byte `offset` of a file into the empty directory `target`.

    Links are made last and never followed; pipes and devices are left out; modes are kept, owners are not. Raises
    PermissionError for a name that leads out, OSError when it is no tar.
    """
    target.mkdir(parents=True, exist_ok=True)
    links: list[tuple[Path, str]] = []
    folders: list[tuple[Path, int, float]] = []
    try:
        with archive.open("rb") as file:
            file.seek(offset)
            with tarfile.open(fileobj=file, mode="r:") as tar:
                for member in tar:
                    place = _placed(target, member.name)
                    if member.isdir():
                        place.mkdir(parents=True, exist_ok=True)
                        folders.append((place, member.mode, member.mtime))
                    elif member.issym():
                        links.append((place, member.linkname))
                    elif member.islnk():
                        _same_file(target, member, place)
                    elif member.isreg():
                        _write(tar, member, place)
    except tarfile.TarError as error:
        raise OSError(errno.EIO, f"what the sandbox sent is no tar: {error}") from error
    for place, aim in links:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(aim)
    for place, mode, time in reversed(folders):
        place.chmod(mode & _FILE_MODES)
        os.utime(place, (time, time))


def _tree(folder: str, prefix: str) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            name = f"{prefix}{entry.name}"
            yield entry.path, name
            if entry.is_dir(follow_symlinks=False):
                yield from _tree(entry.path, f"{name}/")


def _check_link(root: str, path: str) -> None:
    inside = os.path.commonpath((os.path.realpath(path), root)) == root
    if os.path.isabs(os.readlink(path)) or not inside:
        raise PermissionError(errno.EPERM, "a link that leads out of its directory is not copied", path)


def _placed(target: Path, name: str) -> Path:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or name.startswith("/"):
        raise PermissionError(errno.EPERM, "leads out of the sandbox's own directory", name)
    return target.joinpath(*parts)


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    content = tar.extractfile(member)
    if content is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
        with content, place.open("xb") as file:
            shutil.copyfileobj(content, file)
        place.chmod(stat.S_IMODE(member.mode) & _FILE_MODES)
        os.utime(place, (member.mtime, member.mtime))


def _same_file(target: Path, member: tarfile.TarInfo, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(_placed(target, member.linkname), place, follow_symlinks=False)
