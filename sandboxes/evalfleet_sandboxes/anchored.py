"""Finding files below one directory by descriptors: whoever moves and links things there meanwhile leads nobody out.

Blocking; call it from a thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

#: As many links as the kernel follows in one path.
_MOST_LINKS = 40
#: To pass through a directory, which needs no right to read it; macOS has no such descriptors.
PASSING = (os.O_PATH if sys.platform == "linux" else os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
#: Opening never follows a link and never waits for the other end of a pipe.
SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Owner:
    """To whom everything that is made belongs."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Spot:
    """What a path leads to: `name`, which is no link, in the directory `parent`; "." is `parent` itself."""

    parent: int
    name: str


@dataclass(frozen=True, slots=True)
class Anchor:
    """The directory `root`, a path that nobody else may move or a descriptor. `seen` are its absolute paths inside.

    Relative paths start there, absolute ones and links are taken if they stay below. What is made belongs to
    `owner`, else to this process.
    """

    root: str | int
    seen: tuple[str, ...]
    owner: Owner | None = None

    @contextmanager
    def spot(self, path: str, *, make: bool = False) -> Generator[Spot]:
        """What the path leads to, whether or not it is there; `make` makes missing parents.

        Raises PermissionError for what leads out, FileNotFoundError and NotADirectoryError for its parents.
        """
        if not os.path.isabs(path) and os.path.normpath(path).split("/")[0] == "..":
            raise _leads_out(path)  # also where what it passes through is not there
        with contextlib.ExitStack() as opened:
            here = [self.root if isinstance(self.root, int) else self._open(opened, self.root, None)]
            name = "."
            rest = self._parts(path)
            links = 0
            while rest:
                name = rest.pop()
                if name == "..":
                    if len(here) == 1:
                        raise _leads_out(path)
                    here.pop()
                    name = "."
                    continue
                target = _link(here[-1], name)
                if target is not None:
                    links += 1
                    if links > _MOST_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                    if os.path.isabs(target):
                        del here[1:]
                    rest += self._parts(target)
                    name = "."
                elif rest:
                    here.append(self._enter(opened, here[-1], name, make=make))
                    name = "."
            yield Spot(here[-1], name)

    def own(self, descriptor: int) -> None:
        """Give a file or directory that was made to its owner."""
        if self.owner is not None:
            os.chown(descriptor, self.owner.uid, self.owner.gid)

    def make_folder(self, spot: Spot) -> None:
        """Make the directory, unless there is one."""
        if spot.name == ".":
            return
        try:
            os.mkdir(spot.name, 0o777, dir_fd=spot.parent)
        except FileExistsError:
            return
        if self.owner is not None:
            os.chown(spot.name, self.owner.uid, self.owner.gid, dir_fd=spot.parent, follow_symlinks=False)

    def _parts(self, path: str) -> list[str]:
        """The names to go through, the first one last. Raises PermissionError for an absolute path to elsewhere."""
        if os.path.isabs(path):
            below = next((path[len(root) :] for root in self.seen if (path + "/").startswith(root + "/")), None)
            if below is None:
                raise _leads_out(path)
            path = below
        return [part for part in reversed(path.split("/")) if part not in ("", ".")]

    def _enter(self, opened: contextlib.ExitStack, parent: int, name: str, *, make: bool) -> int:
        if make:
            self.make_folder(Spot(parent, name))
        return self._open(opened, name, parent)

    def _open(self, opened: contextlib.ExitStack, path: str, parent: int | None) -> int:
        descriptor = os.open(path, PASSING, dir_fd=parent)
        opened.callback(os.close, descriptor)
        return descriptor


def open_file(spot: Spot, path: str, flags: int) -> int:
    """A descriptor of a file. Raises IsADirectoryError, and OSError for what a reader might wait for without end."""
    try:
        descriptor = os.open(spot.name, flags | SAFELY, 0o666, dir_fd=spot.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "neither a file nor a directory", path)


def open_folder(spot: Spot) -> int:
    """A descriptor to list a directory with. Raises NotADirectoryError for anything else."""
    return os.open(spot.name, os.O_RDONLY | os.O_DIRECTORY | SAFELY, dir_fd=spot.parent)


def _link(parent: int, name: str) -> str | None:
    """Where a link leads; None for what is none, or not there."""
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _leads_out(path: str) -> PermissionError:
    return PermissionError(errno.EPERM, "leads out of the sandbox", path)
