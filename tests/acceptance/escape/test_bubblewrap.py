"""No way leads out of a bubblewrap sandbox, and none of them harms its neighbour."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evalfleet.errors import ConfigurationError
from evalfleet.model.definition import SandboxSpec
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import SandboxPlace
from evalfleet_sandboxes.bubblewrap import factory
from tests.acceptance.escape.attempts import TRIES, scene


@pytest.mark.parametrize("name", TRIES)
async def test_a_way_out_is_none(name: str, tmp_path: Path) -> None:
    spawner = SystemSpawner()
    environment = {"PATH": os.environ["PATH"]}
    provider = factory.build(SandboxPlace(state=tmp_path / "state", spawner=spawner, environment=environment))
    try:
        try:
            await provider.check()
        except ConfigurationError as error:
            pytest.skip(str(error))
        async with scene(provider, SandboxSpec(), tmp_path) as here:
            await TRIES[name](here)
    finally:
        await provider.close()
        await spawner.close()
