"""Processes that stop without dying, a record store that is killed, people who interrupt: on Ray, as users run it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evalfleet.reports.exit_code import ExitCode
from evalfleet.settings import Settings
from evalfleet.store import watchdog
from evalfleet.store.opening import open_store
from tests.acceptance.kill.command import Command, Surroundings
from tests.acceptance.kill.figures import Figures, read_figures
from tests.acceptance.kill.processes import COORDINATOR, WORKER, Tree, descendants
from tests.acceptance.kill.project import Project

if TYPE_CHECKING:
    from tests.acceptance.kill.conftest import JoinedRay

WORKERS, LANES = 2, 10
STEADY = [0.3] * 300

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Run:
    """A run under way and what belongs to it."""

    id: str
    command: Command
    project: Project
    tree: Tree
    url: str

    async def figures(self) -> Figures:
        return await read_figures(self.url, self.id)

    def redone(self) -> int:
        starts = self.project.starts()
        return len(starts) - len({start.row for start in starts})

    async def completes(self, *, redone: int) -> None:
        """It ends well, with at most so many cases started twice and no process left."""
        assert await self.command.ended(200) == 0, self.command.said
        assert (await self.figures()).problems() == []
        assert self.redone() <= redone, (await self.figures()).interrupted
        assert await self.tree.gone(5) == []


@asynccontextmanager
async def under_way(folder: Path, url: str, ray: JoinedRay | None, seconds: list[float]) -> AsyncIterator[Run]:
    """A run with as many starts as it has lanes; without `ray` on one of its own."""
    project = Project.written(folder / "project", seconds, concurrency=WORKERS * LANES)
    before = frozenset() if ray is None else frozenset(descendants(ray.pid))
    where = ("--workers", str(WORKERS), "--lanes", str(LANES), *(() if ray is None else ("--address", ray.address)))
    surroundings = Surroundings(folder / "home") if ray is None else Surroundings(folder / "home", url, ray.address)
    command = await Command.started(surroundings, project.folder, "submit", "experiment.yaml", *where)
    try:
        run = await command.run_id()
        while project.started() < WORKERS * LANES:
            assert not command.over, command.said
            await asyncio.sleep(0.05)
        tree = Tree(command.pid, *([] if ray is None else [ray.pid]), without=before)
        tree.look()
        yield Run(run, command, project, tree, url)
    finally:
        command.send(signal.SIGKILL)
        await command.ended()


async def test_an_interrupted_run_drains_and_leaves_no_process(
    joined_ray: JoinedRay, database: str, tmp_path: Path
) -> None:
    """Half of what is in flight ends within the grace of three seconds, half is cancelled."""
    flight = WORKERS * LANES
    async with under_way(tmp_path, database, joined_ray, [1.0, 600.0] * (flight // 2)) as run:
        run.command.send(signal.SIGINT)
        assert await run.command.ended(60) == ExitCode.CANCELLED
        assert f"orchestrate resume {run.id} goes on" in run.command.said
        figures = await run.figures()
        assert (figures.status, figures.settled, figures.attempts) == ("cancelled", flight // 2, flight)
        assert figures.open_intents == 0
        assert await run.tree.gone(5) == []


@pytest.mark.soak
async def test_a_second_interrupt_does_not_wait(joined_ray: JoinedRay, database: str, tmp_path: Path) -> None:
    async with under_way(tmp_path, database, joined_ray, [600.0] * WORKERS * LANES) as run:
        run.command.send(signal.SIGINT)
        async with asyncio.timeout(10):
            while "once more to stop at once" not in run.command.said:
                assert not run.command.over
                await asyncio.sleep(0.01)
        run.command.send(signal.SIGINT)
        asked_at = time.monotonic()
        assert await run.command.ended(60) == ExitCode.CANCELLED
        assert time.monotonic() - asked_at < 2.5, "a drain would take three seconds"
        assert await run.tree.gone(5) == []


@pytest.mark.soak
@pytest.mark.parametrize(("name", "redone"), [(COORDINATOR, 0), (WORKER, LANES)], ids=["coordinator", "worker"])
async def test_an_actor_that_stops_is_killed_and_replaced(
    joined_ray: JoinedRay, database: str, tmp_path: Path, name: str, redone: int
) -> None:
    async with under_way(tmp_path, database, joined_ray, STEADY) as run:
        victim = run.tree.find(name)[0]
        os.kill(victim.pid, signal.SIGSTOP)
        await run.completes(redone=redone)
        assert set((await run.figures()).interrupted) == ({"WORKER_STALLED"} if redone else set())


@pytest.mark.soak
async def test_a_run_goes_on_while_its_driver_is_stopped(joined_ray: JoinedRay, database: str, tmp_path: Path) -> None:
    async with under_way(tmp_path, database, joined_ray, STEADY) as run:
        run.command.send(signal.SIGSTOP)
        await asyncio.sleep(20)
        assert run.project.started() == run.project.cases
        run.command.send(signal.SIGCONT)
        await run.completes(redone=0)


@pytest.mark.soak
async def test_a_run_that_is_stolen_ends_its_driver_and_its_actors(
    joined_ray: JoinedRay, database: str, tmp_path: Path
) -> None:
    """The fenced coordinator leaves for good: a restart by Ray would claim the run again."""
    async with under_way(tmp_path, database, joined_ray, STEADY * 4) as run:
        surroundings = Surroundings(tmp_path / "home", database)
        thief = await Command.started(surroundings, run.project.folder, "resume", run.id, "--inline", "--steal")
        try:
            assert await run.command.ended(60) == ExitCode.USAGE
            assert "was taken over by another coordinator" in run.command.said
            assert await run.tree.gone(5) == []
            figures = await run.figures()
            assert (figures.status, figures.epoch) == ("running", 2)
        finally:
            thief.send(signal.SIGKILL)
            await thief.ended()


@pytest.mark.soak
async def test_a_killed_embedded_server_is_started_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with (
        open_store(Settings(state_dir=home, artifacts=str(home / "artifacts"))) as url,
        under_way(tmp_path, url, None, STEADY) as run,
    ):
        postmaster = watchdog.postmaster(home / "postgres")
        assert postmaster is not None
        os.kill(postmaster, signal.SIGKILL)
        await run.completes(redone=0)
