"""Drills: kill -9 of a worker, the coordinator or the driver of a real run loses nothing and counts nothing twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evalfleet.reports.exit_code import ExitCode
from tests.acceptance.kill.command import Command, Surroundings
from tests.acceptance.kill.drill import CASES, KINDS, PLACES, Drill, Lab, Plan, drill_all, plans

if TYPE_CHECKING:
    from tests.acceptance.kill.conftest import JoinedRay

#: Seconds of the agents' work in a quick drill, undisturbed and without the start of its processes.
SECONDS = 2.5


@pytest.fixture
def lab(joined_ray: JoinedRay, database: str, tmp_path: Path) -> Lab:
    """Short runs on the Ray that all of them join."""
    surroundings = Surroundings(tmp_path / "home", database, joined_ray.address)
    return Lab(tmp_path, database, surroundings, cases=300, lanes=6, seconds=SECONDS, ray=joined_ray.pid)


@pytest.mark.ray
@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_is_lost_or_counted_twice(lab: Lab, kind: str) -> None:
    # A third into the work: late enough that something is settled, early enough that much is not.
    plan = replace(Plan.seeded(kind, 0), fraction=0.35, whole=False)
    outcome = await Drill(lab, plan).run()
    assert outcome.moment is not None, "the run was over before the kill"
    assert outcome.problems() == []
    assert outcome.exits == ([-9, 0] if kind == "driver" else [0])


@pytest.mark.ray
async def test_workers_that_die_as_they_load_the_project_end_the_run(lab: Lab) -> None:
    project = lab.project("unloadable")
    agent = project.folder / "drilled_agent.py"
    in_a_worker = "import os, sys\nif 'default_worker' in sys.argv[0]:\n    os._exit(3)\n"
    agent.write_text(in_a_worker + agent.read_text())
    submit = await Command.started(lab.surroundings, project.folder, "submit", "experiment.yaml", *lab.options)
    assert await submit.ended(60) == ExitCode.INFRASTRUCTURE
    assert "error: workers die as they load the project" in submit.said
    assert submit.value["error"]["exit_code"] == ExitCode.INFRASTRUCTURE
    assert all(line.startswith("{") for line in submit.printed.splitlines()), "Ray's remarks stand amid the JSON"


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
async def test_twenty_random_moments_and_every_failpoint(tmp_path: Path, kind: str) -> None:
    said: list[str] = []
    chosen = plans((kind,), range(20), PLACES)
    problems = await drill_all(tmp_path, chosen, CASES, said.append)
    assert not problems, "\n".join(said)
