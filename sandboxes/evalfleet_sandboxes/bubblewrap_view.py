"""What a bubblewrap sandbox sees of this machine: a system to run programs of, and no more.

`View.arguments` are those of `bwrap`, which makes it once for many sandboxes; what they must not share is mounted for
each one: `View.mounts`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evalfleet.enclosure_ports import Mount
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

    def arguments(self, etc: Path, hidden: Path) -> Iterator[str]:
        """Everything but a network and what can be written to. `etc` is one of `EtcFolders`; `hidden` is never seen."""
        yield from ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
        yield from ("--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv")
        yield from self.system
        for folder in (*self.above, "/run", "/var"):
            if folder in _SCRATCH_PLACES:
                yield from ("--perms", "1777", "--tmpfs", folder)
            else:
                yield from ("--dir", folder)  # else only their maker may pass
        for prefix in self.prefixes:
            yield from ("--ro-bind", prefix, prefix)
            if hidden.is_relative_to(prefix):
                yield from ("--tmpfs", str(hidden), "--remount-ro", str(hidden))
        yield from ("--ro-bind", str(etc), "/etc")
        for name in FOLDERS:
            if (etc / name).is_dir():
                yield from ("--ro-bind", f"/etc/{name}", f"/etc/{name}")
        yield from ("--proc", "/proc", "--dev", "/dev")
        for place in _SCRATCH_PLACES:
            if place not in self.above:
                yield from ("--symlink", SCRATCH, place)

    def mounts(self, name: str, disk: int | None) -> tuple[Mount, ...]:
        """What a sandbox can write to. Its room is memory with a limit of `disk` bytes.

        Without one it is a folder of the directory with its name, and mounted over the template's room, which has the
        directories of all sandboxes in it: nobody inside sees those then. The workdir in it is mounted over itself,
        so that nothing inside can move it.
        """
        return (
            Mount(target="/dev/shm", mode=0o1777, size=_SHARED_MEMORY),
            *(
                Mount(target=place, mode=0o1777, size=disk, below=self._prefixes_in(place))
                for place in _SCRATCH_PLACES
                if place in self.above
            ),
            Mount(target=ROOM, source=f"{ROOM}/{name}/room") if disk is None else Mount(target=ROOM, size=disk),
            Mount(target=WORKDIR, source=WORKDIR) if disk is None else Mount(target=WORKDIR, size=disk),
        )

    def _prefixes_in(self, place: str) -> tuple[str, ...]:
        return tuple(prefix for prefix in self.prefixes if Path(prefix).is_relative_to(place))


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
