"""The sandbox `local`: a directory and process trees on this machine. It tidies up; it isolates nothing.

A command can read and write whatever this user can, use the network, and take all memory. What is promised: a
fresh directory, an environment without the host's variables, and that none of its processes and files stay.
Use it for agents that you trust as you trust yourself.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec, TypeVar
from urllib.parse import quote

from evalfleet.errors import AttemptFailure, FailureKind, InfrastructureError
from evalfleet.model.definition import SandboxSpec
from evalfleet.ports import Command, CommandResult, Spawner
from evalfleet_sandboxes.folder import Folder, copy, remove

P = ParamSpec("P")
R = TypeVar("R")

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Beside `python` of this very interpreter; nothing else of the host's environment.
_PATH = f"{os.path.dirname(sys.executable)}:{_SYSTEM_PATH}"
_STDERR_TAIL = 2000
#: What a shell answers when a program can't be run, and when there is none.
_CANNOT_RUN, _NOT_FOUND = 126, 127


class LocalSandbox:
    """One attempt's directories: `work`, where commands start, `home` and `tmp`.

    `notices` says what of the spec is not enforced. A program that can't be started ends with exit code 127 or
    126 as in a shell. File operations raise what `Folder` says; all of them AttemptFailure SANDBOX_CLOSED after
    `close`, SANDBOX_LOST when the sandbox went away by itself.
    """

    def __init__(
        self, lease: _Lease, spec: SandboxSpec, spawner: Spawner, on_closed: Callable[[LocalSandbox], None]
    ) -> None:
        self._lease = lease
        self._spawner = spawner
        self._on_closed = on_closed
        self._closed = False
        self._closing = asyncio.Lock()
        work, home, tmp = (lease.root / name for name in ("work", "home", "tmp"))
        self._work = work
        self._folder = Folder(work)
        self._env = {"PATH": _PATH, "LANG": "C.UTF-8", "HOME": str(home), "TMPDIR": str(tmp), **spec.env}
        self.notices = tuple(_not_enforced(spec))

    @property
    def id(self) -> str:
        return self._lease.root.name

    @property
    def workdir(self) -> str:
        return str(self._work)

    async def run(self, command: Command) -> CommandResult:
        self._require_open()
        placed = replace(command, cwd=os.path.join(self.workdir, command.cwd or ""))
        try:
            return await self._spawner.run(placed, base_env=self._env, group=self.id)
        except InfrastructureError as error:
            self._require_open()
            raise _failure("SANDBOX_LOST", str(error)) from error
        except OSError as error:
            self._require_open()
            if not self._work.is_dir():
                raise _failure("SANDBOX_LOST", "its working directory is gone") from error
            if error.filename != command.argv[0]:
                raise
            code = _NOT_FOUND if error.errno == errno.ENOENT else _CANNOT_RUN
            message = f"{command.argv[0]}: {error.strerror}\n".encode(errors="replace")
            return CommandResult(exit_code=code, stdout=b"", stderr=message, duration=0.0, stderr_bytes=len(message))

    async def read(self, path: str) -> bytes:
        return await self._on_files(self._folder.read, path)

    async def write(self, path: str, data: bytes) -> None:
        await self._on_files(self._folder.write, path, data)

    async def upload(self, source: Path, target: str) -> None:
        await self._on_files(self._folder.upload, source, target)

    async def download(self, source: str, target: Path) -> None:
        await self._on_files(self._folder.download, source, target)

    async def close(self) -> None:
        self._closed = True
        async with self._closing:
            try:
                await self._spawner.end(self.id)
            except InfrastructureError as error:
                raise _failure("SANDBOX_CLEANUP_FAILED", str(error)) from error
            await _in_thread(self._lease.release)
            self._on_closed(self)

    async def prepare(self, spec: SandboxSpec) -> None:
        """Take the lease, make the directories, copy the files, run the setup commands."""
        await _in_thread(self._lay_out, spec)
        for number, line in enumerate(spec.setup, start=1):
            result = await self.run(Command(argv=(*_shell(), line)))
            if not result.ok:
                ending = f"exit code {result.exit_code}" if result.signal is None else f"signal {result.signal}"
                tail = result.stderr[-_STDERR_TAIL:].decode("utf-8", "replace")
                place = f"setup command {number} of {len(spec.setup)}"
                raise _failure("SANDBOX_SETUP_FAILED", f"{place} ended with {ending}: {line}\n{tail}".rstrip())

    def _lay_out(self, spec: SandboxSpec) -> None:
        self._lease.take()
        for name in ("work", "home", "tmp"):
            (self._lease.root / name).mkdir()
        if spec.files is None:
            return
        source = Path(spec.files)
        if not source.is_dir():
            raise _failure("SANDBOX_FILES_MISSING", f"files: {source} is not a directory")
        try:
            copy(source, self._work)
        except PermissionError as error:
            raise _failure("SANDBOX_FILES_REFUSED", f"files: {error}") from error

    async def _on_files(self, operation: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        self._require_open()
        return await _in_thread(operation, *args, **kwargs)

    def _require_open(self) -> None:
        if self._closed:
            raise _failure("SANDBOX_CLOSED", f"sandbox {self.id} is closed")


class LocalProvider:
    """Makes local sandboxes below `state`, one directory an owner."""

    name = "local"
    isolates = False

    def __init__(self, state: Path, spawner: Spawner) -> None:
        self._state = state
        self._spawner = spawner
        self._open: set[LocalSandbox] = set()

    async def create(self, spec: SandboxSpec, owner: str) -> LocalSandbox:
        """A fresh sandbox; `spec.files` is absolute or starts at this process's directory.

        Raises AttemptFailure of kind sandbox: SANDBOX_UNSUPPORTED for what would change what runs (an image, a
        user, a secret that nobody resolved), SANDBOX_EXISTS while the owner has one, SANDBOX_FILES_MISSING,
        SANDBOX_FILES_REFUSED, SANDBOX_SETUP_FAILED.
        """
        if refused := list(_unsupported(spec)):
            raise _failure("SANDBOX_UNSUPPORTED", f"the local sandbox has {'; '.join(refused)}")
        sandbox = LocalSandbox(_Lease(self._state, owner), spec, self._spawner, self._open.discard)
        self._open.add(sandbox)
        try:
            await sandbox.prepare(spec)
        except BaseException:
            await asyncio.shield(sandbox.close())
            raise
        return sandbox

    async def close(self) -> None:
        outcomes = await asyncio.gather(*[sandbox.close() for sandbox in self._open], return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome  # the first, after all had their turn

    async def reap(self) -> list[str]:
        """Remove what processes left that died without closing; the names of the removed directories."""
        return await _in_thread(_reap, self._state)


class LocalFactory:
    """Entry point `local` of `evalfleet.sandboxes`."""

    name = "local"

    def build(self, state: Path, spawner: Spawner) -> LocalProvider:
        return LocalProvider(state, spawner)


factory = LocalFactory()


class _Lease:
    """An owner's directory, held by a lock on a file beside it that the kernel drops when this process dies."""

    def __init__(self, state: Path, owner: str) -> None:
        name = quote(owner, safe="").replace(".", "%2E")  # a lock's name is the only one with a dot
        self.root = state.absolute() / name
        self._owner = owner
        self._lock = self.root.with_suffix(".lock")
        self._held: int | None = None

    def take(self) -> None:
        """Make the directory, empty. Raises AttemptFailure while someone else holds it."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        self._held = _try_lock(self._lock)
        if self._held is None:
            raise _failure("SANDBOX_EXISTS", f"{self._owner} has a local sandbox already")
        remove(self.root)  # of an earlier life of this owner
        self.root.mkdir(mode=0o700)

    def release(self) -> None:
        """Remove the directory, then the lock. May be called twice, or without having taken it."""
        if self._held is not None:
            remove(self.root)
            self._lock.unlink(missing_ok=True)
            os.close(self._held)
            self._held = None


def _try_lock(lock: Path) -> int | None:
    """The descriptor that holds the lock file; None when someone else does."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        os.close(descriptor)  # its holder removed it between our two looks: that one locks nothing


def _reap(state: Path) -> list[str]:
    reaped: list[str] = []
    for lock in sorted(state.glob("*.lock")):
        held = _try_lock(lock)
        if held is not None:
            remove(lock.with_suffix(""))
            lock.unlink(missing_ok=True)
            os.close(held)
            reaped.append(lock.stem)
    return reaped


def _unsupported(spec: SandboxSpec) -> Iterator[str]:
    if spec.image is not None:
        yield f"no images (image: {spec.image})"
    if spec.user is not None:
        yield f"no users of its own (user: {spec.user})"
    if unresolved := [name for name in spec.env_from if name not in spec.env]:
        yield f"no access to secrets, which have to be in env by now (env_from: {', '.join(unresolved)})"


def _not_enforced(spec: SandboxSpec) -> Iterator[str]:
    if spec.network != "open":
        wanted = spec.network if isinstance(spec.network, str) else ", ".join(spec.network)
        yield f"network: {wanted} is not enforced by the local sandbox: commands reach what this machine reaches"
    for name in ("cpus", "memory", "pids", "disk"):
        if (limit := getattr(spec.resources, name)) is not None:
            yield f"resources.{name}: {limit} is not enforced by the local sandbox"


def _shell() -> tuple[str, ...]:
    """How a setup line is run: it fails at its first failing command, with bash also inside a pipe."""
    bash = shutil.which("bash", path=_SYSTEM_PATH)
    return ("sh", "-ec") if bash is None else (bash, "-eo", "pipefail", "-c")


def _failure(code: str, message: str) -> AttemptFailure:
    return AttemptFailure(FailureKind.SANDBOX, code, message)


async def _in_thread(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run blocking work in a thread. Cancelling waits for it: nothing may go on behind a caller that gave up."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise
