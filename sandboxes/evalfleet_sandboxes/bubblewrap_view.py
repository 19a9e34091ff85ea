"""What a bubblewrap sandbox sees of this machine, as arguments of `bwrap`: a system to run programs of, and no more."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evalfleet.model.definition import SandboxSpec
from evalfleet_sandboxes.anchored import Owner
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
#: What programs look up and nobody hides: no password, no key, no host's own settings.
_ETC = (
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "gai.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "pki/ca-trust",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
)
#: What only a sandbox in the host's network needs of it.
_ETC_OF_NETWORK = ("hosts", "resolv.conf")
_SHARED_MEMORY = 64 << 20


@dataclass(frozen=True, slots=True)
class View:
    """What is shown of this machine: `system` are arguments, `prefixes` the folders of the running Python.

    Folders above what is bound are made with `--dir`: else only their maker may pass.
    """

    system: tuple[str, ...]
    prefixes: tuple[str, ...]

    def arguments(self, spec: SandboxSpec, etc: Path, hidden: Path) -> Iterator[str]:
        """Everything but the room. `etc` holds the files of `etc_files`; `hidden` is never seen."""
        network = spec.network == "open"
        yield from ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
        if not network:
            yield "--unshare-net"
        yield from ("--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv")
        yield from self.system
        for prefix in self.prefixes:
            yield from ("--ro-bind", prefix, prefix)
            if hidden.is_relative_to(prefix):
                yield from ("--tmpfs", str(hidden))
        for name in _ETC_OF_NETWORK if network else ():
            yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
        for name in etc_files(Owner(0, 0), network=network):
            yield from ("--ro-bind", str(etc / name), f"/etc/{name}")
        yield from ("--proc", "/proc", "--dev", "/dev")
        yield from ("--perms", "1777", "--size", str(_SHARED_MEMORY), "--tmpfs", "/dev/shm", "--remount-ro", "/dev")
        for link in ("/tmp", "/var/tmp"):
            yield from ("--symlink", SCRATCH, link)


def room_arguments(folder: Path, disk: int | None) -> Iterator[str]:
    """The room: folders of this machine, or with a limit of `disk` bytes file systems in memory of that size."""
    if disk is None:
        yield from ("--bind", str(folder / "room"), ROOM, "--bind", str(folder / "work"), WORKDIR)
    else:
        for place in (ROOM, WORKDIR):
            yield from ("--perms", "0755", "--size", str(disk), "--tmpfs", place)
    yield from ("--remount-ro", "/")


def view_of_this_machine() -> View:
    """Look at the system and the running Python. Blocking."""
    system = ["--ro-bind", "/usr", "/usr"]
    for path in (f"/{name}" for name in _SYSTEM):
        if os.path.islink(path):
            system += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            system += ["--ro-bind", path, path]
    shown = [path for name in _ETC if os.path.exists(path := f"/etc/{name}")]
    prefixes = tuple(_prefixes())
    above = {str(parent) for path in (*shown, *prefixes) for parent in Path(path).parents}
    for folder in sorted((above | {"/run", "/var"}) - {"/"}):
        system += ["--dir", folder]
    for path in shown:
        system += ["--ro-bind", path, path]
    return View(tuple(system), prefixes)


def etc_files(user: Owner, *, network: bool) -> dict[str, str]:
    """The files of /etc that are made for a sandbox."""
    made = {
        "passwd": f"root:x:0:0::/:/sbin/nologin\nsandbox:x:{user.uid}:{user.gid}::{HOME}:/bin/sh\n",
        "group": f"root:x:0:\nsandbox:x:{user.gid}:\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
    }
    return made if network else {**made, "hosts": "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n"}


def _prefixes() -> Iterator[str]:
    """Where the running Python and its packages live, the outer ones first; what is below /usr is seen anyway."""
    found = {path for prefix in (sys.prefix, sys.base_prefix) for path in (prefix, os.path.realpath(prefix))}
    for path in sorted(found):
        parents = {str(parent) for parent in Path(path).parents}
        if path not in ("/", "/usr") and not parents & {"/usr", *found}:
            yield path
