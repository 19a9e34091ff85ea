"""Five hundred sandboxes of a run that is killed whole three times and resumed each time: after the sweep, nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from evalfleet.plugins import sandbox_factories
from evalfleet.store.connection import connect
from evalfleet.testing.sandbox_subject import alive, forever
from evalfleet_sandboxes.bubblewrap_sandbox import cgroup_name
from tests.acceptance.kill.command import Command, Surroundings
from tests.acceptance.kill.figures import Figures, read_figures
from tests.acceptance.kill.processes import COORDINATOR, WORKER, Tree
from tests.acceptance.sandboxes.other_backends import AGENT

CASES, KILLS = 500, 3
LANES = 10
#: How a run is started, and the names of its processes that die with it beside the command itself.
ROADS = {
    "inline": (("--inline",), ()),
    "workers": (("--workers", "2", "--lanes", str(LANES)), (WORKER, COORDINATOR)),
}
#: A busy machine may take that long to begin, and to see that all of a run is dead.
PATIENCE = 120.0

EVAL = """
from evalfleet import *

@define_eval(dataset=Dataset.jsonl("rows.jsonl"), description="Works in three commands, one of which leaves a service.")
async def body(t, row):
    await t.sandbox.run("sh", "-c", "echo begun > file; setsid sleep {seconds} >/dev/null 2>&1 &")
    turn = await t.send("sleep 0.2; cat file")
    turn.succeeded()
    t.check((await t.sandbox.run("sh", "-c", "cat file; rm file")).text, equals("begun\\n"))
"""

_OPEN_ROWS = "SELECT count(*) FROM sandboxes WHERE ended_at IS NULL"


@dataclass
class Kept:
    """What there was of a run, to be looked for when it is over."""

    surroundings: Surroundings
    backend: str
    seconds: str
    names: set[str] = field(default_factory=set[str])
    trees: list[Tree] = field(default_factory=list[Tree])

    @property
    def place(self) -> Path:
        return self.surroundings.home / "sandboxes" / self.backend

    def look(self) -> None:
        """Remember what lives and lies there now."""
        with contextlib.suppress(OSError):
            self.names |= {path.name for path in self.place.iterdir() if path.is_dir()}
        for tree in self.trees:
            tree.look()

    def groups(self) -> list[str]:
        """The control groups that are left of any of its sandboxes."""
        wanted = {cgroup_name(self.place / name) for name in self.names}
        return [str(path) for path in Path("/sys/fs/cgroup").glob("**/evalfleet-*") if path.name in wanted]

    def behind(self) -> int:
        """How many sandboxes lie there, their processes dead."""
        return sum(path.name.endswith(".lock") for path in self.place.iterdir())

    def left(self) -> list[str]:
        return sorted(str(path.relative_to(self.place)) for path in self.place.glob("**/*"))


async def until(happened: Callable[[], bool], why: Callable[[], str]) -> None:
    began = time.monotonic()
    while not happened():
        assert time.monotonic() - began < PATIENCE, why()
        await asyncio.sleep(0.05)


def written(folder: Path, backend: str, seconds: str) -> Path:
    (folder / "evals").mkdir(parents=True)
    (folder / "evals" / "works.eval.py").write_text(EVAL.format(seconds=seconds))
    (folder / "evals" / "rows.jsonl").write_text("{}\n" * CASES)
    (folder / "my_agents.py").write_text(AGENT)
    document = {
        "schema_version": 1,
        "name": "killed-again",
        "limits": {"concurrency": 2 * LANES},
        "sandbox": {"backend": backend, "resources": {"pids": 100}},
        "arms": {"mine": {"adapter": "python", "entry": "my_agents:worker"}},
    }
    (folder / "experiment.yaml").write_text(json.dumps(document))
    return folder


async def killed(kept: Kept, command: Command, names: tuple[str, ...]) -> int:
    """Kill the run whole, at once; how many processes that are."""
    tree = kept.trees[-1]
    kept.look()
    victims = [process for name in names for process in tree.find(name)]
    command.send(signal.SIGKILL)
    for victim in victims:
        with contextlib.suppress(psutil.Error):
            victim.kill()
    await command.ended()
    return 1 + len(victims)


def row_of(kill: int, took: float, victims: int, settled: int, kept: Kept) -> str:
    return f"{kill:4d}  {took:7.1f} s  {victims:9d}  {settled:7d}  {kept.behind():9d}  {len(kept.groups()):6d}"


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("backend", ["local", "bubblewrap"])
async def test_a_run_that_is_killed_three_times_leaves_nothing(
    tmp_path: Path, database: str, capsys: pytest.CaptureFixture[str], backend: str, road: str
) -> None:
    if backend not in sandbox_factories():
        pytest.skip("the backend bubblewrap is not installed")
    (how, names), seconds, source = ROADS[road], forever(), random.Random(f"{backend} {road}")
    kept = Kept(Surroundings(tmp_path / "home", database), backend, seconds)
    folder = written(tmp_path / "project", backend, seconds)
    command = await Command.started(kept.surroundings, folder, "submit", "experiment.yaml", *how)
    run = await command.run_id()
    table = ["kill      after  processes  settled  sandboxes  groups"]
    for kill in range(1, KILLS + 1):
        kept.trees.append(Tree(command.pid))
        began = time.monotonic()
        already = (await read_figures(database, run)).settled
        while (await read_figures(database, run)).settled == already:
            assert not command.over, command.said
            await asyncio.sleep(0.1)
        await asyncio.sleep(source.uniform(0.0, 2.0))
        assert not command.over, f"the run was over before kill {kill}: {command.said}"
        took = time.monotonic() - began
        victims = await killed(kept, command, names)
        await until(lambda: alive(seconds) == 0, lambda: f"{alive(seconds)} processes of dead sandboxes live on")
        figures = await read_figures(database, run)
        table.append(row_of(kill, took, victims, figures.settled, kept))
        command = await Command.started(kept.surroundings, folder, "resume", run, *how)
    kept.trees.append(Tree(command.pid))
    while not command.over:
        kept.look()
        await asyncio.sleep(0.25)
    assert await command.ended() == 0, command.said
    sweep = await Command.started(kept.surroundings, folder, "sandboxes", "--reap", "--json")
    assert await sweep.ended() == 0, sweep.said
    figures = await read_figures(database, run)
    table.append(summary(figures, len(kept.names), len(sweep.value["removed"])))
    with capsys.disabled():
        sys.stdout.write("\n".join(["", f"{backend}, {road}", *table, ""]))
    await nothing_is_left(kept, database)
    assert figures.problems() == []


def summary(figures: Figures, seen: int, reaped: int) -> str:
    return (
        f"{figures.total} cases, {figures.attempts} attempts, {seen} sandboxes seen; lost {figures.lost}, "
        f"doubled {figures.doubled}, open intents {figures.open_intents}; {reaped} left for the sweep"
    )


async def nothing_is_left(kept: Kept, url: str) -> None:
    assert alive(kept.seconds) == 0
    assert (kept.left(), kept.groups()) == ([], [])
    for tree in kept.trees:
        assert await tree.gone(10) == []
    async with await connect(url) as connection:
        row = await (await connection.execute(_OPEN_ROWS)).fetchone()
    assert row == (0,)
