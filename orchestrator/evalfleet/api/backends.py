"""The sandbox backends of one process: each installed one is built when it is first asked for."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from evalfleet.errors import ConfigurationError
from evalfleet.plugins import sandbox_factories
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import SandboxPlace, SandboxProvider, Spawner
from evalfleet.settings import engine_environment

if TYPE_CHECKING:
    from evalfleet.planning.plan import Plan


class Backends:
    """One provider a backend, with its directories below the state folder. `run` is whose sandboxes it makes."""

    def __init__(self, state_dir: Path, spawner: Spawner, run: str) -> None:
        self._state = state_dir / "sandboxes"
        self._spawner = spawner
        self._labels = {"run": run, "host": socket.gethostname(), "pid": str(os.getpid())}
        self._made: dict[str, SandboxProvider] = {}

    def provider(self, name: str) -> SandboxProvider:
        """Raises ConfigurationError when no package provides the backend, or the one that does is broken."""
        if name not in self._made:
            place = SandboxPlace(
                state=self._state / name,
                spawner=self._spawner,
                environment=engine_environment(),
                labels=self._labels,
            )
            self._made[name] = sandbox_factories()[name].build(place)
        return self._made[name]

    async def check(self, names: Iterable[str]) -> None:
        """Raises ConfigurationError when one of these backends does not work here."""
        for name in names:
            await self.provider(name).check()

    async def close(self) -> None:
        for provider in self._made.values():
            await provider.close()


def backends_of(plan: Plan) -> tuple[str, ...]:
    """The names of the backends that a run of the plan makes sandboxes with."""
    return tuple(sorted({spec.backend for spec in plan.sandboxes.values() if spec is not None and spec.backend}))


async def check_backends(names: Iterable[str], state_dir: Path, run: str) -> None:
    """Raises ConfigurationError when one of these backends does not work on this machine."""
    spawner = SystemSpawner()
    backends = Backends(state_dir, spawner, run)
    try:
        await backends.check(names)
    finally:
        await backends.close()
        await spawner.close()


async def backend_faults(state_dir: Path) -> dict[str, str | None]:
    """What keeps each installed backend from working here, None where nothing does."""
    faults: dict[str, str | None] = {}
    for name in sandbox_factories():
        try:
            await check_backends((name,), state_dir, run="")
            faults[name] = None
        except ConfigurationError as error:
            faults[name] = str(error)
    return faults
