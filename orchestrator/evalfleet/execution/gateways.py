"""The way out of an attempt's closed sandbox, and how the commands in it learn of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.execution.state import AttemptState
from evalfleet.model.definition import SandboxSpec
from evalfleet.sandbox_ports import Command, CommandResult, Execution, Listening, Sandbox


async def open_gateway(state: AttemptState, sandbox: Sandbox, spec: SandboxSpec, *, closed: bool) -> Sandbox:
    """The sandbox with the attempt's gateway in it, or as it was when the attempt needs none.

    `closed` says that its backend isolates: where it doesn't, every host can be reached, as its notices say.

    Raises AttemptFailure of kind sandbox.
    """
    gateway, attempt = state.services.gateway, state.job.attempt
    allow = () if isinstance(spec.network, str) else spec.network
    if gateway is None or spec.network == "open" or not gateway.is_needed(attempt, allow):
        return sandbox
    if not isinstance(sandbox, Listening):
        if not allow or not closed:
            return sandbox
        message = f"the backend {spec.backend!r} can't let single hosts through: use network: none or open"
        raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_UNSUPPORTED", message)
    opened = state.gateway = await gateway.open(sandbox, attempt, allow)
    return WithVariables(sandbox, opened.environment)


async def close_gateway(state: AttemptState) -> None:
    """Close what `open_gateway` opened, and note what was asked of it in vain."""
    gateway, state.gateway = state.gateway, None
    if gateway is not None:
        if gateway.refused:
            hosts = ", ".join(dict.fromkeys(gateway.refused))
            state.note(f"sandbox: refused hosts that network does not allow: {hosts}")
        await gateway.close()


class WithVariables:
    """A sandbox whose commands all find some variables more in their environment, unless they set them themselves."""

    def __init__(self, inner: Sandbox, variables: Mapping[str, str]) -> None:
        self._inner = inner
        self._variables = variables

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def workdir(self) -> str:
        return self._inner.workdir

    @property
    def tree(self) -> Path | None:
        return self._inner.tree

    async def run(self, command: Command) -> CommandResult:
        return await self._inner.run(self._told(command))

    async def start(self, command: Command) -> Execution:
        return await self._inner.start(self._told(command))

    async def attach(self, execution: str) -> Execution:
        return await self._inner.attach(execution)

    async def probe(self) -> None:
        await self._inner.probe()

    async def read(self, path: str) -> bytes:
        return await self._inner.read(path)

    async def write(self, path: str, data: bytes) -> None:
        await self._inner.write(path, data)

    async def upload(self, source: Path, target: str) -> None:
        await self._inner.upload(source, target)

    async def download(self, source: str, target: Path) -> None:
        await self._inner.download(source, target)

    async def export(self, target: Path) -> None:
        await self._inner.export(target)

    async def reset(self) -> None:
        await self._inner.reset()

    async def close(self) -> None:
        await self._inner.close()

    def _told(self, command: Command) -> Command:
        return replace(command, env={**self._variables, **command.env})
