"""What a bubblewrap sandbox sees of this machine, as arguments of `bwrap`: a system to run programs of, and no more.

Few mounts, on purpose: for each one `bwrap` reads the whole table of mounts again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evalfleet.model.definition import SandboxSpec
from evalfleet_sandboxes.bubblewrap_etc import FOLDERS
from evalfleet_sandboxes.host_commands import SYSTEM_PATH

#: The one place that a sandbox can write to; the workdir in it is a mount of its own, which nothing inside can move.
ROOM = "/sandbox"
WORKDIR, HOME, SCRATCH = f"{ROOM}/work", f"{ROOM}/home", f"{ROOM}/tmp"
#: Beside `python` of this very interpreter; nothing else of the host's environment.
ENVIRONMENT = {
    "PATH": f"{os.path.dirname(sys.executable)}:{SYSTEM_PATH}",
    "LANG": "C.UTF-8",
    "HOME": HOME,
    "TMPDIR": "/tmp",
}
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SHARED_MEMORY = 64 << 20
#: Where programs leave what nobody needs; in the room, unless the running Python lives below.
_SCRATCH_PLACES = ("/tmp", "/var/tmp")


@dataclass(frozen=True, slots=True)
class View:
    """What is shown of this machine.

    `system` are arguments, `prefixes` the folders of the running Python, `above` the folders above those.
    """

    system: tuple[str, ...]
    prefixes: tuple[str, ...]
    above: tuple[str, ...]

    def arguments(self, spec: SandboxSpec, etc: Path, hidden: Path) -> Iterator[str]:
        """Everything but the room. `etc` is a folder of `EtcFolders`; `hidden` is never seen."""
        yield from ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
        if spec.network != "open":
            yield "--unshare-net"
        yield from ("--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv")
        yield from self.system
        limit = () if spec.resources.disk is None else ("--size", str(spec.resources.disk))
        for folder in (*self.above, "/run", "/var"):
            if folder in _SCRATCH_PLACES:
                yield from ("--perms", "1777", *limit, "--tmpfs", folder)
            else:
                yield from ("--dir", folder)  # else only their maker may pass
        for prefix in self.prefixes:
            yield from ("--ro-bind", prefix, prefix)
            if hidden.is_relative_to(prefix):
                yield from ("--tmpfs", str(hidden))
        yield from ("--ro-bind", str(etc), "/etc")
        for name in FOLDERS:
            if (etc / name).is_dir():
                yield from ("--ro-bind", f"/etc/{name}", f"/etc/{name}")
        yield from ("--proc", "/proc", "--dev", "/dev")
        yield from ("--perms", "1777", "--size", str(_SHARED_MEMORY), "--tmpfs", "/dev/shm")
        for place in _SCRATCH_PLACES:
            if place not in self.above:
                yield from ("--symlink", SCRATCH, place)


def room_arguments(folder: Path, disk: int | None) -> Iterator[str]:
    """The room: folders of this machine, or with a limit of `disk` bytes file systems in memory of that size."""
    if disk is None:
        yield from ("--bind", str(folder / "room"), ROOM, "--bind", str(folder / "work"), WORKDIR)
    else:
        for place in (ROOM, WORKDIR):
            yield from ("--perms", "0755", "--size", str(disk), "--tmpfs", place)


def view_of_this_machine() -> View:
    """Look at the system and the running Python. Blocking."""
    system = ["--ro-bind", "/usr", "/usr"]
    for path in (f"/{name}" for name in _SYSTEM):
        if os.path.islink(path):
            system += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            system += ["--ro-bind", path, path]
    prefixes = tuple(_prefixes())
    above = {str(parent) for path in prefixes for parent in Path(path).parents} - {"/"}
    return View(tuple(system), prefixes, tuple(sorted(above)))


def _prefixes() -> Iterator[str]:
    """Where the running Python and its packages live, the outer ones first; what is below /usr is seen anyway."""
    found = {path for prefix in (sys.prefix, sys.base_prefix) for path in (prefix, os.path.realpath(prefix))}
    for path in sorted(found):
        parents = {str(parent) for parent in Path(path).parents}
        if path not in ("/", "/usr") and not parents & {"/usr", *found}:
            yield path
