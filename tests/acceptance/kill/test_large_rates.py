"""The rates of issue-sized runs: thousands of calls at a provider's limit, and a storm that lasts for minutes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.kill.command import Command, Surroundings
from tests.integration.governor.providers import Provider, project, provider

pytestmark = [pytest.mark.soak, pytest.mark.ray, pytest.mark.timeout(600)]

ON = ("--workers", "2", "--lanes", "75")


async def started(tmp_path: Path, database: str, url: str, cases: int, more: str = "") -> Command:
    experiment = project(tmp_path / "p", url, cases, f"limits: {{concurrency: 150}}\n{more}")
    experiment.write_text(experiment.read_text().replace(", api_key_env: RATED_KEY", ""))
    surroundings = Surroundings(tmp_path / "home", database)
    return await Command.started(surroundings, experiment.parent, "submit", experiment.name, *ON)


def reached(model: Provider, answered: int) -> None:
    while model.tally()["answered"] < answered:
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        (True, 1.5),
        (False, 1.9),  # nobody tells of the rate: what is found out by refusals is how many calls there may be at once
    ],
    ids=["headers", "no headers"],
)
async def test_five_thousand_cases_use_a_limit_of_three_thousand_a_minute(
    tmp_path: Path, database: str, record_property: Callable[[str, object], None], told: bool, seconds: float
) -> None:
    """100 calls at once and 3,000 a minute."""
    with provider(concurrency=100, requests_per_minute=3000, seconds=seconds, headers=told, retry_after=1.0) as model:
        run = await started(tmp_path, database, model.url, 5000)
        assert await run.ended(400) == 0, run.said
        tally = model.tally()
    # a minute's worth may come at once at the beginning, and the last calls are fewer
    steady = tally["seconds"][20:-10]
    rate = sum(answered for answered, _ in steady) / len(steady) * 60
    refused = sum(refusals for _, refusals in steady)
    record_property(
        "figures",
        f"{rate:.0f} calls a minute, {refused} refused of {sum(a for a, _ in steady)}, {tally['refused']} in all",
    )
    assert rate >= 0.9 * 3000
    assert refused <= 0.02 * sum(answered for answered, _ in steady)
    assert tally["answered"] == 5000
    assert tally["most"] <= 100


async def test_a_storm_of_a_minute_with_waits_of_ninety_seconds_is_climbed_out_of(
    tmp_path: Path, database: str, record_property: Callable[[str, object], None]
) -> None:
    """Every call of a minute is refused with a wait of 90 s; the rate is back within a minute of the wait's end."""
    with provider(concurrency=100, requests_per_minute=3000, seconds=1.5) as model:
        run = await started(tmp_path, database, model.url, 6000, "retry: {max_attempts: 3}\n")
        await asyncio.to_thread(reached, model, 1500)
        began = len(model.tally()["seconds"])
        model.storm(90.0, seconds=60.0)
        assert await run.ended(500) == 0, run.said
        tally = model.tally()
    seconds = tally["seconds"]
    storm = sum(refused for _, refused in seconds[began : began + 150])
    per_second = [answered for answered, _ in seconds]
    before = sum(per_second[began - 11 : began - 1]) / 10
    back = next(at for at in range(began + 5, len(seconds) - 6) if sum(per_second[at : at + 6]) >= 0.9 * before * 6)
    record_property(
        "figures",
        f"{storm} refused in the storm; {before:.0f} calls a second were back {back - began} s after it began",
    )
    assert storm <= 150 * 3, "no more than the lanes, and their calls' own repeats"
    assert back - began <= 90 + 60
    assert tally["answered"] == 6000
