"""The sandbox `container`: one container of docker or podman for each sandbox, reached through the engine's client.

No capabilities, no new privileges, no network unless asked for, limits as far as the engine enforces them. The
engine may be anywhere its client reaches: commands and files go through `exec` alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from evalfleet.errors import AttemptFailure, ConfigurationError, FailureKind
from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command, CommandResult, FoundSandbox, Inlet, Opening, SandboxPlace
from evalfleet_sandboxes.blocking import in_thread
from evalfleet_sandboxes.container_box import WORKDIR, Box, BoxPlan
from evalfleet_sandboxes.container_engine import Engine, ImageConfig, choose_engine
from evalfleet_sandboxes.container_images import Images
from evalfleet_sandboxes.container_owner import Owner, entry_labels, entry_options, kept_mark
from evalfleet_sandboxes.container_relay import relay_in
from evalfleet_sandboxes.kept_environment import leave_environment, left_environment
from evalfleet_sandboxes.listening import listen_in
from evalfleet_sandboxes.making import bringing_files, close_all, made, starting_files, unresolved_secrets
from evalfleet_sandboxes.relay import Relays
from evalfleet_sandboxes.relay_program import RELAY_IMAGE
from evalfleet_sandboxes.remote_commands import RemoteCommands, RemoteExecution
from evalfleet_sandboxes.remote_files import RemoteFiles
from evalfleet_sandboxes.setup_commands import set_up

_WHILE_ENTERED = '"$1" start "$0" >/dev/null && { "$@"; "$1" kill "$0" >/dev/null; }'
_LOCALE = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


class ContainerSandbox:
    """One attempt's container. `notices` says what of the spec is not enforced. See `Sandbox` for what it raises."""

    def __init__(
        self,
        engine: Engine,
        plan: BoxPlan,
        scratch: Path,
        on_closed: Callable[[ContainerSandbox], None],
        opening: Opening | None = None,
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._scratch = scratch
        self._on_closed = on_closed
        self._opening = opening
        self._closed = False
        self._changing = asyncio.Lock()
        self._place = plan.workdir
        self.notices: tuple[str, ...] = ()
        self._of_place: Mapping[str, str] = {}
        self._relays = Relays(relay_in(engine, plan))
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
        self._box.require_open()
        self._relays.require()
        if not await in_thread(self._is_there):
            await self._files.probe()

    async def listen(self) -> Inlet:
        """See `Listening.listen`: in its network, or by a relay where that can't be entered."""
        await self._box.require_alive()
        if await in_thread(self._box.seen_here) is not None:
            with contextlib.suppress(AttemptFailure), tempfile.TemporaryDirectory(dir=self._scratch) as folder:
                return await listen_in(f"/proc/{self._box.pid}/ns/net", self._engine.spawner, Path(folder))
        return await self._relays.listen()

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

    async def keep(self) -> None:
        """See `Keepable.keep`: the container stays as it is, stopped."""
        self._closed = True
        async with self._changing:
            await self._relays.close()
            await self._box.stop()
            await in_thread(leave_environment, kept_mark(self._scratch, self.id), self._plan.spec, self._of_place)
            await self._commands.end_all()
            self._on_closed(self)

    async def prepare(self) -> None:
        """Start the container, open its way out, copy the files, run the setup commands."""
        async with self._changing:
            await self._fill()

    async def _fill(self) -> None:
        spec = self._plan.spec
        facts = await self._box.start()
        self._place = facts.place
        locale = {} if {"LANG", "LC_ALL"} & set(spec.env) else _LOCALE
        opened: Mapping[str, str] = {} if self._opening is None else await self._opening(self)
        self._of_place = {"HOME": facts.home, **locale}
        self._enter(self._box, {**self._of_place, **spec.env, **opened})
        self.notices = (*_not_enforced(spec, self._box), *self._box.warnings)
        if (files := await in_thread(starting_files, spec)) is not None:
            with bringing_files():
                await self._files.upload(files, "")
        await set_up(spec.setup, facts.bash, self._commands.run)

    def _is_there(self) -> bool:
        """Whether this machine shows the workdir of the living container, which costs no exec."""
        process = self._box.seen_here()
        try:
            return process is not None and stat.S_ISDIR(os.lstat(f"{process}/root{self._place}").st_mode)
        except OSError:
            return False

    def _enter(self, box: Box, env: Mapping[str, str]) -> None:
        self._box = box
        self._commands = RemoteCommands(box, box.inner, env)
        self._files = RemoteFiles(box, self._plan.workdir, self._scratch, box.copying)

    async def _leave(self) -> None:
        await self._relays.close()
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
        return await self._created(spec, owner)

    async def create_reachable(self, spec: SandboxSpec, owner: str, opening: Opening) -> ContainerSandbox:
        """See `Reachable.create_reachable`."""
        return await self._created(spec, owner, opening)

    async def _created(self, spec: SandboxSpec, owner: str, opening: Opening | None = None) -> ContainerSandbox:
        if refused := list(_unsupported(spec)):
            raise _failure("SANDBOX_UNSUPPORTED", f"the container sandbox has {'; '.join(refused)}")
        engine = await self._chosen()
        reference, image = await self._images.image(engine, spec)
        said = image.config or ImageConfig()
        workdir = said.workdir if said.workdir.strip("/") else WORKDIR
        user = spec.user or said.user or None
        plan = BoxPlan(
            name=self._owner.name(owner, next(self._numbers)),
            image=reference,
            workdir=workdir,
            user=user,
            labels=(*self._owner.labels(owner), *entry_labels(workdir, user)),
            spec=spec,
            relay_image=self._place.environment.get(RELAY_IMAGE),
        )
        sandbox = ContainerSandbox(engine, plan, self._place.state, self._open.discard, opening)
        self._open.add(sandbox)
        try:
            return await made(sandbox, sandbox.prepare())
        except AttemptFailure as error:
            if error.code == "SANDBOX_IMAGE_UNFIT":
                self._images.is_unfit(spec, error)
            raise

    async def found(self) -> list[FoundSandbox]:
        engine = await self._chosen()
        return [self._owner.found(container) for container in await engine.labelled(self._owner.place_label)]

    async def reap(self, sandbox: FoundSandbox) -> None:
        """Remove a container of ours that was kept or whose process is not known to live."""
        engine = await self._chosen()
        for container in await engine.containers((sandbox.id,)):
            found = self._owner.found(container)
            if self._owner.placed(container) and (found.kept or found.alive is not True):
                await engine.remove(sandbox.id)
                await in_thread(kept_mark(self._place.state, sandbox.id).unlink, missing_ok=True)

    async def enter_argv(self, sandbox: FoundSandbox) -> tuple[str, ...]:
        """See `Enterable.enter_argv`: a kept container runs as long as the shell does."""
        engine = await self._chosen()
        for container in await engine.containers((sandbox.id,)):
            if self._owner.placed(container):
                left = await in_thread(left_environment, kept_mark(self._place.state, sandbox.id))
                given = [option for name, text in left.items() for option in ("--env", f"{name}={text}")]
                options = (*entry_options(container), *given)
                shell = (engine.program, "exec", "--interactive", "--tty", *options, sandbox.id, "sh")
                return shell if container.state.running else ("sh", "-c", _WHILE_ENTERED, sandbox.id, *shell)
        raise ConfigurationError(f"there is no container {sandbox.id} any more")

    async def close(self) -> None:
        await self._images.close()
        await close_all(self._open)

    async def _chosen(self) -> Engine:
        async with self._choosing:
            if self._engine is None:
                place = self._place
                self._engine = await choose_engine(place.spawner, place.environment, place.state / "engine")
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
    yield from unresolved_secrets(spec)


def _not_enforced(spec: SandboxSpec, box: Box) -> Iterator[str]:
    if spec.resources.disk is not None and not box.limits_disk:
        yield f"resources.disk: {spec.resources.disk} is not enforced: the engine's storage has no quota for it"


def _failure(code: str, message: str) -> AttemptFailure:
    return AttemptFailure(FailureKind.SANDBOX, code, message)
