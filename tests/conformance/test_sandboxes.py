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
    before = set(state.iterdir()) if state.exists() else set[Path]()
    spawner = SystemSpawner()
    provider = local.factory.build(SandboxPlace(state=state, spawner=spawner))
    try:
        yield provider
    finally:
        await provider.close()
        await spawner.close()
        assert set(state.iterdir()) - before == set()


TestLocal = sandbox_suite(
    local_provider,
    deviations={
        "the_user_of_the_spec_runs_everything_and_owns_the_workdir": "a local sandbox has no users of its own",
        "a_command_may_name_another_user": "a local sandbox has no users of its own",
    },
)
