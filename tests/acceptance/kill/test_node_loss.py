"""A node of a cluster is lost: what ran there is not repeated before its leases have ended."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.acceptance.kill.command import Command, Surroundings
from tests.acceptance.kill.figures import read_figures
from tests.acceptance.kill.processes import COORDINATOR, WORKER, called
from tests.acceptance.kill.project import Project

if TYPE_CHECKING:
    from tests.acceptance.kill.conftest import JoinedRay

pytestmark = [pytest.mark.ray, pytest.mark.soak, pytest.mark.timeout(300)]

LEASE = 30.0


def actors(raylet: psutil.Process, name: str) -> list[psutil.Process]:
    return [process for process in raylet.children() if name in (called(process) or "")]


async def workers(submit: Command, project: Project, count: int) -> None:
    while len({start.pid for start in project.starts()}) < count:
        assert not submit.over, submit.said
        await asyncio.sleep(0.1)


async def test_leases_of_a_lost_node_come_back_after_their_end(
    small_nodes: JoinedRay, database: str, tmp_path: Path
) -> None:
    project = Project.written(tmp_path / "project", [1.0] * 60, concurrency=4)
    surroundings = Surroundings(tmp_path / "home", database, small_nodes.address)
    joining = ("--address", small_nodes.address, "--workers", "2", "--lanes", "2")
    submit = await Command.started(surroundings, project.folder, "submit", "experiment.yaml", *joining)
    try:
        run = await submit.run_id()
        # The coordinator and a worker fill the first node, so that the other worker waits for the second.
        await workers(submit, project, 1)
        small_nodes.add_node()
        await workers(submit, project, 2)
        head, doomed = small_nodes.raylets()
        (worker,) = actors(doomed, WORKER)
        assert (len(actors(head, COORDINATOR)), len(actors(head, WORKER))) == (1, 1)
        os.kill(doomed.pid, signal.SIGKILL)
        lost_at = time.time()
        small_nodes.add_node()
        assert await submit.ended() == 0, submit.said
    finally:
        submit.send(signal.SIGKILL)
        await submit.ended()

    figures = await read_figures(database, run)
    assert figures.problems() == []
    starts = project.starts()
    assert not [start for start in starts if start.pid == worker.pid and start.at > lost_at + 1.0]
    again = [start for number, start in enumerate(starts) if start.row in {other.row for other in starts[:number]}]
    assert 0 < len(again) <= 2
    assert figures.interrupted == {"LEASE_EXPIRED": len(again)}
    assert min(start.at for start in again) > lost_at + LEASE
    assert len({start.pid for start in starts}) > 2, "nobody took the place of the lost worker"
