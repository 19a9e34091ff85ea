"""The sandbox `container`: one container of docker or podman for each sandbox, reached through the engine's client.

No capabilities, no new privileges, no network unless asked for, limits as far as the engine enforces them. The
engine may be anywhere its client reaches: commands and files go through `exec` alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command, CommandResult, FoundSandbox, SandboxPlace
from evalfleet_sandboxes.blocking import in_thread
from evalfleet_sandboxes.container_box import WORKDIR, Box, BoxPlan
from evalfleet_sandboxes.container_engine import Engine, choose_engine
from evalfleet_sandboxes.container_images import Images
from evalfleet_sandboxes.container_owner import Owner
from evalfleet_sandboxes.remote_commands import RemoteCommands, RemoteExecution
from evalfleet_sandboxes.remote_files import RemoteFiles

_STDERR_TAIL = 2000
_LOCALE = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


class ContainerSandbox:
    """One attempt's container. `notices` says what of the spec is not enforced. See `Sandbox` for what it raises."""

    def __init__(
        self, engine: Engine, plan: BoxPlan, scratch: Path, on_closed: Callable[[ContainerSandbox], None]
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._scratch = scratch
        self._on_closed = on_closed
        self._closed = False
        self._changing = asyncio.Lock()
        self.notices: tuple[str, ...] = ()
        self._enter(Box(engine, plan), {})

    @property
    def id(self) -> str:
        return self._plan.name

    @property
    def workdir(self) -> str:
        return self._plan.workdir

    @property
    def tree(self) -> Path | None:
        return None

    async def run(self, command: Command) -> CommandResult:
        return await self._commands.run(command)

    async def start(self, command: Command) -> RemoteExecution:
        return await self._commands.start(command)

    async def attach(self, execution: str) -> RemoteExecution:
        self._box.require_open()
        return self._commands.attach(execution)

    async def probe(self) -> None:
        await self._files.probe()

    async def read(self, path: str) -> bytes:
        return await self._files.read(path)

    async def write(self, path: str, data: bytes) -> None:
        await self._files.write(path, data)

    async def upload(self, source: Path, target: str) -> None:
        await self._files.upload(source, target)

    async def download(self, source: str, target: Path) -> None:
        await self._files.download(source, target)

    async def export(self, target: Path) -> None:
        await self._files.export(target)

    async def reset(self) -> None:
        """A new container of the same image: nothing of the old one is in it."""
        async with self._changing:
            if self._closed:
                self._box.require_open()
            await self._leave()
            self._enter(Box(self._engine, self._plan), {})
            try:
                await self._fill()
            except AttemptFailure as failure:
                raise _failure("SANDBOX_UNCLEAN", f"it could not be made anew: {failure}") from failure

    async def close(self) -> None:
        self._closed = True
        async with self._changing:
            await self._leave()
            self._on_closed(self)

    async def prepare(self) -> None:
        """Start the container, copy the files, run the setup commands."""
        async with self._changing:
            await self._fill()

    async def _fill(self) -> None:
        spec = self._plan.spec
        facts = await self._box.start()
        locale = {} if {"LANG", "LC_ALL"} & set(spec.env) else _LOCALE
        self._enter(self._box, {"HOME": facts.home, **locale, **spec.env})
        self.notices = (*_not_enforced(self._plan), *self._box.warnings)
        if spec.files is not None:
            await self._copy(Path(spec.files))
        shell = ("sh", "-ec") if facts.bash is None else (facts.bash, "-eo", "pipefail", "-c")
        for number, line in enumerate(spec.setup, start=1):
            result = await self._commands.run(Command(argv=(*shell, line)))
            if not result.ok:
                ending = f"exit code {result.exit_code}" if result.signal is None else f"signal {result.signal}"
                tail = result.stderr[-_STDERR_TAIL:].decode("utf-8", "replace")
                place = f"setup command {number} of {len(spec.setup)}"
                raise _failure("SANDBOX_SETUP_FAILED", f"{place} ended with {ending}: {line}\n{tail}".rstrip())

    async def _copy(self, source: Path) -> None:
        if not await in_thread(source.is_dir):
            raise _failure("SANDBOX_FILES_MISSING", f"files: {source} is not a directory")
        try:
            await self._files.upload(source, "")
        except PermissionError as error:
            raise _failure("SANDBOX_FILES_REFUSED", f"files: {error}") from error

    def _enter(self, box: Box, env: Mapping[str, str]) -> None:
        self._box = box
        self._commands = RemoteCommands(box, box.inner, env)
        self._files = RemoteFiles(box, self._plan.workdir, self._scratch)

    async def _leave(self) -> None:
        await self._box.remove()
        await self._commands.end_all()


class ContainerProvider:
    """Makes containers with one engine, chosen when it is first needed. `place.state` gets what comes out of them."""

    name = "container"
    isolates = True
    outlives = True

    def __init__(self, place: SandboxPlace) -> None:
        self._place = place
        self._engine: Engine | None = None
        self._choosing = asyncio.Lock()
        self._images = Images(place.state / "builds")
        self._owner = Owner.of(place)
        self._numbers = itertools.count(1)
        self._open: set[ContainerSandbox] = set()

    async def check(self) -> None:
        self._engine = None
        await self._chosen()

    async def bring(self, spec: SandboxSpec) -> None:
        """Fetch or build the image of later sandboxes. What goes wrong they tell."""
        with contextlib.suppress(AttemptFailure):
            await self._images.image(await self._chosen(), spec)

    async def create(self, spec: SandboxSpec, owner: str) -> ContainerSandbox:
        """A fresh sandbox; `spec.files` and `spec.build` are absolute or start at this process's directory.

        Raises AttemptFailure of kind sandbox: SANDBOX_UNSUPPORTED for what this backend can't do, what `Images.image`
        raises, SANDBOX_IMAGE_UNFIT, SANDBOX_FILES_MISSING, SANDBOX_FILES_REFUSED, SANDBOX_SETUP_FAILED.
        """
        if refused := list(_unsupported(spec)):
            raise _failure("SANDBOX_UNSUPPORTED", f"the container sandbox has {'; '.join(refused)}")
        engine = await self._chosen()
        reference, image = await self._images.image(engine, spec)
        await in_thread(self._place.state.mkdir, parents=True, exist_ok=True)
        said = image.config
        plan = BoxPlan(
            name=self._owner.name(owner, next(self._numbers)),
            image=reference,
            workdir=said.workdir if said is not None and said.workdir.strip("/") else WORKDIR,
            user=spec.user or (said.user if said is not None and said.user else None),
            labels=self._owner.labels(owner),
            spec=spec,
        )
        sandbox = ContainerSandbox(engine, plan, self._place.state, self._open.discard)
        self._open.add(sandbox)
        try:
            await sandbox.prepare()
        except BaseException as error:
            await asyncio.shield(sandbox.close())
            if isinstance(error, AttemptFailure) and error.code == "SANDBOX_IMAGE_UNFIT":
                self._images.is_unfit(spec, error)
            raise
        return sandbox

    async def found(self) -> list[FoundSandbox]:
        engine = await self._chosen()
        return [self._owner.found(container) for container in await engine.labelled(self._owner.place_label)]

    async def reap(self, sandbox: FoundSandbox) -> None:
        """Remove a container of ours whose process is not known to live."""
        engine = await self._chosen()
        for container in await engine.containers((sandbox.id,)):
            if self._owner.placed(container) and self._owner.found(container).alive is not True:
                await engine.remove(sandbox.id)

    async def close(self) -> None:
        await self._images.close()
        outcomes = await asyncio.gather(*[sandbox.close() for sandbox in self._open], return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome  # the first, after all had their turn

    async def _chosen(self) -> Engine:
        async with self._choosing:
            if self._engine is None:
                self._engine = await choose_engine(self._place.spawner, self._place.environment)
            return self._engine


class ContainerFactory:
    """Entry point `container` of `evalfleet.sandboxes`."""

    name = "container"

    def build(self, place: SandboxPlace) -> ContainerProvider:
        return ContainerProvider(place)


factory = ContainerFactory()


def _unsupported(spec: SandboxSpec) -> Iterator[str]:
    if not spec.image and not spec.build:
        yield "no image to start from (neither image nor build is set)"
    if spec.network not in ("none", "open"):
        wanted = spec.network if isinstance(spec.network, str) else ", ".join(spec.network)
        yield f"no network to some hosts only (network: {wanted})"
    if unresolved := [name for name in spec.env_from if name not in spec.env]:
        yield f"no access to secrets, which have to be in env by now (env_from: {', '.join(unresolved)})"


def _not_enforced(plan: BoxPlan) -> Iterator[str]:
    if plan.spec.resources.disk is not None and not plan.with_disk:
        yield f"resources.disk: {plan.spec.resources.disk} is not enforced: this engine's storage has no quotas"


def _failure(code: str, message: str) -> AttemptFailure:
    return AttemptFailure(FailureKind.SANDBOX, code, message)
