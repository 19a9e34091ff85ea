"""Files below one directory that no path and no link leads out of. Blocking; call it from a thread."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from evalfleet_sandboxes.anchored import Anchor, Owner, Spot, open_file, open_folder

#: What of a mode leaves or enters a sandbox: never the right to act as somebody else.
_MODE = 0o1777


class Folder:
    """Reads and writes below `root`, which nothing inside can move. Relative paths start there.

    Absolute ones are taken if they lie inside, by the name `seen` that the directory has for those in it. What is
    written belongs to `owner`, else to this process. Raises PermissionError for what leads out, FileNotFoundError,
    IsADirectoryError, and OSError for what is neither file nor directory (a pipe would block its reader for ever).
    """

    def __init__(self, root: Path, *, seen: str | None = None, owner: Owner | None = None) -> None:
        if seen is None:
            self._anchor = Anchor(os.path.realpath(root), (os.path.abspath(root), os.path.realpath(root)), owner)
        else:  # the root may lie in a mount namespace that only its own path, through /proc, leads to
            self._anchor = Anchor(os.path.abspath(root), (seen,), owner)

    def read(self, path: str) -> bytes:
        return self.piece(path)

    def piece(self, path: str, after: int = 0, size: int = -1) -> bytes:
        """At most `size` bytes from byte `after` on; all by default."""
        with self._anchor.spot(path) as spot, open(open_file(spot, path, os.O_RDONLY), "rb") as file:
            if after:
                file.seek(after)
            return file.read(size)

    def size(self, path: str) -> int:
        """The size of a file in bytes."""
        with self._anchor.spot(path) as spot, open(open_file(spot, path, os.O_RDONLY), "rb") as file:
            return os.fstat(file.fileno()).st_size

    def write(self, path: str, data: bytes) -> None:
        """Replace the file's content, keeping its mode; missing parents are made."""
        with self._anchor.spot(path, make=True) as spot, open(self._writable(spot, path), "wb") as file:
            file.write(data)

    def upload(self, source: Path, target: str) -> None:
        """Copy a file or a directory's content from outside; `target` is the copy's own name.

        Raises PermissionError at a link that would lead out of the copy.
        """
        with self._anchor.spot(target, make=True) as spot:
            if source.is_dir():
                self._bring(os.path.realpath(source), os.path.realpath(source), spot)
            else:
                self._bring_file(os.fspath(source), spot)

    def download(self, source: str, target: Path) -> None:
        """Copy a file or a directory's content to the outside; `target` is the copy's own name.

        Raises PermissionError at a link that would lead out of the copy.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._anchor.spot(source) as spot:
            try:
                folder = open_folder(spot)
            except NotADirectoryError:
                _take_file(spot, source, target)
                return
            _take(folder, target, _inner_links(folder))

    def export(self, target: Path) -> None:
        """Copy the whole directory as it is: links wherever they lead, modes kept, pipes and devices left out."""
        with self._anchor.spot(".") as spot:
            _take(open_folder(spot), target, _any_link)

    def _writable(self, spot: Spot, path: str) -> int:
        """A descriptor of an empty file, made or emptied."""
        with contextlib.suppress(FileExistsError):
            descriptor = open_file(spot, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            self._anchor.own(descriptor)
            return descriptor
        descriptor = open_file(spot, path, os.O_WRONLY)
        os.ftruncate(descriptor, 0)
        return descriptor

    def _bring(self, root: str, source: str, spot: Spot) -> None:
        """Copy the content of the directory `source`, part of `root`, into a directory of the sandbox."""
        self._anchor.make_folder(spot)
        folder = open_folder(spot)
        try:
            with os.scandir(source) as entries:
                for entry in entries:
                    place = Spot(folder, entry.name)
                    _unlink_link(place)  # never write through a link that waits in the target
                    if entry.is_symlink():
                        _check_link(root, entry)
                        self._bring_link(os.readlink(entry), place)
                    elif entry.is_dir():
                        self._bring(root, entry.path, place)
                    else:
                        self._bring_file(entry.path, place)
            os.chmod(folder, os.stat(source).st_mode & _MODE)
        finally:
            os.close(folder)

    def _bring_file(self, source: str, place: Spot) -> None:
        with open(source, "rb") as file, open(self._writable(place, place.name), "wb") as copied:
            shutil.copyfileobj(file, copied, 1 << 20)
            os.fchmod(copied.fileno(), os.fstat(file.fileno()).st_mode & _MODE)

    def _bring_link(self, target: str, place: Spot) -> None:
        os.symlink(target, place.name, dir_fd=place.parent)
        if self._anchor.owner is not None:
            owner = self._anchor.owner
            os.chown(place.name, owner.uid, owner.gid, dir_fd=place.parent, follow_symlinks=False)


#: Says whether a link may be copied: raises PermissionError. It gets the path of its folder below the copied one.
_LinkRule = Callable[[str, str, str], None]


def _take(folder: int, target: Path, rule: _LinkRule, below: str = ".") -> None:
    """Copy what the directory `folder` holds, which this closes, into `target` on the outside."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        with os.scandir(folder) as entries:
            for entry in entries:
                spot, place = Spot(folder, entry.name), target / entry.name
                if place.is_symlink():
                    place.unlink()  # never write through a link that waits in the target
                if entry.is_symlink():
                    link = os.readlink(entry.name, dir_fd=folder)
                    rule(below, entry.name, link)
                    place.symlink_to(link)
                elif entry.is_dir(follow_symlinks=False):
                    _take(open_folder(spot), place, rule, f"{below}/{entry.name}")
                elif entry.is_file(follow_symlinks=False):
                    _take_file(spot, entry.name, place)
        _take_facts(folder, target)
    finally:
        os.close(folder)


def _take_file(spot: Spot, path: str, target: Path) -> None:
    with open(open_file(spot, path, os.O_RDONLY), "rb") as file, target.open("wb") as copied:
        shutil.copyfileobj(file, copied, 1 << 20)
        _take_facts(file.fileno(), target)


def _take_facts(descriptor: int, target: Path) -> None:
    facts = os.fstat(descriptor)
    target.chmod(facts.st_mode & _MODE)
    os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def _any_link(below: str, name: str, link: str) -> None:
    """A link is copied wherever it leads."""


def _inner_links(folder: int) -> _LinkRule:
    """Refuse a link that leads out of the directory `folder`."""
    anchor = Anchor(folder, ())

    def rule(below: str, name: str, link: str) -> None:
        try:
            with anchor.spot(f"{below}/{link}" if not os.path.isabs(link) else link):
                return
        except PermissionError:
            message = "a link that leads out of its directory is not copied"
            raise PermissionError(errno.EPERM, message, name) from None
        except OSError:
            return  # it leads nowhere, which is inside

    return rule


def _check_link(root: str, link: os.DirEntry[str]) -> None:
    target = os.path.realpath(link.path)
    if os.path.isabs(os.readlink(link)) or os.path.commonpath((target, root)) != root:
        raise PermissionError(errno.EPERM, "a link that leads out of its directory is not copied", link.path)


def _unlink_link(place: Spot) -> None:
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISLNK(os.stat(place.name, dir_fd=place.parent, follow_symlinks=False).st_mode):
            os.unlink(place.name, dir_fd=place.parent)
