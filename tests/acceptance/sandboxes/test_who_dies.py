"""What a run leaves of twenty sandboxes when it or a part of it is stopped or killed: after the sweep, nothing."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from evalfleet.plugins import sandbox_factories
from evalfleet.testing.sandbox_subject import alive, forever
from tests.acceptance.kill.command import Command, Surroundings
from tests.acceptance.kill.processes import COORDINATOR, WORKER, Tree
from tests.acceptance.sandboxes.other_backends import AGENT

SANDBOXES = 20
#: A busy machine may take that long to start twenty sandboxes, or to end them.
PATIENCE = 120.0

#: What only takes time again, on the road that another test takes.
SOAK = pytest.mark.soak


def backends(*marks: pytest.MarkDecorator) -> list[Any]:
    """Those of this machine, `marks` on all but the first."""
    there = pytest.mark.skipif(
        "bubblewrap" not in sandbox_factories(), reason="the backend bubblewrap is not installed"
    )
    return ["local", pytest.param("bubblewrap", marks=(there, *marks))]


EVAL = """
from evalfleet import *

@define_eval(dataset=Dataset.jsonl("rows.jsonl"), description="Runs for ever.")
async def body(t, row):
    await t.send("setsid sleep {seconds} & sleep {seconds}")
"""


@dataclass(frozen=True)
class Running:
    """A run with twenty sandboxes alive, in each of which two processes sleep for `seconds`."""

    command: Command
    surroundings: Surroundings
    folder: Path
    backend: str
    seconds: str
    tree: Tree

    def left(self) -> list[str]:
        """What lies in the state folder of the backend."""
        return sorted(path.name for path in (self.surroundings.home / "sandboxes" / self.backend).glob("*"))

    async def until(self, happened: Callable[[], bool]) -> None:
        began = time.monotonic()
        while not happened():
            assert time.monotonic() - began < PATIENCE, f"nothing happened; the command said: {self.command.said}"
            await asyncio.sleep(0.05)

    async def orchestrate(self, *arguments: str) -> Any:
        command = await Command.started(self.surroundings, self.folder, *arguments, "--json")
        assert await command.ended() == 0, command.said
        return command.value


@asynccontextmanager
async def running(folder: Path, url: str, backend: str, *how: str) -> AsyncGenerator[Running]:
    seconds = forever()
    project = folder / "project"
    (project / "evals").mkdir(parents=True)
    (project / "evals" / "forever.eval.py").write_text(EVAL.format(seconds=seconds))
    (project / "evals" / "rows.jsonl").write_text("{}\n" * SANDBOXES)
    (project / "my_agents.py").write_text(AGENT)
    document = {
        "schema_version": 1,
        "name": "who-dies",
        "limits": {"concurrency": SANDBOXES},
        "sandbox": {"backend": backend},
        "arms": {"mine": {"adapter": "python", "entry": "my_agents:worker"}},
    }
    (project / "experiment.yaml").write_text(json.dumps(document))
    surroundings = Surroundings(folder / "home", url)
    command = await Command.started(surroundings, project, "submit", "experiment.yaml", *how)
    run = Running(command, surroundings, project, backend, seconds, Tree(command.pid))
    try:
        await run.until(lambda: alive(seconds) == 2 * SANDBOXES or command.over)
        assert not command.over, command.said
        run.tree.look()
        yield run
    finally:
        command.send(signal.SIGKILL)
        await command.ended()


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, id="SIGINT"), pytest.param(signal.SIGTERM, id="SIGTERM", marks=SOAK)]
)
@pytest.mark.parametrize("backend", backends())
async def test_a_run_that_is_stopped_leaves_nothing(
    tmp_path: Path, database: str, backend: str, number: signal.Signals
) -> None:
    async with running(tmp_path, database, backend, "--inline") as run:
        run.command.send(number)
        assert await run.command.ended() == 130
        assert (alive(run.seconds), run.left()) == (0, [])
        assert await run.tree.gone(5) == []


@pytest.mark.parametrize("backend", backends())
async def test_a_run_that_is_killed_leaves_directories_and_the_next_one_or_the_reaper_removes_them(
    tmp_path: Path, database: str, backend: str
) -> None:
    async with running(tmp_path, database, backend, "--inline") as run:
        run.command.send(signal.SIGKILL)
        await run.command.ended()
        await run.until(lambda: alive(run.seconds) == 0)
        assert await run.tree.gone(5) == []
        assert len(run.left()) >= SANDBOXES
        found = (await run.orchestrate("sandboxes", "--orphans"))["sandboxes"]
        assert len(found) == SANDBOXES
        assert {(view["standing"], view["pid"]) for view in found} == {("orphan", run.command.pid)}
        assert len((await run.orchestrate("sandboxes", "--reap"))["removed"]) == SANDBOXES
        assert run.left() == []


@pytest.mark.ray
@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", backends(SOAK))
async def test_no_part_of_a_run_that_is_killed_leaves_sandboxes_behind(
    tmp_path: Path, database: str, backend: str
) -> None:
    async with running(tmp_path, database, backend, "--workers", "2", "--lanes", "10") as run:
        (coordinator,) = run.tree.find(COORDINATOR)
        coordinator.kill()
        await run.until(lambda: coordinator not in run.tree.find(COORDINATOR))
        assert alive(run.seconds) == 2 * SANDBOXES

        victim, _ = run.tree.find(WORKER)
        victim.kill()
        await run.until(lambda: not psutil.pid_exists(victim.pid) or alive(run.seconds) < 2 * SANDBOXES)
        # its cases begin again elsewhere, each in a sandbox of its own
        await run.until(lambda: alive(run.seconds) == 2 * SANDBOXES)

        run.command.send(signal.SIGINT)
        assert await run.command.ended() == 130
        await run.until(lambda: alive(run.seconds) == 0)
        assert run.left() == [], "the sweep at the end of the run left something of its dead worker"
