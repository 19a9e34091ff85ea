"""One bubblewrap sandbox: its directories, its namespaces, and the commands in them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ParamSpec, TypeVar

from evalfleet.enclosure_ports import Enclosed, Enclosure
from evalfleet.errors import AttemptFailure, FailureKind, InfrastructureError
from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command, CommandResult, Inlet, Opening
from evalfleet_sandboxes.anchored import Owner
from evalfleet_sandboxes.blocking import in_thread
from evalfleet_sandboxes.bubblewrap_rights import Rights
from evalfleet_sandboxes.bubblewrap_templates import Templates
from evalfleet_sandboxes.bubblewrap_view import ENVIRONMENT, ROOM, WORKDIR
from evalfleet_sandboxes.cgroups import Cgroup, Hierarchies
from evalfleet_sandboxes.detached import FileExecution, Outputs, redirected
from evalfleet_sandboxes.folder import Folder
from evalfleet_sandboxes.host_commands import NOT_FOUND, host_bash, not_started
from evalfleet_sandboxes.kept_environment import NAME, leave_environment
from evalfleet_sandboxes.lease import Lease
from evalfleet_sandboxes.listening import listen_in
from evalfleet_sandboxes.making import bringing_files, starting_files
from evalfleet_sandboxes.missing_programs import missing_programs, on_this_machine
from evalfleet_sandboxes.removing import empty
from evalfleet_sandboxes.setup_commands import set_up

#: What a sandbox has of this machine, and what to do about the rest.
_SHOWN = (
    "which shows /usr and the running Python: install it below /usr, bring it with `files` or `setup`, "
    "or name another backend (`local` isolates nothing)"
)
#: In the sandbox's directory: what is /etc inside.
_ETC = "etc"

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a provider knows of the machine that its sandboxes are on. `path` is where it has its programs."""

    templates: Templates
    hierarchies: Hierarchies
    path: str

    @property
    def rights(self) -> Rights:
        return self.templates.rights


class BubblewrapSandbox:
    """One attempt's namespaces and directories; see `Sandbox`. `notices` says what of the spec is not enforced.

    How a command ended can't be known once what holds its tree together was killed: the sandbox is lost then, and
    all that runs in it is ended.
    """

    def __init__(
        self,
        machine: Machine,
        lease: Lease,
        spec: SandboxSpec,
        on_closed: Callable[[BubblewrapSandbox], None],
        opening: Opening | None = None,
    ) -> None:
        self._machine = machine
        self._lease = lease
        self._spec = spec
        self._on_closed = on_closed
        self._opening = opening
        self._user = machine.rights.user(spec.user)
        self._env = {**ENVIRONMENT, **spec.env}
        self._namespaces: Enclosed | None = None
        self._cgroup = Cgroup()
        self._files = Folder(lease.root, seen=WORKDIR)  # until it has moved in; without `seen` it would look on disk
        self._executions: dict[str, FileExecution] = {}
        self._numbers = itertools.count(1)
        self._ending = asyncio.Lock()
        self._listening = asyncio.Lock()
        self._closed = False
        self._lost: AttemptFailure | None = None
        self.notices: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self._lease.root.name

    @property
    def workdir(self) -> str:
        return WORKDIR

    @property
    def tree(self) -> Path | None:
        return None if self._in_memory else self._lease.root / "room/work"

    async def run(self, command: Command) -> CommandResult:
        return await self._run(command, command.argv[0])

    async def _run(self, command: Command, program: str) -> CommandResult:
        """Run it; `program` is what it is really about."""
        namespaces = self._require_open()
        user = self._machine.rights.of_command(command.user, self._user)
        placed = replace(command, cwd=os.path.join(WORKDIR, command.cwd or ""), user=None)
        before = await self._oom_kills()
        try:
            result = await namespaces.run(placed, base_env=self._env, user=(user.uid, user.gid))
        except InfrastructureError as error:
            raise await self._lose(str(error), before) from error
        except OSError as error:
            self._require_open()
            result = not_started(command, error)
        if result.exit_code == NOT_FOUND:
            await in_thread(self._remark, program, result.stderr)
        after = await self._oom_kills()
        return result if before is None or after is None else replace(result, oom_kills=after - before)

    async def start(self, command: Command) -> FileExecution:
        self._require_open()
        user = self._machine.rights.of_command(command.user, self._user)
        identifier = str(next(self._numbers))
        outputs = Outputs(self._folder_of(user, self._room, ROOM), f"executions/{identifier}")
        await in_thread(outputs.make)
        placed = redirected(command, f"{ROOM}/{outputs.name}")
        task = asyncio.create_task(self._run(placed, command.argv[0]), name=f"{self.id} {identifier}")
        execution = FileExecution(outputs, task, command.output_limit, self._require_open)
        self._executions[identifier] = execution
        return execution

    async def attach(self, execution: str) -> FileExecution:
        self._require_open()
        return self._executions[execution]

    async def probe(self) -> None:
        self._require_open()
        if not await in_thread(self._work.is_dir):
            raise await self._lose("its working directory is gone")

    async def read(self, path: str) -> bytes:
        return await self._on_files(self._files.read, path)

    async def write(self, path: str, data: bytes) -> None:
        await self._on_files(self._files.write, path, data)

    async def upload(self, source: Path, target: str) -> None:
        await self._on_files(self._files.upload, source, target)

    async def download(self, source: str, target: Path) -> None:
        await self._on_files(self._files.download, source, target)

    async def export(self, target: Path) -> None:
        await self._on_files(self._files.export, target)

    async def listen(self) -> Inlet:
        """See `Listening.listen`."""
        async with self._listening:
            network = f"/proc/{os.getpid()}/fd/{self._require_open().network}"
            return await listen_in(network, self._machine.templates.spawner, self._lease.root)

    async def reset(self) -> None:
        """New namespaces and new directories: nothing of the old ones is left that could be unclean."""
        self._require_open()
        async with self._ending:
            try:
                await self._end_everything(functools.partial(empty, self._lease.root))
            except (InfrastructureError, OSError) as error:
                self._lost = _failure("SANDBOX_UNCLEAN", str(error))
                raise self._lost from error
            await self.move_in()

    async def close(self) -> None:
        self._closed = True
        await self._leave(self._lease.release)

    async def keep(self) -> None:
        """See `Keepable.keep`: what lay in memory comes to lie on this machine."""
        await in_thread(self._bring_out)
        self._closed = True
        await self._leave(self._lease.keep)

    async def _leave(self, lease: Callable[[], None]) -> None:
        async with self._ending:
            try:
                await self._end_everything(lease)
            except (InfrastructureError, OSError) as error:
                raise _failure("SANDBOX_CLEANUP_FAILED", str(error)) from error
            self._on_closed(self)

    def _bring_out(self) -> None:
        """Leave nothing that goes with the namespaces or with this process."""
        root = self._lease.root
        if self._in_memory and self._lost is None:
            os.makedirs(root / "room/work", 0o755)
            self._files.export(root / "room/work")
        leave_environment(root / NAME, self._spec)
        (root / _ETC).unlink(missing_ok=True)
        self._machine.templates.etc.leave(root / _ETC, self._user, network=False)

    async def move_in(self) -> None:
        """Directories, limits, namespaces, files, a way out, setup. Raises AttemptFailure."""
        templates, open_network = self._machine.templates, self._spec.network == "open"
        await in_thread(self._lay_out)
        enclosure = Enclosure(
            user=self._machine.rights.first(self._user),
            mounts=templates.view.mounts(self.id, self._spec.resources.disk),
            network=not open_network,
            cgroups=self._cgroup.folders,
        )
        try:
            warden = await templates.of(self._user, network=open_network)
            self._namespaces = await warden.enclose(enclosure)
        except InfrastructureError as error:
            raise _failure("SANDBOX_FAILED", f"bubblewrap: {error}") from error
        if self._in_memory:
            await in_thread(self._furnish)
        if self._opening is not None:
            self._env = {**self._env, **await self._opening(self)}
        before = self.notices
        try:
            await set_up(self._spec.setup, host_bash(), self.run)
        except AttemptFailure as error:
            if missed := [notice for notice in self.notices if notice not in before]:
                raise AttemptFailure(error.kind, error.code, "\n".join([str(error), *missed])) from error
            raise

    def _lay_out(self) -> None:
        """Take the lease, and make what can be made before the namespaces."""
        root, spec, machine = self._lease.root, self._spec, self._machine
        if not self._lease.held:
            self._lease.take()
        os.symlink(machine.templates.etc.of(self._user, network=spec.network == "open"), root / _ETC)
        self._cgroup, refused = machine.hierarchies.make(cgroup_name(root), spec.resources)
        self.notices = tuple(_not_enforced(spec, name) for name in refused)
        if not self._in_memory:
            self._furnish()

    def _furnish(self) -> None:
        """Give the room and the workdir to the sandbox's user, and bring the spec's files."""
        owner = self._machine.rights.owner(self._user)
        room, work = self._room, self._work
        for folder, mode in ((room, 0o755), (work, 0o755), (room / "home", 0o700), (room / "tmp", 0o1777)):
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)
            os.chmod(folder, mode)
            if owner is not None:
                os.chown(folder, owner.uid, owner.gid)
        self._files = self._folder_of(self._user, work, WORKDIR)
        if (files := starting_files(self._spec)) is not None:
            with bringing_files():
                self._files.upload(files, ".")

    async def _end_everything(self, then: Callable[[], None]) -> None:
        """End all that runs, and do what can be done then. Raises InfrastructureError, OSError if something is left."""
        for execution in self._executions.values():
            await execution.end()
        self._executions.clear()
        if self._namespaces is not None:
            await self._namespaces.end()
        await in_thread(self._clear, then)

    def _clear(self, then: Callable[[], None]) -> None:
        if self._cgroup.folders and self._lease.held:  # else the directory and its groups are another's
            self._machine.hierarchies.remove(cgroup_name(self._lease.root))
        then()

    def _remark(self, program: str, stderr: bytes) -> None:
        """Notice each program that was not found in here and that this machine has, once."""
        for name in missing_programs(program, stderr):
            found = on_this_machine(name, self._machine.path)
            if found is not None and not os.path.lexists(f"/proc/self/fd/{self._require_open().root}{found}"):
                notice = f"program {name}: {found} is on this machine and not in a bubblewrap sandbox, {_SHOWN}"
                self.notices = tuple(dict.fromkeys([*self.notices, notice]))

    async def _lose(self, why: str, oom_kills: int | None = None) -> AttemptFailure:
        """The failure of a sandbox that is good for nothing any more; what still runs in it is ended."""
        namespaces = self._require_open()
        now = await self._oom_kills()
        if oom_kills is not None and now is not None and now > oom_kills:
            self._lost = _failure("SANDBOX_OOM", "it ran out of memory: the kernel killed what holds its commands")
        else:
            self._lost = _failure("SANDBOX_LOST", why)
        with contextlib.suppress(InfrastructureError):  # what would not die is for `close` to tell
            await namespaces.end()
        return self._lost

    async def _oom_kills(self) -> int | None:
        return None if self._cgroup.memory is None else await in_thread(self._cgroup.oom_kills)

    async def _on_files(self, operation: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        self._require_open()
        return await in_thread(operation, *args, **kwargs)

    def _require_open(self) -> Enclosed:
        if self._closed or self._namespaces is None:
            raise _failure("SANDBOX_CLOSED", f"sandbox {self.id} is closed")
        if self._lost is None and self._namespaces.ended:
            self._lost = _failure("SANDBOX_LOST", "the process that held it together is gone")
        if self._lost is not None:
            raise self._lost
        return self._namespaces

    @property
    def _in_memory(self) -> bool:
        return self._spec.resources.disk is not None

    @property
    def _room(self) -> Path:
        return self._seen(ROOM) if self._in_memory else self._lease.root / "room"

    @property
    def _work(self) -> Path:
        return self._seen(WORKDIR) if self._in_memory else self._lease.root / "room/work"

    def _seen(self, path: str) -> Path:
        """A path of the sandbox, for this process."""
        return Path(f"/proc/self/fd/{self._require_open().root}{path}")

    def _folder_of(self, user: Owner, path: Path, seen: str) -> Folder:
        return Folder(path, seen=seen, owner=self._machine.rights.owner(user))


def cgroup_name(root: Path) -> str:
    """The name of the control groups of the sandbox with this directory."""
    return f"evalfleet-{hashlib.sha256(os.fsencode(root)).hexdigest()[:20]}"


def _not_enforced(spec: SandboxSpec, name: str) -> str:
    limit = getattr(spec.resources, name)
    return f"resources.{name}: {limit} is not enforced by this bubblewrap sandbox: no control group can be made here"


def _failure(code: str, message: str) -> AttemptFailure:
    return AttemptFailure(FailureKind.SANDBOX, code, message)
