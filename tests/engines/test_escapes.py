"""No way leads out of a container, and none of them harms its neighbour."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalfleet.model.definition import SandboxSpec
from tests.acceptance.escape.attempts import TRIES, scene
from tests.engines.engines import IMAGE, provider_of

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="function")]


@pytest.mark.parametrize("name", TRIES)
async def test_a_way_out_is_none(engine: str, name: str, tmp_path: Path) -> None:
    async with (
        provider_of(engine, tmp_path / "state") as provider,
        scene(provider, SandboxSpec(image=IMAGE), tmp_path) as here,
    ):
        await TRIES[name](here)
