"""One attempt's stay in its sandbox: made, used and closed, and what each part of that took."""

from __future__ import annotations

from dataclasses import replace

from evalfleet.model.definition import SandboxSpec
from evalfleet.model.sandbox import SandboxUse
from evalfleet.ports import Clock
from evalfleet.sandbox_ports import Sandbox, SandboxProvider


class SandboxStay:
    """The sandbox of one attempt from its beginning to its end. `use` says so far what it took.

    A sandbox that can't be made is no start, but the time it took is counted.
    """

    __slots__ = ("_clock", "_provider", "_ready_at", "sandbox", "use")

    def __init__(self, provider: SandboxProvider, clock: Clock) -> None:
        self._provider = provider
        self._clock = clock
        self._ready_at = 0.0
        self.sandbox: Sandbox | None = None
        self.use = SandboxUse(backend=provider.name, starts=0, making=0.0)

    async def begin(self, spec: SandboxSpec, owner: str) -> Sandbox:
        """Make the sandbox. Raises what the provider raises."""
        began = self._clock.monotonic()
        try:
            sandbox = self.sandbox = await self._provider.create(spec, owner=owner)
        finally:
            self._ready_at = self._clock.monotonic()
            starts = 0 if self.sandbox is None else 1
            self.use = replace(self.use, starts=starts, making=self._ready_at - began)
        return sandbox

    async def end(self) -> None:
        """Close the sandbox, if there is one. Raises what closing it raises."""
        sandbox, self.sandbox = self.sandbox, None
        if sandbox is None:
            return
        began = self._clock.monotonic()
        self.use = replace(self.use, using=began - self._ready_at)
        try:
            await sandbox.close()
        finally:
            self.use = replace(self.use, closing=self._clock.monotonic() - began)
