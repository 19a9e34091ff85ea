"""Files below one directory that no path and no link leads out of. Blocking; call it from a thread."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path


class Folder:
    """Reads and writes below `root`. Relative paths start there; absolute ones are taken if they lie inside.

    Raises PermissionError for what leads out, FileNotFoundError, IsADirectoryError, and OSError for what is
    neither file nor directory (a pipe would block its reader for ever).
    """

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)

    def read(self, path: str) -> bytes:
        with open(self._open(path, os.O_RDONLY), "rb") as file:
            return file.read()

    def write(self, path: str, data: bytes) -> None:
        """Replace the file's content, keeping its mode; missing parents are made."""
        self._make_parents(path)
        with open(self._open(path, os.O_WRONLY | os.O_CREAT), "wb") as file:
            file.truncate()
            file.write(data)

    def upload(self, source: Path, target: str) -> None:
        """Copy a file or a directory's content from outside; `target` is the copy's own name."""
        self._make_parents(target)
        copy(source, self._resolve(target))

    def download(self, source: str, target: Path) -> None:
        """Copy a file or a directory's content to the outside; `target` is the copy's own name."""
        target.parent.mkdir(parents=True, exist_ok=True)
        copy(self._resolve(source), target)

    def _make_parents(self, path: str) -> None:
        self._resolve(path).parent.mkdir(parents=True, exist_ok=True)

    def _open(self, path: str, flags: int) -> int:
        # What the path leads to is known and checked: a link put there since then is not followed.
        descriptor = os.open(self._resolve(path), flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            raise OSError(errno.EINVAL, "neither a file nor a directory", path)
        return descriptor

    def _resolve(self, path: str) -> Path:
        real = os.path.realpath(os.path.join(self._root, path))
        if not _inside(real, self._root):
            raise PermissionError(errno.EPERM, "leads out of the sandbox", path)
        return Path(real)


def copy(source: Path, target: Path) -> None:
    """Copy a file, or a directory's content into the directory `target`, with modes; links stay links.

    Raises PermissionError at a link that would lead out of the copy.
    """
    if source.is_dir():
        _copy_content(os.path.realpath(source), os.path.realpath(source), os.fspath(target))
    else:
        shutil.copy(source, target)


def export(source: Path, target: Path) -> None:
    """Copy a directory's content as it is: links wherever they lead, modes kept, pipes and devices left out."""
    target.mkdir(parents=True, exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            place = target / entry.name
            if entry.is_symlink():
                os.symlink(os.readlink(entry), place)
            elif entry.is_dir(follow_symlinks=False):
                export(Path(entry.path), place)
            elif entry.is_file(follow_symlinks=False):
                shutil.copy2(entry.path, place, follow_symlinks=False)
    shutil.copystat(source, target)


def remove(folder: Path) -> None:
    """Remove a directory that may be gone already, or hold directories that their maker locked."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except PermissionError:
        folder.chmod(stat.S_IRWXU)
        for parent, names, _ in os.walk(folder):
            for name in names:
                os.chmod(os.path.join(parent, name), stat.S_IRWXU)
        shutil.rmtree(folder)


def _copy_content(root: str, source: str, target: str) -> None:
    os.makedirs(target, exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            place = os.path.join(target, entry.name)
            if os.path.islink(place):
                os.unlink(place)  # never write through a link that waits in the target
            if entry.is_symlink():
                _check_link(root, entry)
                os.symlink(os.readlink(entry), place)
            elif entry.is_dir():
                _copy_content(root, entry.path, place)
            else:
                shutil.copy(entry, place)
    shutil.copymode(source, target)


def _check_link(root: str, link: os.DirEntry[str]) -> None:
    if os.path.isabs(os.readlink(link)) or not _inside(os.path.realpath(link.path), root):
        raise PermissionError(errno.EPERM, "a link that leads out of its directory is not copied", link.path)


def _inside(path: str, root: str) -> bool:
    return os.path.commonpath((path, root)) == root
