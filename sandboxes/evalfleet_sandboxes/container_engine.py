"""A container engine through its command line: docker or podman. What differs between them stands here alone."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from evalfleet.errors import AttemptFailure, ConfigurationError, FailureKind, InfrastructureError
from evalfleet.sandbox_ports import Command, CommandResult, Spawner
from evalfleet_sandboxes import relay_start
from evalfleet_sandboxes.blocking import in_thread

#: The variable that names the engine's program.
CHOICE = "EVALFLEET_CONTAINER_ENGINE"
#: How long the engine may take for what takes it a moment, in seconds.
SHORT = 60.0
_CHECK_SECONDS = 20.0
_OUTPUT_LIMIT = 16 << 20
_TAIL = 2000


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class ContainerState(_Answer):
    """How a container is. `pid` is its first process as the engine's host counts, 0 when it does not run."""

    running: bool = Field(alias="Running")
    pid: int = Field(alias="Pid")
    exit_code: int = Field(alias="ExitCode")
    oom_killed: bool = Field(alias="OOMKilled")


class _Configured(_Answer):
    labels: dict[str, str] | None = Field(None, alias="Labels")


class InspectedContainer(_Answer):
    """What the engine knows of a container. `created` is when, as ISO 8601."""

    name: str = Field(alias="Name")
    created: str = Field(alias="Created")
    state: ContainerState = Field(alias="State")
    config: _Configured = Field(alias="Config")

    @property
    def labels(self) -> Mapping[str, str]:
        return self.config.labels or {}

    @property
    def created_at(self) -> float:
        return datetime.fromisoformat(self.created).timestamp()


class ImageConfig(_Answer):
    """What an image says of the containers made of it; empty is unsaid."""

    user: str = Field(default="", alias="User")
    workdir: str = Field(default="", alias="WorkingDir")


class InspectedImage(_Answer):
    """What the engine knows of an image."""

    id: str = Field(alias="Id")
    config: ImageConfig | None = Field(None, alias="Config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What one engine is told in another way than the other.

    `remove` removes a container without any grace. `folder` is the option that makes a folder at the top, where that
    is closed even to a root without capabilities. `copy` brings the ids of a tar along. `groups` prints `none` where
    limits are passed over in silence; None for an engine that says so itself.
    """

    remove: tuple[str, ...]
    folder: str | None
    copy: tuple[str, ...]
    groups: tuple[str, ...] | None


DIALECTS = {
    "docker": Dialect(
        remove=("rm", "--force", "--volumes"),
        folder=None,
        copy=("cp",),
        groups=("info", "--format", "{{.CgroupDriver}}"),
    ),
    "podman": Dialect(
        # without `--ignore` it removes none when one of them is gone, and says that all is well
        remove=("rm", "--force", "--volumes", "--time", "0", "--ignore"),
        folder="--volume",
        copy=("cp", "--archive=false"),
        groups=None,
    ),
}


class Engine:
    """Calls an engine's client. Its environment is all that the client sees of ours.

    It works in `folder`: podman's monitors leave a file where they stand when memory runs out.
    """

    def __init__(self, program: str, spawner: Spawner, environment: Mapping[str, str], folder: Path) -> None:
        self.program = program
        self.spawner = spawner
        self._environment = environment
        self._folder = folder
        self._leaving: dict[str, asyncio.Future[None]] = {}
        self._removing: asyncio.Task[None] | None = None
        #: Whether its storage may limit a container's disk: until it refused that.
        self.has_quotas = True
        self._limits: bool | None = None
        self.dialect = DIALECTS.get(Path(program).name, DIALECTS["docker"])

    async def call(
        self,
        *args: str,
        group: str | None = None,
        stdin: bytes | None = None,
        timeout: float | None = SHORT,
        limit: int = _OUTPUT_LIMIT,
        into: Path | None = None,
    ) -> CommandResult:
        """Run the client to its end, its output into a file where `into` names one.

        What it leaves in the background (podman's monitors of containers) belongs to `group`. Raises AttemptFailure
        of kind sandbox when the client can't be run.
        """
        argv = (self.program, *args)
        if into is not None:
            argv = ("sh", "-c", 'exec "$@" >"$0"', str(into.absolute()), *argv)
        command = Command(argv=argv, cwd=str(self._folder), stdin=stdin, timeout=timeout, output_limit=limit)
        return await self._run(command, group)

    async def attach(self, place: Path, *args: str, group: str) -> CommandResult:
        """Run the client to its end with a stream of the socket that listens at `place` as its stdin and stdout."""
        start = (sys.executable, "-I", "-S", relay_start.__file__, str(place))
        return await self._run(Command(argv=(*start, self.program, *args), cwd=str(self._folder)), group)

    async def _run(self, command: Command, group: str | None) -> CommandResult:
        try:
            return await self.spawner.run(command, base_env=self._environment, group=group)
        except InfrastructureError as error:
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_LOST", str(error)) from error
        except OSError as error:
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_FAILED", f"{self.program}: {error}") from error

    async def limits(self) -> bool:
        """Whether limits are more than words to it, as far as it does not say so by itself. Asked once."""
        if self._limits is None:
            asked = None if self.dialect.groups is None else await self.call(*self.dialect.groups)
            self._limits = asked is None or asked.text.strip() != "none"
        return self._limits

    async def end(self, group: str) -> None:
        """Kill what calls left in the background. Raises InfrastructureError when something won't die."""
        await self.spawner.end(group)

    async def containers(self, names: Sequence[str]) -> list[InspectedContainer]:
        """Those of the named containers that exist. Raises AttemptFailure when the engine does not answer."""
        if not names:
            return []
        result = await self.call("container", "inspect", *names)
        try:
            return TypeAdapter(list[InspectedContainer]).validate_json(result.stdout)
        except ValidationError as error:
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_FAILED", self.said(result)) from error

    async def image(self, reference: str) -> InspectedImage | None:
        """The image if the engine has it here."""
        result = await self.call("image", "inspect", reference)
        try:
            images = TypeAdapter(list[InspectedImage]).validate_json(result.stdout)
        except ValidationError:
            return None
        return images[0] if images else None

    async def labelled(self, label: str) -> list[InspectedContainer]:
        """The containers with a label `name=value`, those that ended too."""
        result = await self.call("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}")
        if not result.ok:
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_FAILED", self.said(result))
        return await self.containers(result.text.split())

    async def remove(self, name: str) -> None:
        """Kill and remove a container that may be gone already. Raises AttemptFailure SANDBOX_CLEANUP_FAILED.

        Those that are to be removed meanwhile go together: fifty calls at once take many times as long as one.
        """
        removed = self._leaving.setdefault(name, asyncio.get_running_loop().create_future())
        if self._removing is None:
            self._removing = asyncio.create_task(self._remove(), name="removing containers")
        await asyncio.shield(removed)

    async def _remove(self) -> None:
        while self._leaving:
            leaving, self._leaving = self._leaving, {}
            left: dict[str, str] = {}
            try:
                result = await self.call(*self.dialect.remove, *leaving)
                if not result.ok:  # those that were gone are an error too
                    said, there = self.said(result), await self.containers([*leaving])
                    left = {container.name.removeprefix("/"): said for container in there}
            except AttemptFailure as failure:
                left = dict.fromkeys(leaving, str(failure))
            for name, removed in leaving.items():
                if name not in left:
                    removed.set_result(None)
                else:
                    failure = AttemptFailure(FailureKind.SANDBOX, "SANDBOX_CLEANUP_FAILED", left[name])
                    removed.set_exception(failure)
        self._removing = None

    def said(self, result: CommandResult) -> str:
        """What the client said last, as one line."""
        text = result.stderr[-_TAIL:].decode("utf-8", "replace") or result.text[-_TAIL:]
        lines = [line for line in text.splitlines() if line.strip()]
        said = lines[-1].strip() if lines else "nothing" if not result.timed_out else "no answer in time"
        return f"{self.program} said: {said}"


async def choose_engine(spawner: Spawner, environment: Mapping[str, str], folder: Path) -> Engine:
    """The engine that the environment names, else the first of docker and podman that answers.

    Its client works in `folder`, which is made. Raises ConfigurationError.
    """
    await in_thread(folder.mkdir, parents=True, exist_ok=True)
    named = environment.get(CHOICE)
    faults: list[str] = []
    for program in (named,) if named else tuple(DIALECTS):
        engine = Engine(program, spawner, environment, folder)
        try:
            result = await engine.call("ps", "--quiet", timeout=_CHECK_SECONDS)
        except AttemptFailure as failure:
            faults.append(str(failure) if named else f"{program} can't be run")
            continue
        if result.ok:
            return engine
        faults.append(engine.said(result))
    remedy = f"install and start one of them, or name another by {CHOICE}"
    raise ConfigurationError(f"no container engine answers ({'; '.join(faults)}): {remedy}")
