"""A Ray that `orchestrate up` keeps on this machine: found through a file that its process holds locked.

The lock says whether that process lives, however it ended; the file says where its Ray is and with which
environment it was started, since workers resolve secrets in that environment and not in the caller's.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from evalfleet import processes
from evalfleet.errors import ConfigurationError, InfrastructureError
from evalfleet.handover import standby_socket
from evalfleet.ports import Clock, Random
from evalfleet.settings import Settings, own_environment, ray_authentication

_UP_SECONDS = 120.0
_DOWN_SECONDS = 30.0
_STANDBY_SECONDS = 20.0
_LOOK_SECONDS = 0.1

#: What differs from terminal to terminal and means nothing to an agent.
_PASSING = frozenset(
    {"_", "PWD", "OLDPWD", "SHLVL", "TERM", "COLUMNS", "LINES", "PS1", "DISPLAY", "PYTEST_CURRENT_TEST"}
)
_PASSING_PREFIXES = (
    "EVALFLEET_", "RAY_", "SSH_", "TMUX", "STY", "XDG_", "TERM_", "COLOR", "WINDOW", "VSCODE_", "DBUS_", "GPG_",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmRay:
    """A Ray that is up: its process, its address, its CPUs, and digests of the environment it was started with.

    `authentication` is what Ray's own variables have to be for a process that joins it.
    """

    pid: int
    address: str
    cpus: int
    python: str
    salt: str
    environment: Mapping[str, str]
    authentication: Mapping[str, str]

    @classmethod
    def here(cls, address: str, cpus: int, random: Random) -> WarmRay:
        """This process's own."""
        salt = f"{random.bits(128):032x}"
        return cls(
            pid=os.getpid(),
            address=address,
            cpus=cpus,
            python=sys.prefix,
            salt=salt,
            environment=_digests(own_environment(), salt),
            authentication=ray_authentication(),
        )

    def differences(self, environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Why this process can't use it: names of variables that it, or `environment`, has otherwise; `python`."""
        mine = _digests(own_environment() if environment is None else environment, self.salt)
        names = [name for name, digest in sorted(mine.items()) if self.environment.get(name) != digest]
        return (*(["python"] if self.python != sys.prefix else []), *names)


def warm_ray(settings: Settings) -> WarmRay | None:
    """The Ray that is up in this state directory, None when there is none (or it is not ready yet)."""
    try:
        with _file(settings, os.O_RDONLY) as descriptor:
            if _lock(descriptor, fcntl.LOCK_SH):
                return None  # whoever wrote it is gone
            data = os.read(descriptor, 1 << 20)
    except FileNotFoundError:
        return None
    return msgspec.json.decode(data, type=WarmRay) if data else None


@contextmanager
def keeping(settings: Settings) -> Generator[int]:
    """Hold the place of the one process that keeps a Ray; a descriptor to publish through.

    Raises ConfigurationError when another process has it.
    """
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    with _file(settings, os.O_RDWR | os.O_CREAT) as descriptor:
        if not _lock(descriptor, fcntl.LOCK_EX):
            raise ConfigurationError("a Ray is up or coming up already (orchestrate down ends it)")
        os.ftruncate(descriptor, 0)
        try:
            yield descriptor
        finally:
            os.ftruncate(descriptor, 0)


def publish(descriptor: int, ray: WarmRay) -> None:
    """Let others find it."""
    os.pwrite(descriptor, msgspec.json.encode(ray), 0)


@contextmanager
def using(settings: Settings) -> Generator[None]:
    """While the block runs, `down` says that the Ray is in use."""
    with _opened(_clients(settings), os.O_RDWR | os.O_CREAT) as descriptor:
        _lock(descriptor, fcntl.LOCK_SH)
        yield


async def bring_up(settings: Settings, clock: Clock, standby: str) -> tuple[WarmRay, bool]:
    """The Ray that is up, and whether this call started it; `standby` is the module of the process it keeps ready.

    Raises InfrastructureError with the end of its log when it does not come up.
    """
    found = warm_ray(settings)
    if found is not None:
        return found, False
    log = settings.state_dir / "logs" / "up.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    pid = processes.start_daemon([sys.executable, "-m", "evalfleet.api.ray_daemon", standby], env=None, log=log)
    for _ in range(int(_UP_SECONDS / _LOOK_SECONDS)):
        await clock.sleep(_LOOK_SECONDS)
        found = warm_ray(settings)
        if found is not None:
            await _until_ready(settings, clock)
            return found, found.pid == pid
        if not processes.process_alive(pid):
            raise InfrastructureError(f"Ray did not come up: {_last_line(log)} (see {log})")
    raise InfrastructureError(f"Ray did not come up in {_UP_SECONDS:.0f} s (see {log})")


async def _until_ready(settings: Settings, clock: Clock) -> None:
    """Wait for the standby, without which runs only begin later."""
    for _ in range(int(_STANDBY_SECONDS / _LOOK_SECONDS)):
        if standby_socket(settings).exists():
            return
        await clock.sleep(_LOOK_SECONDS)


async def take_down(settings: Settings, clock: Clock, *, force: bool = False) -> WarmRay | None:
    """End the Ray that is up and return what it was, None when there was none.

    Raises ConfigurationError while runs use it, unless `force`.
    """
    found = warm_ray(settings)
    if found is None:
        return None
    with _opened(_clients(settings), os.O_RDWR | os.O_CREAT) as descriptor:
        if not _lock(descriptor, fcntl.LOCK_EX) and not force:
            raise ConfigurationError("runs are going on it: cancel them or wait, or say --force")
        for how in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(found.pid, how)
            for _ in range(int(_DOWN_SECONDS / _LOOK_SECONDS)):
                if warm_ray(settings) is None and not processes.process_alive(found.pid):
                    return found
                await clock.sleep(_LOOK_SECONDS)
    raise InfrastructureError(f"process {found.pid} does not end")


def _digests(environment: Mapping[str, str], salt: str) -> dict[str, str]:
    key = bytes.fromhex(salt)
    return {
        name: hashlib.blake2b(value.encode("utf-8", "surrogateescape"), key=key, digest_size=8).hexdigest()
        for name, value in environment.items()
        if name not in _PASSING and not name.startswith(_PASSING_PREFIXES)
    }


def _clients(settings: Settings) -> Path:
    return settings.state_dir / "ray.clients"


def _file(settings: Settings, flags: int) -> contextlib.AbstractContextManager[int]:
    return _opened(settings.state_dir / "ray.json", flags)


@contextmanager
def _opened(path: Path, flags: int) -> Generator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int, how: int) -> bool:
    """Take the lock unless somebody else has it."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
