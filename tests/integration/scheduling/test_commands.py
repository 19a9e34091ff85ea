"""Stopping, cancelling, taking over and resuming runs, each `orchestrate` a process of its own, without Ray."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from evalfleet.reports.exit_code import ExitCode
from tests.acceptance.kill.command import Command, Surroundings
from tests.acceptance.kill.figures import read_figures
from tests.acceptance.kill.processes import Tree
from tests.acceptance.kill.project import AGENT, Project
from tests.integration.store.sql import rows

LANES = 4
#: Six seconds of work for the lanes of a run; a resume with more of them is done at once.
STEADY = [0.4] * 60
FASTER = ("--set", "limits.concurrency=60")


class Desk:
    """Starts commands on one project and one record store."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self.url = url
        self._surroundings = Surroundings(folder / "home", url)
        self._started: list[Command] = []

    def project(self, seconds: list[float]) -> Project:
        return Project.written(self._folder / "project", seconds, concurrency=LANES)

    async def start(self, *arguments: str) -> Command:
        command = await Command.started(self._surroundings, self._folder / "project", *arguments)
        self._started.append(command)
        return command

    async def close(self) -> None:
        """End what a failed test left behind."""
        for command in self._started:
            command.send(signal.SIGKILL)
            await command.ended()

    async def submitted(self, project: Project, starts: int) -> tuple[Command, str]:
        """A run that goes on, with the id that it has, after so many starts."""
        command = await self.start("submit", "experiment.yaml", "--inline")
        run = await command.run_id()
        await until(lambda: project.started() >= starts or command.over)
        assert not command.over, command.said
        return command, run

    async def outcomes(self) -> dict[str, int]:
        return dict(await rows(self.url, "SELECT outcome::text, count(*) FROM attempts GROUP BY 1"))


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if happened():
                return
            await asyncio.sleep(0.01)


@pytest.fixture
async def desk(tmp_path: Path, database: str) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path, database)
    yield desk
    await desk.close()


async def completes(desk: Desk, project: Project, run: str, *, redone: int) -> None:
    """The run is complete, each case settled once, and no more than `redone` cases were started twice."""
    assert (await read_figures(desk.url, run)).problems() == []
    starts = project.starts()
    assert len({start.row for start in starts}) == project.cases
    assert len(starts) <= project.cases + redone


async def test_a_run_is_cancelled_from_elsewhere_and_resumed(desk: Desk) -> None:
    project = desk.project(STEADY)
    submit, run = await desk.submitted(project, 12)
    cancel = await desk.start("cancel", run)
    assert await cancel.ended() == 0, cancel.said
    assert await submit.ended() == ExitCode.CANCELLED
    stopped = await read_figures(desk.url, run)
    assert (stopped.status, stopped.open_intents) == ("cancelled", 0)
    assert 0 < stopped.settled < project.cases
    assert (await desk.outcomes()).get("cancelled", 0) <= LANES
    resume = await desk.start("resume", run, "--inline", *FASTER)
    assert await resume.ended() == 0, resume.said
    await completes(desk, project, run, redone=LANES)


async def test_one_interrupt_drains_and_two_end_at_once(desk: Desk) -> None:
    """Within the grace of three seconds two of the attempts end by themselves; nobody could wait for the others."""
    project = desk.project([1.5, 1.5, 600.0, 600.0])
    once, run = await desk.submitted(project, LANES)
    tree = Tree(once.pid)
    tree.look()
    once.send(signal.SIGINT)
    assert await once.ended(30) == ExitCode.CANCELLED
    assert f"orchestrate resume {run} goes on" in once.said
    assert await tree.gone(2) == []
    drained = await read_figures(desk.url, run)
    assert (drained.status, drained.settled, drained.open_intents) == ("cancelled", 2, 0)
    assert await desk.outcomes() == {"completed": 2, "cancelled": 2}

    twice = await desk.start("resume", run, "--inline")
    await until(lambda: project.started() >= LANES + 2 or twice.over)
    tree = Tree(twice.pid)
    tree.look()
    twice.send(signal.SIGINT)
    await until(lambda: "once more to stop at once" in twice.said)
    twice.send(signal.SIGINT)
    assert await twice.ended(30) == ExitCode.CANCELLED
    assert await tree.gone(2) == []
    left = await read_figures(desk.url, run)
    assert (left.status, left.settled) == ("running", 2), "a drain would have written how the run ended"


async def test_of_two_resumes_one_works_and_the_other_says_who_does(desk: Desk) -> None:
    project = desk.project(STEADY * 2)
    submit, run = await desk.submitted(project, 12)
    submit.send(signal.SIGKILL)
    assert await submit.ended() == -signal.SIGKILL
    resumes = [await desk.start("resume", run, "--inline") for _ in range(2)]
    codes = [await resume.ended() for resume in resumes]
    assert sorted(codes) == [0, ExitCode.USAGE], [resume.said for resume in resumes]
    working, refused = sorted(resumes, key=lambda resume: codes[resumes.index(resume)])
    host = re.escape(socket.gethostname())
    told = re.match(
        rf"error: run {run} is held by process {working.pid} on {host} \(last beat \d+ s ago\)", refused.said
    )
    assert told is not None, refused.said
    assert refused.pid not in {start.pid for start in project.starts()}
    await completes(desk, project, run, redone=LANES)


async def test_a_run_that_is_held_is_refused_and_one_that_was_stolen_ends_its_first_coordinator(desk: Desk) -> None:
    project = desk.project(STEADY * 10)
    first, run = await desk.submitted(project, 12)
    refused = await desk.start("resume", run, "--inline")
    assert await refused.ended() == ExitCode.USAGE
    assert f"held by process {first.pid}" in refused.said and "--steal" in refused.said
    assert not first.over, "the run was to be long enough for a second command"
    thief = await desk.start("resume", run, "--inline", "--steal")
    assert await first.ended() == ExitCode.USAGE
    assert first.said.splitlines()[-1] == (
        f"error: run {run} was taken over by another coordinator; nothing more was written here"
    )
    # It grants nothing until the leases of its predecessor have ended, so it is not waited for.
    stolen = await read_figures(desk.url, run)
    assert (stolen.status, stolen.epoch, stolen.attempts) == ("running", 2, stolen.settled)
    thief.send(signal.SIGKILL)
    await thief.ended()


async def test_a_run_that_fails_too_often_exits_with_3_each_time_until_its_limit_is_raised(desk: Desk) -> None:
    project = desk.project(STEADY)
    broken = AGENT.replace("await asyncio.sleep(float(seconds))", 'raise ValueError("broken")')
    (project.folder / "drilled_agent.py").write_text(broken)
    submit = await desk.start("submit", "experiment.yaml", "--inline", "--set", "limits.max_failures=3")
    assert await submit.ended() == ExitCode.LIMITED, submit.said
    run = await submit.run_id()
    figures = await read_figures(desk.url, run)
    assert figures.status == "limited"
    assert 3 <= figures.settled <= 3 + 2 * LANES

    started = project.started()
    again = await desk.start("resume", run, "--inline")
    assert await again.ended() == ExitCode.LIMITED, again.said
    assert started < project.started() <= started + 3 + 2 * LANES, "failures of before do not count again"
    raised = await desk.start("resume", run, "--inline", "--set", "limits.max_failures=100")
    assert await raised.ended() == ExitCode.NOT_ACCEPTED, raised.said
    assert (await read_figures(desk.url, run)).settled == project.cases
