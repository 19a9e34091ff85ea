"""The sandbox `local`: a directory and process trees on this machine. It tidies up; it isolates nothing.

A command can read and write whatever this user can, use the network, and take all memory. What is promised: a
fresh directory, an environment without the host's variables, and that none of its processes and files stay.
Use it for agents that you trust as you trust yourself.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec, TypeVar

from evalfleet.errors import AttemptFailure, FailureKind, InfrastructureError
from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command, CommandResult, FoundSandbox, SandboxPlace, Spawner
from evalfleet_sandboxes.blocking import in_thread
from evalfleet_sandboxes.detached import FileExecution, Outputs, redirected
from evalfleet_sandboxes.folder import Folder
from evalfleet_sandboxes.host_commands import SYSTEM_PATH, host_bash, not_started, shell
from evalfleet_sandboxes.kept_environment import NAME, leave_environment, left_environment
from evalfleet_sandboxes.lease import Lease, found_leases, reap_lease
from evalfleet_sandboxes.making import bringing_files, close_all, made, starting_files, unresolved_secrets
from evalfleet_sandboxes.setup_commands import set_up

P = ParamSpec("P")
R = TypeVar("R")

#: Beside `python` of this very interpreter; nothing else of the host's environment.
_PATH = f"{os.path.dirname(sys.executable)}:{SYSTEM_PATH}"


class LocalSandbox:
    """One attempt's directories: `work`, where commands start, `home` and `tmp`.

    `notices` says what of the spec is not enforced. A program that can't be started ends with exit code 127 or
    126 as in a shell. File operations raise what `Folder` says; all of them AttemptFailure SANDBOX_CLOSED after
    `close`, SANDBOX_LOST when the sandbox went away by itself.
    """

    def __init__(
        self, lease: Lease, spec: SandboxSpec, spawner: Spawner, on_closed: Callable[[LocalSandbox], None]
    ) -> None:
        self._lease = lease
        self._spawner = spawner
        self._on_closed = on_closed
        self._closed = False
        self._closing = asyncio.Lock()
        self._id = lease.root.name
        self._work = lease.root / "work"
        self._workdir = str(self._work)
        self._folder = Folder(self._work, seen=self.workdir)
        self._spec = spec
        self._env = {**_environment(lease.root), **spec.env}
        self._executions: dict[str, FileExecution] = {}
        self._numbers = itertools.count(1)
        self.notices = tuple(_not_enforced(spec))

    @property
    def id(self) -> str:
        return self._id

    @property
    def workdir(self) -> str:
        return self._workdir

    @property
    def tree(self) -> Path | None:
        return self._work

    async def run(self, command: Command) -> CommandResult:
        self._require_open()
        _require_own_user(command)
        placed = replace(command, cwd=os.path.join(self._workdir, command.cwd or ""))
        try:
            return await self._spawner.run(placed, base_env=self._env, group=self.id)
        except InfrastructureError as error:
            self._require_open()
            raise _failure("SANDBOX_LOST", str(error)) from error
        except OSError as error:
            self._require_open()
            if not self._work.is_dir():
                raise _failure("SANDBOX_LOST", "its working directory is gone") from error
            return not_started(command, error)

    async def start(self, command: Command) -> FileExecution:
        self._require_open()
        _require_own_user(command)
        identifier = str(next(self._numbers))
        outputs = Outputs(Folder(self._lease.root), f"executions/{identifier}")
        await in_thread(outputs.make)
        placed = redirected(command, str(self._lease.root / outputs.name))
        task = asyncio.create_task(self.run(placed), name=f"{self.id} {identifier}")
        execution = FileExecution(outputs, task, command.output_limit, self._require_open)
        self._executions[identifier] = execution
        return execution

    async def attach(self, execution: str) -> FileExecution:
        self._require_open()
        return self._executions[execution]

    async def probe(self) -> None:
        self._require_open()
        if not self._work.is_dir():
            raise _failure("SANDBOX_LOST", "its working directory is gone")

    async def read(self, path: str) -> bytes:
        return await self._on_files(self._folder.read, path)

    async def write(self, path: str, data: bytes) -> None:
        await self._on_files(self._folder.write, path, data)

    async def upload(self, source: Path, target: str) -> None:
        await self._on_files(self._folder.upload, source, target)

    async def download(self, source: str, target: Path) -> None:
        await self._on_files(self._folder.download, source, target)

    async def export(self, target: Path) -> None:
        await self._on_files(self._folder.export, target)

    async def reset(self) -> None:
        self._require_open()
        message = "a local sandbox can't prove that its commands left nothing on this machine"
        raise _failure("SANDBOX_UNCLEAN", message)

    async def close(self) -> None:
        await self._end(self._lease.release)

    async def keep(self) -> None:
        await self._end(self._leave)

    async def prepare(self, spec: SandboxSpec) -> None:
        """Take the lease, make the directories, copy the files, run the setup commands."""
        await in_thread(self._lay_out, spec)
        await set_up(spec.setup, host_bash(), self.run)

    async def _end(self, leave: Callable[[], None]) -> None:
        self._closed = True
        async with self._closing:
            for execution in self._executions.values():
                await execution.end()
            try:
                await self._spawner.end(self.id)
            except InfrastructureError as error:
                raise _failure("SANDBOX_CLEANUP_FAILED", str(error)) from error
            await in_thread(leave)
            self._on_closed(self)

    def _leave(self) -> None:
        leave_environment(self._lease.root / NAME, self._spec)
        self._lease.keep()

    def _lay_out(self, spec: SandboxSpec) -> None:
        self._lease.take()
        for name in ("work", "home", "tmp"):
            os.mkdir(self._lease.root / name)
        if (files := starting_files(spec)) is not None:
            with bringing_files():
                self._folder.upload(files, ".")

    async def _on_files(self, operation: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        self._require_open()
        return await in_thread(operation, *args, **kwargs)

    def _require_open(self) -> None:
        if self._closed:
            raise _failure("SANDBOX_CLOSED", f"sandbox {self.id} is closed")


class LocalProvider:
    """Makes local sandboxes below `state`, one directory an owner."""

    name = "local"
    isolates = False
    outlives = False

    def __init__(self, place: SandboxPlace) -> None:
        self._state = Path(os.path.realpath(place.state))  # as commands will see it
        self._spawner = place.spawner
        self._terminal = place.environment.get("TERM", "dumb")
        self._open: set[LocalSandbox] = set()

    async def check(self) -> None:
        """It needs nothing."""

    async def create(self, spec: SandboxSpec, owner: str) -> LocalSandbox:
        """A fresh sandbox; `spec.files` is absolute or starts at this process's directory.

        Raises AttemptFailure of kind sandbox: SANDBOX_UNSUPPORTED for what would change what runs (an image, a
        user, a secret that nobody resolved), SANDBOX_EXISTS while the owner has one, SANDBOX_FILES_MISSING,
        SANDBOX_FILES_REFUSED, SANDBOX_SETUP_FAILED.
        """
        if refused := list(_unsupported(spec)):
            raise _failure("SANDBOX_UNSUPPORTED", f"the local sandbox has {'; '.join(refused)}")
        sandbox = LocalSandbox(Lease(self._state, owner), spec, self._spawner, self._open.discard)
        self._open.add(sandbox)
        return await made(sandbox, sandbox.prepare(spec))

    async def close(self) -> None:
        await close_all(self._open)

    async def found(self) -> list[FoundSandbox]:
        return await in_thread(found_leases, self._state, socket.gethostname())

    async def reap(self, sandbox: FoundSandbox) -> None:
        await in_thread(reap_lease, self._state, sandbox.id)

    async def enter_argv(self, sandbox: FoundSandbox) -> tuple[str, ...]:
        root = self._state / sandbox.id
        variables = {**_environment(root), "TERM": self._terminal, **await in_thread(left_environment, root / NAME)}
        inside = ("env", "-i", *(f"{name}={value}" for name, value in variables.items()), shell())
        return ("sh", "-c", 'cd "$0" && exec "$@"', str(root / "work"), *inside)


class LocalFactory:
    """Entry point `local` of `evalfleet.sandboxes`."""

    name = "local"

    def build(self, place: SandboxPlace) -> LocalProvider:
        return LocalProvider(place)


factory = LocalFactory()


def _environment(root: Path) -> dict[str, str]:
    """What commands find in their environment beside what spec and command set."""
    return {"PATH": _PATH, "LANG": "C.UTF-8", "HOME": f"{root}/home", "TMPDIR": f"{root}/tmp"}


def _unsupported(spec: SandboxSpec) -> Iterator[str]:
    if spec.image is not None:
        yield f"no images (image: {spec.image})"
    if spec.build is not None:
        yield f"no images (build: {spec.build})"
    if spec.user is not None:
        yield f"no users of its own (user: {spec.user})"
    yield from unresolved_secrets(spec)


def _require_own_user(command: Command) -> None:
    if command.user is not None:
        raise _failure("SANDBOX_UNSUPPORTED", f"the local sandbox has no users of its own (user: {command.user})")


def _not_enforced(spec: SandboxSpec) -> Iterator[str]:
    if spec.network != "open":
        wanted = spec.network if isinstance(spec.network, str) else ", ".join(spec.network)
        yield f"network: {wanted} is not enforced by the local sandbox: commands reach what this machine reaches"
    for name in ("cpus", "memory", "pids", "disk"):
        if (limit := getattr(spec.resources, name)) is not None:
            yield f"resources.{name}: {limit} is not enforced by the local sandbox"


def _failure(code: str, message: str) -> AttemptFailure:
    return AttemptFailure(FailureKind.SANDBOX, code, message)
