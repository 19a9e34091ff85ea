"""Runs in this process against a provider that keeps a rate, in its own: how near they come to it, and no further.

Rates are low, since a shared machine may be slow: nothing here depends on how fast it is beside them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import evalfleet
from evalfleet.api.capacity import CapacityUse, capacity
from evalfleet.model.verdict import RunStatus
from tests.integration.governor.providers import project, provider


@pytest.fixture(autouse=True)
def home(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALFLEET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EVALFLEET_DATABASE_URL", database)
    monkeypatch.setenv("RATED_KEY", "k")


async def test_a_configured_rate_is_reached_and_kept(tmp_path: Path) -> None:
    """600 calls a minute, four at once; twelve lanes would exceed both.

    The provider's window is short, so it has room for the second's worth that may come at once.
    """
    with provider(requests_per_minute=50, minute=4.0, concurrency=4, seconds=0.3) as model:
        rate = "rate: {'openai:m': {requests_per_minute: 600, concurrency: 4}}\nlimits: {concurrency: 12}\n"
        with await evalfleet.run(project(tmp_path / "p", model.url, 100, rate)) as run:
            assert (run.status, len(list(run.cases("passed")))) == (RunStatus.COMPLETED, 100)
        tally = model.tally()
    assert (tally["refused"], tally["most"]) == (0, 4)
    steady = [answered for answered, _ in tally["seconds"]][1:-1]
    assert sum(steady) / len(steady) >= 0.9 * 10


async def test_an_unknown_limit_is_found_out_and_used(tmp_path: Path) -> None:
    """Eight calls at once, of which nobody told; thirty lanes come at once, and most are refused that one time."""
    with provider(requests_per_minute=10_000, concurrency=8, seconds=0.5, headers=False) as model:
        limits = "limits: {concurrency: 30}\n"
        with await evalfleet.run(project(tmp_path / "p", model.url, 150, limits)) as run:
            assert (run.status, len(list(run.cases("passed")))) == (RunStatus.COMPLETED, 150)
        tally = model.tally()
    assert tally["most"] == 8
    later = tally["seconds"][3:]
    assert sum(refused for _, refused in later) <= 0.1 * sum(answered for answered, _ in later)
    assert sum(answered for answered, _ in later[:-1]) >= 0.7 * 16 * len(later[:-1])


async def test_a_storm_of_refusals_is_waited_for_and_climbed_out_of(tmp_path: Path) -> None:
    """The first calls are refused with a wait of six seconds: nobody calls meanwhile, and all goes on after it."""
    with provider(requests_per_minute=10_000, concurrency=8, seconds=0.2) as model:
        model.storm(6.0, calls=8)
        limits = "limits: {concurrency: 8, turn_timeout: 3s, attempt_timeout: 4s}\nretry: {max_attempts: 1}\n"
        with await evalfleet.run(project(tmp_path / "p", model.url, 60, limits)) as run:
            assert (run.status, len(list(run.cases("passed")))) == (RunStatus.COMPLETED, 60)
            first = max((case.detail for case in run.cases()), key=lambda detail: detail.waited)
        tally = model.tally()
    assert tally["refused"] <= 8
    quiet = [answered + refused for answered, refused in tally["seconds"]][2:6]
    assert sum(quiet) == 0
    assert first.turns[0].waited > 5.0
    assert first.turns[0].duration < 3.0


async def test_no_more_is_called_than_tries_times_attempts(tmp_path: Path) -> None:
    with provider(requests_per_minute=10_000, concurrency=8, seconds=0.2) as model:
        model.storm(0.05, seconds=600.0)
        more = "limits: {concurrency: 4}\nretry: {max_attempts: 2}\n"
        experiment = project(tmp_path / "p", model.url, 3, more)
        with await evalfleet.run(experiment) as run:
            assert (run.status, len(list(run.cases("errored")))) == (RunStatus.COMPLETED, 3)
        tally = model.tally()
    assert tally["refused"] == 3 * 2 * 3  # cases, attempts, and a call with two repeats
    assert tally["answered"] == 0


async def test_who_waits_for_a_rate_holds_no_lane(tmp_path: Path) -> None:
    """One lane: while a case's call waits for seconds, those of the other arms are all done."""
    with provider(concurrency=8, seconds=0.01) as model, provider(seconds=0.01) as free:
        model.storm(8.0, calls=1)
        arms = (f"  b{n}: {{adapter: openai, model: n{n}, base_url: {free.url}/v1}}" for n in range(6))
        more = "\n".join([*arms, "limits: {concurrency: 1}\n"])
        with await evalfleet.run(project(tmp_path / "p", model.url, 1, more)) as run:
            assert (run.status, len(list(run.cases("passed")))) == (RunStatus.COMPLETED, 7)
            began, ended = dict[str, float](), dict[str, float]()
            for case in run.cases():
                view = case.detail.view
                began[case.arm] = view.started_at
                ended[case.arm] = view.started_at + view.duration + case.detail.waited
        assert free.tally()["answered"] == 6
    after = [arm for arm in began if began[arm] > began["a"]]
    assert after, "none came after it"
    assert all(ended[arm] < ended["a"] for arm in after)


async def test_capacity_shows_a_run_under_way(tmp_path: Path) -> None:
    """As its coordinator wrote it into the record store, which is read from anywhere."""
    with provider(concurrency=8, seconds=1.0) as model:
        more = "rate: {'openai:m': {concurrency: 2, requests_per_minute: 3000}}\nlimits: {concurrency: 5}\n"
        running = asyncio.create_task(evalfleet.run(project(tmp_path / "p", model.url, 12, more)))
        found: list[CapacityUse] = []
        while not running.done() and not any(each.use.calls_per_minute for each in found):
            found = list(await capacity())
            await asyncio.sleep(0.3)
        with await running as run:
            assert run.status is RunStatus.COMPLETED
        assert await capacity() == []
    (use,) = found
    assert (use.name, use.use.name, use.use.concurrency, use.use.requests_limit) == ("rated", "openai:m", 2, 3000.0)
    assert use.use.in_flight <= 2 and use.use.waiting >= 1
    assert use.use.account.startswith("127.0.0.1:") and "/k/" not in use.use.account
