"""Every sandbox backend that ships passes the public suite."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import SandboxPlace, SandboxProvider
from evalfleet.testing.sandbox_suite import sandbox_suite
from evalfleet_sandboxes import local


@asynccontextmanager
async def local_provider(state: Path) -> AsyncGenerator[SandboxProvider]:
    spawner = SystemSpawner()
    provider = local.factory.build(SandboxPlace(state=state, spawner=spawner))
    try:
        yield provider
    finally:
        await provider.close()
        await spawner.close()
        assert list(state.iterdir()) == []


TestLocal = sandbox_suite(local_provider)
