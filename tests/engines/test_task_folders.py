"""Task folders in Harbor's format as they are meant: an image of each, and tests and verdict at their own places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.conftest import Orchestrate
from tests.acceptance.codes.bodies import cases_of, submit
from tests.acceptance.sandboxes.test_task_folders import ARMS, ENDS, ends, project
from tests.engines.engines import IMAGE, environment_of
from tests.engines.test_runs import ours

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

#: A workdir that belongs to another user than root, who may read it.
OF_A_WORKER = f"FROM {IMAGE}\nRUN mkdir /work && chown worker /work\nWORKDIR /work\n"
#: What an agent leaves behind that is as busy as it can be with its own verdict.
MEDDLES = """
(while :; do echo 1 > /logs/verifier/reward.txt; echo 'exit 0' > /tests/test.sh; done) > /dev/null 2>&1 &
echo 41 > answer.txt
"""


@pytest.fixture
def orchestrate(engine: str, tmp_path: Path, database: str) -> Orchestrate:
    return Orchestrate(tmp_path, database, environment_of(engine))


def run(orchestrate: Orchestrate, folder: Path, *prefixes: str, **sandbox: Any) -> dict[str, Any]:
    experiment = {"arms": ARMS, "sandbox": {"backend": "container", **sandbox}}
    return cases_of(orchestrate, submit(orchestrate, folder, experiment, *prefixes))


def test_they_settle_as_they_should(orchestrate: Orchestrate, engine: str, tmp_path: Path) -> None:
    cases = run(orchestrate, project(tmp_path / "project"))
    assert ends(cases) == {**ENDS, "tampered": ("errored", "agent", "VERDICT_TAMPERED")}
    assert ours(engine) == []


def test_an_image_that_is_named_is_used_and_none_is_built(orchestrate: Orchestrate, tmp_path: Path) -> None:
    folder = project(tmp_path / "project")
    task = folder / "evals" / "harbor" / "pass"
    task.joinpath("task.toml").write_text(f'[environment]\ndocker_image = "{IMAGE}"\nnetwork_mode = "no-network"\n')
    task.joinpath("environment", "Dockerfile").write_text("FROM no-such-image:1\n")
    assert ends(run(orchestrate, folder, "harbor/pass")) == {"pass": ENDS["pass"]}


@pytest.mark.parametrize("name", ["pass", "fail"])
def test_an_agent_that_is_another_user_can_t_touch_its_verdict(
    orchestrate: Orchestrate, tmp_path: Path, name: str
) -> None:
    folder = project(tmp_path / "project")
    task = folder / "evals" / "harbor" / name
    task.joinpath("environment", "Dockerfile").write_text(OF_A_WORKER)
    settings = task.joinpath("task.toml")
    settings.write_text(settings.read_text().replace("[agent]", '[agent]\nuser = "worker"'))
    if name == "fail":
        task.joinpath("instruction.md").write_text(MEDDLES)
    assert ends(run(orchestrate, folder, f"harbor/{name}")) == {name: ENDS[name]}


def test_tests_of_an_image_whose_user_is_not_root_have_their_places(orchestrate: Orchestrate, tmp_path: Path) -> None:
    folder = project(tmp_path / "project")
    for name in ("pass", "multi_step"):
        dockerfile = folder / "evals" / "harbor" / name / "environment" / "Dockerfile"
        dockerfile.write_text(f"{OF_A_WORKER}USER worker\n")
    expected = {name: ENDS[name] for name in ("pass", "multi_step")}
    assert ends(run(orchestrate, folder, "harbor/pass", "harbor/multi_step")) == expected


def test_another_image_is_no_result_to_be_carried(orchestrate: Orchestrate, tmp_path: Path) -> None:
    folder = project(tmp_path / "project")
    experiment = {"arms": ARMS, "sandbox": {"backend": "container"}, "reuse": "settled"}
    submit(orchestrate, folder, experiment, "harbor/pass", "harbor/fail")
    dockerfile = folder / "evals" / "harbor" / "pass" / "environment" / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text() + "ENV CHANGED=1\n")
    again = cases_of(orchestrate, submit(orchestrate, folder, experiment, "harbor/pass", "harbor/fail"))
    settled = {name: case["settlement"] for name, case in again.items()}
    assert settled == {"harbor/pass": "attempt", "harbor/fail": "carried"}
