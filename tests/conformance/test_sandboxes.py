"""Every sandbox backend that ships passes the public suite."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from evalfleet.errors import ConfigurationError
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import SandboxFactory, SandboxPlace, SandboxProvider
from evalfleet.testing.sandbox_suite import sandbox_suite
from evalfleet_sandboxes import bubblewrap, local


@asynccontextmanager
async def opened(factory: SandboxFactory, state: Path) -> AsyncGenerator[SandboxProvider]:
    before = set(state.iterdir()) if state.exists() else set[Path]()
    spawner = SystemSpawner()
    environment = {"PATH": os.environ["PATH"]}
    provider = factory.build(SandboxPlace(state=state, spawner=spawner, environment=environment))
    try:
        yield provider
    finally:
        await provider.close()
        await spawner.close()
        assert set(state.iterdir() if state.exists() else ()) - before == set()


@asynccontextmanager
async def local_provider(state: Path) -> AsyncGenerator[SandboxProvider]:
    async with opened(local.factory, state) as provider:
        yield provider


@asynccontextmanager
async def bubblewrap_provider(state: Path) -> AsyncGenerator[SandboxProvider]:
    async with opened(bubblewrap.factory, state) as provider:
        yield provider


@pytest.fixture(scope="session")
def bubblewrap_works(tmp_path_factory: pytest.TempPathFactory) -> None:
    async def check() -> None:
        async with bubblewrap_provider(tmp_path_factory.mktemp("check")) as provider:
            await provider.check()

    try:
        asyncio.run(check())
    except ConfigurationError as error:
        pytest.skip(str(error))


TestLocal = sandbox_suite(
    local_provider,
    deviations={
        "the_user_of_the_spec_runs_everything_and_owns_the_workdir": "a local sandbox has no users of its own",
        "a_command_may_name_another_user": "a local sandbox has no users of its own",
    },
)

_ONE_USER = {"a_command_may_name_another_user": "an ordinary user may map itself only into a user namespace"}
TestBubblewrap = pytest.mark.usefixtures("bubblewrap_works")(
    sandbox_suite(bubblewrap_provider, deviations={} if os.geteuid() == 0 else _ONE_USER)
)
