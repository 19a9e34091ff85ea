"""One run under many kills in a row, whatever lives at the moment: workers, coordinators and drivers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from pathlib import Path

import pytest

from evalfleet.settings import Settings
from evalfleet.store.opening import open_store
from tests.acceptance.kill.command import Command, Surroundings
from tests.acceptance.kill.figures import read_figures
from tests.acceptance.kill.processes import COORDINATOR, WORKER, Tree
from tests.acceptance.kill.project import Project

KILLS = 12
WORKERS, LANES = 2, 10
WHERE = ("--workers", str(WORKERS), "--lanes", str(LANES))
#: What one kill of each may cost at most, in cases started again.
PRICES = {WORKER: LANES, COORDINATOR: 0, "driver": WORKERS * LANES}


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
async def test_a_run_survives_many_kills(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    home = tmp_path / "home"
    surroundings = Surroundings(home)
    project = Project.written(tmp_path / "project", [0.2] * 600, concurrency=WORKERS * LANES)
    killed: list[str] = []
    async with open_store(Settings(state_dir=home, artifacts=str(home / "artifacts"))) as url:
        command = await Command.started(surroundings, project.folder, "submit", "experiment.yaml", *WHERE)
        run = await command.run_id()
        while project.started() < WORKERS * LANES:
            assert not command.over, command.said
            await asyncio.sleep(0.05)
        for _ in range(KILLS):
            await asyncio.sleep(source.uniform(0.3, 3.0))
            if command.over:
                break
            kind = source.choice((WORKER, COORDINATOR, "driver"))
            if kind == "driver":
                command.send(signal.SIGKILL)
                await command.ended()
                if (await read_figures(url, run)).status == "completed":
                    break
                command = await Command.started(surroundings, project.folder, "resume", run, *WHERE)
                killed.append(kind)
            elif found := Tree(command.pid).find(kind):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(source.choice(found).pid, signal.SIGKILL)
                    killed.append(kind)
        assert await command.ended(400) in (0, -signal.SIGKILL), command.said
        assert (await read_figures(url, run)).problems() == []
    starts = project.starts()
    assert killed, "the run was over before the first kill"
    assert len(starts) - len({start.row for start in starts}) <= sum(PRICES[kind] for kind in killed), killed
