"""What each conformance check of a sandbox gets, and how it looks at the processes of the host."""

from __future__ import annotations

import itertools
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from evalfleet.clock import SystemClock
from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.model.definition import SandboxSpec
from evalfleet.ports import Clock
from evalfleet.sandbox_ports import Command, CommandResult, Sandbox, SandboxProvider, Unenforced
from evalfleet.testing.runner import pytest

#: Opens a provider that keeps its directories below a state folder; may be open several times on the same one.
MakeProvider = Callable[[Path], AbstractAsyncContextManager[SandboxProvider]]

#: Seconds that no check waits out, far beyond any it would: a `sleep` that only a kill ends.
_FOREVER = itertools.count(1_000_000_000 + os.getpid() * 1_000)
_PATIENCE_SECONDS = 10.0
_LOOK_SECONDS = 0.02


@dataclass(slots=True)
class Subject:
    """A provider under test with one fresh sandbox of it, and an empty folder on the host.

    `make` opened the provider on `state`; `image` is what its sandboxes start from, None without images.
    """

    provider: SandboxProvider
    sandbox: Sandbox
    folder: Path
    state: Path
    make: MakeProvider
    image: str | None = None
    clock: Clock = field(default_factory=SystemClock)

    async def run(self, *argv: str, stdin: bytes | None = None, timeout: float | None = 60.0) -> CommandResult:
        return await self.sandbox.run(Command(argv=argv, stdin=stdin, timeout=timeout))

    async def shell(self, script: str, *, timeout: float | None = 60.0) -> CommandResult:
        return await self.run("sh", "-c", script, timeout=timeout)

    async def create(self, owner: str, spec: SandboxSpec | None = None) -> Sandbox:
        return await self.provider.create(replace(spec or SandboxSpec(), image=self.image), owner)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition holds; an AssertionError names `what` did not come true in time."""
        end = self.clock.monotonic() + _PATIENCE_SECONDS
        while not condition():
            assert self.clock.monotonic() < end, f"not within {_PATIENCE_SECONDS:g} s: {what}"
            await self.clock.sleep(_LOOK_SECONDS)

    async def comes_true(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        """Like `until`, for what has to be awaited."""
        end = self.clock.monotonic() + _PATIENCE_SECONDS
        while not await condition():
            assert self.clock.monotonic() < end, f"not within {_PATIENCE_SECONDS:g} s: {what}"
            await self.clock.sleep(_LOOK_SECONDS)

    def needs_isolation(self) -> None:
        """Skip the check on a backend that says that it isolates nothing."""
        if not self.provider.isolates:
            pytest.skip(f"the backend {self.provider.name} says that it isolates nothing")

    async def started(self, forever: str) -> None:
        await self.until(lambda: alive(forever) > 0, f"sleep {forever} runs")

    async def dead(self, forever: str) -> None:
        await self.until(lambda: alive(forever) == 0, f"sleep {forever} is dead")


async def refused(operation: Awaitable[object], code: str) -> AttemptFailure:
    """The failure of kind sandbox with this code that the operation has to end with."""
    with pytest.raises(AttemptFailure) as caught:
        await operation
    assert (caught.value.kind, caught.value.code) == (FailureKind.SANDBOX, code)
    return caught.value


def notices(sandbox: Sandbox, about: str) -> list[str]:
    """What the sandbox says that it does not enforce of `about`: `network` or `resources.memory`, say."""
    return [notice for notice in sandbox.notices if about in notice] if isinstance(sandbox, Unenforced) else []


def forever() -> str:
    """An argument for `sleep` that nobody else uses, so that `alive` finds its process."""
    return str(next(_FOREVER))


def alive(seconds: str) -> int:
    """How many processes of the host run `sleep seconds`."""
    wanted = b"sleep\0" + seconds.encode() + b"\0"
    return sum(_command_line(process) == wanted for process in Path("/proc").iterdir() if process.name.isdigit())


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""
