"""A provider of bubblewrap sandboxes, where this machine makes them."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from evalfleet.errors import ConfigurationError
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import SandboxPlace
from evalfleet_sandboxes.bubblewrap import BubblewrapProvider, factory


@pytest.fixture
async def bubblewrap(tmp_path: Path) -> AsyncGenerator[BubblewrapProvider]:
    spawner = SystemSpawner()
    provider = factory.build(
        SandboxPlace(state=tmp_path / "state", spawner=spawner, environment={"PATH": os.environ["PATH"]})
    )
    try:
        await provider.check()
    except ConfigurationError as error:
        await spawner.close()
        pytest.skip(str(error))
    yield provider
    await provider.close()
    await spawner.close()
