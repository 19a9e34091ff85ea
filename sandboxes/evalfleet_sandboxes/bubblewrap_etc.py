"""The folders that are /etc in sandboxes: a few files, made once a process and shared, read-only. Blocking."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from evalfleet_sandboxes.anchored import Owner
from evalfleet_sandboxes.lease import Lease, found_leases, reap_lease

#: What of this machine's programs look up and nobody hides, no password, no key, none of its settings: folders that
#: are bound over those made here, and files that are copied.
FOLDERS = (
    "alternatives",
    "ca-certificates/extracted",
    "crypto-policies",
    "pki/ca-trust",
    "pki/tls/certs",
    "ssl/certs",
)
_FILES = ("ld.so.cache", "protocols", "services", "ssl/openssl.cnf", "timezone")
_OF_NETWORK = ("hosts", "resolv.conf")
#: Beside the sandboxes' own directories; its leases are none of theirs.
_PLACE = ".etc"
_NUMBERS = itertools.count(1)


class EtcFolders:
    """Makes them as they are asked for, below the state folder, and removes them with `close`.

    Those of a process that is dead go when another one opens or closes its own.
    """

    def __init__(self, state: Path, home: str) -> None:
        self._state = state / _PLACE
        self._home = home
        self._lease = Lease(self._state, f"{os.getpid()}-{next(_NUMBERS)}")
        self._making = threading.Lock()
        self._made: dict[tuple[Owner, bool], Path] = {}

    def of(self, user: Owner, *, network: bool) -> Path:
        """The folder for sandboxes of that user; `network` says that they share this machine's."""
        with self._making:
            if not self._lease.held:
                self._lease.take()
                self._lease.root.chmod(0o755)
                self._sweep()
            key = (user, network)
            if key not in self._made:
                self._made[key] = self._lease.root / str(len(self._made))
                self.leave(self._made[key], user, network=network)
            return self._made[key]

    def leave(self, path: Path, user: Owner, *, network: bool) -> None:
        """Make one at `path`, for a sandbox that this process leaves behind."""
        _make(path, _files(user, self._home, network=network))

    def close(self) -> None:
        self._lease.release()
        self._made.clear()
        self._sweep()
        with contextlib.suppress(OSError):  # others still have theirs, or there never was one
            self._state.rmdir()

    def _sweep(self) -> None:
        for found in found_leases(self._state, ""):
            if found.alive is False:
                reap_lease(self._state, found.id)


def _make(path: Path, files: Mapping[str, bytes]) -> None:
    shown = tuple(name for name in FOLDERS if os.path.isdir(f"/etc/{name}"))
    above = {str(parent) for name in (*shown, *files) for parent in Path(name).parents}
    for folder in sorted({".", *shown, *above}):
        (path / folder).mkdir()
        (path / folder).chmod(0o755)
    for name, content in files.items():
        (path / name).write_bytes(content)
        (path / name).chmod(0o644)
    time_zone = os.path.realpath("/etc/localtime")
    if time_zone.startswith("/usr/"):
        (path / "localtime").symlink_to(time_zone)


def _files(user: Owner, home: str, *, network: bool) -> dict[str, bytes]:
    return {
        "passwd": f"root:x:0:0::/:/sbin/nologin\nsandbox:x:{user.uid}:{user.gid}::{home}:/bin/sh\n".encode(),
        "group": f"root:x:0:\nsandbox:x:{user.gid}:\n".encode(),
        "nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
        "hosts": b"127.0.0.1 localhost sandbox\n::1 localhost sandbox\n",
        **dict(_contents(_FILES)),
        **dict(_contents(_OF_NETWORK if network else ())),
    }


def _contents(names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    for name in names:
        path = Path("/etc", name)
        if path.is_file():
            yield name, path.read_bytes()
