"""Which processes die with which, on the Ray that a `submit` starts for itself: each of the four kinds is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from evalfleet.reports.exit_code import ExitCode
from tests.acceptance.kill.command import Command, Surroundings
from tests.acceptance.kill.processes import COORDINATOR, RAYLET, WORKER, Tree, called, is_ray_agent
from tests.acceptance.kill.project import Project

#: A busy machine may take that long to notice and to start what replaces a process.
PATIENCE = 30.0
#: What dies with its parent dies at once; the rest of this is for the machine.
AT_ONCE = 2.0

pytestmark = pytest.mark.ray


class Running:
    """A run in the middle of attempts that never end by themselves."""

    def __init__(self, command: Command, project: Project) -> None:
        self.command = command
        self.project = project
        self.tree = Tree(command.pid)

    def one(self, name: str) -> psutil.Process:
        (found,) = self.tree.find(name)
        return found

    def everything(self) -> set[psutil.Process]:
        self.tree.look()
        return set(self.tree.alive())

    async def until(self, happened: Callable[[], bool], seconds: float = PATIENCE) -> float:
        """Wait; how long it took."""
        began = time.monotonic()
        while not happened():
            assert time.monotonic() - began < seconds, f"nothing happened; the command said: {self.command.said}"
            await asyncio.sleep(0.01)
        return time.monotonic() - began


def kill(process: psutil.Process) -> None:
    os.kill(process.pid, signal.SIGKILL)


def dead(*processes: psutil.Process) -> bool:
    return all(called(process) is None for process in processes)


@asynccontextmanager
async def running(tmp_path: Path, database: str) -> AsyncIterator[Running]:
    project = Project.written(tmp_path / "project", [600.0] * 4, concurrency=4)
    surroundings = Surroundings(tmp_path / "home", database)
    command = await Command.started(
        surroundings, project.folder, "submit", "experiment.yaml", "--workers", "2", "--lanes", "2"
    )
    try:
        run = Running(command, project)
        await run.until(lambda: project.started() == 4 or command.over, 60)
        assert not command.over, command.said
        yield run
    finally:
        command.send(signal.SIGKILL)
        await command.ended()


async def test_a_worker_dies_alone_a_coordinator_comes_back_and_a_driver_takes_all_along(
    tmp_path: Path, database: str
) -> None:
    async with running(tmp_path, database) as run:
        before, (victim, other) = run.everything(), run.tree.find(WORKER)
        kill(victim)
        await run.until(lambda: dead(victim))
        # Its two cases go on, alone in processes of their own, below whichever worker has a lane.
        await run.until(lambda: run.project.started() == 6)
        assert {process for process in before if dead(process)} == {victim}
        in_worker = [start for start in run.project.starts() if start.pid == other.pid]
        replacement = await replaced(run, WORKER, before)

        before, coordinator = run.everything(), run.one(COORDINATOR)
        kill(coordinator)
        await run.until(lambda: dead(coordinator))
        successor = await replaced(run, COORDINATOR, before)
        await asyncio.sleep(1.5)
        assert {process for process in before if dead(process)} == {coordinator}
        assert run.project.started() == 6, "an attempt in flight was started again"
        assert [start for start in run.project.starts() if start.pid == other.pid] == in_worker

        before = run.everything()
        assert {successor, replacement, other} < before
        kill(psutil.Process(run.command.pid))
        agents = {process for process in before if is_ray_agent(called(process) or "")}
        took = await run.until(lambda: dead(*before - agents))
        assert took < AT_ONCE
        assert run.everything() <= agents


async def replaced(run: Running, name: str, before: set[psutil.Process]) -> psutil.Process:
    """The process that took the place of one that was there before."""
    await run.until(lambda: not before.issuperset(run.tree.find(name)))
    (fresh,) = set(run.tree.find(name)) - before
    return fresh


@pytest.mark.soak
async def test_a_raylet_takes_its_actors_along_and_the_driver_gives_up(tmp_path: Path, database: str) -> None:
    async with running(tmp_path, database) as run:
        actors = [*run.tree.find(WORKER), run.one(COORDINATOR)]
        raylet = next(process for process in run.everything() if process.name() == RAYLET)
        kill(raylet)
        assert await run.until(lambda: dead(*actors)) < AT_ONCE
        assert not run.command.over
        assert await run.command.ended(60) == ExitCode.INFRASTRUCTURE
        assert "the coordinator is gone" in run.command.said
        assert await run.tree.gone(5) == []


@pytest.mark.soak
async def test_rays_agents_end_within_ninety_seconds_of_a_killed_driver(tmp_path: Path, database: str) -> None:
    async with running(tmp_path, database) as run:
        everything = run.everything()
        kill(psutil.Process(run.command.pid))
        await run.until(lambda: dead(*everything), 90)
