"""Two runs on one Ray share the rate of an account, and their governor is killed amid them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.acceptance.kill.command import Command, Surroundings
from tests.integration.governor.providers import Provider, project, provider

if TYPE_CHECKING:
    from tests.acceptance.kill.conftest import JoinedRay

CASES = 80
RATE = "rate: {'openai:m': {requests_per_minute: 600, concurrency: 4}}\nlimits: {concurrency: 16}\n"


def governors(ray: JoinedRay) -> list[psutil.Process]:
    below = psutil.Process(ray.pid).children(recursive=True)
    return [each for each in below if each.status() != psutil.STATUS_ZOMBIE and "GovernorActor" in each.name()]


async def shares(model: Provider, runs: list[Command], reach: int) -> tuple[int, int]:
    """What each run has been let through once both together have `reach` calls more than when both had begun."""
    began: tuple[int, int] | None = None
    while not any(run.over for run in runs):
        seen = (await asyncio.to_thread(model.tally))["by_asker"]
        if len(seen) == 2:
            began = began or (seen["c"], seen["d"])
            got = seen["c"] - began[0], seen["d"] - began[1]
            if sum(got) >= reach:
                return got
        await asyncio.sleep(0.2)
    raise AssertionError(f"a run ended too early: {[run.said for run in runs]}")


@pytest.mark.ray
async def test_two_runs_share_a_rate_and_outlive_their_governor(
    joined_ray: JoinedRay, database: str, tmp_path: Path
) -> None:
    surroundings = Surroundings(tmp_path / "home", database, joined_ray.address)
    on = ("--address", joined_ray.address, "--workers", "1")
    with provider(requests_per_minute=50, minute=4.0, concurrency=4, seconds=0.3) as model:
        runs: list[Command] = []
        for asker in ("c", "d"):
            experiment = project(tmp_path / asker, model.url, CASES, RATE, asker)
            experiment.write_text(experiment.read_text().replace(", api_key_env: RATED_KEY", ""))
            runs.append(await Command.started(surroundings, experiment.parent, "submit", experiment.name, *on))
        ours, theirs = await shares(model, runs, 80)
        assert abs(ours - theirs) <= 8, "not within 10 %"
        (governor,) = governors(joined_ray)
        governor.kill()
        assert [await run.ended(120) for run in runs] == [0, 0]
        tally = model.tally()
    assert (sum(tally["by_asker"].values()), tally["most"]) == (2 * CASES, 4)
    assert tally["refused"] <= 0.02 * 2 * CASES
