"""Backends that don't work, or don't obey: said before anything is spent, and settled in time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.sandboxes.other_backends import AGENT, with_backends

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

EVAL = """
from evalfleet import *

@define_eval(description="Runs a command.")
async def body(t):
    (await t.send("true")).succeeded()
"""


@pytest.fixture(scope="module")
def command(orchestrate: Orchestrate, tmp_path_factory: pytest.TempPathFactory) -> Orchestrate:
    return with_backends(orchestrate, tmp_path_factory.mktemp("package"))


def project(folder: Path, backend: str, **limits: Any) -> Path:
    (folder / "evals").mkdir()
    (folder / "evals" / "command.eval.py").write_text(EVAL)
    (folder / "my_agents.py").write_text(AGENT)
    document = {
        "schema_version": 1,
        "name": "backends",
        "retry": {"max_attempts": 1},
        "limits": limits,
        "sandbox": {"backend": backend, "image": "any"},
        "arms": {"mine": {"adapter": "python", "entry": "my_agents:worker"}},
    }
    (folder / "experiment.yaml").write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize("how", [["submit", "--inline"], ["try"], ["submit", "--workers", "1"]], ids=" ".join)
@pytest.mark.ray
def test_a_backend_that_does_not_work_here_is_said_before_there_is_a_run(
    command: Orchestrate, tmp_path: Path, how: list[str]
) -> None:
    folder = project(tmp_path, "absent")
    ended = command(how[0], "experiment.yaml", *how[1:], cwd=folder)
    assert (ended.code, ended.err) == (2, "error: there is no engine `absent` here: install it\n")
    assert command("runs", "--all", "--json").out == ""


def test_doctor_says_which_backends_work(command: Orchestrate) -> None:
    found = {check["name"]: check for check in command("doctor", "--json").values}
    assert (found["sandbox local"]["health"], found["sandbox local"]["advice"]) == ("good", None)
    absent = found["sandbox absent"]
    assert (absent["health"], absent["found"]) == ("warning", "there is no engine `absent` here: install it")


@pytest.mark.parametrize("how", [["submit", "--inline"], ["try"]], ids=" ".join)
def test_a_command_that_never_ends_and_hears_nothing_is_left_behind_soon_after_the_deadline(
    command: Orchestrate, tmp_path: Path, how: list[str]
) -> None:
    folder = project(tmp_path, "stubborn", attempt_timeout="2s")
    ended = command(how[0], "experiment.yaml", *how[1:], "--json", cwd=folder)
    run = ended.values[-1]["run"]["id"]
    (shown,) = command("show", run, "0", "--json").values
    (attempt,) = shown["attempts"]
    assert (attempt["kind"], attempt["code"]) == ("deadline", "ATTEMPT_TIMEOUT")
    assert 2 <= attempt["duration"] < 2 + 5
    assert shown["attempt"]["sandbox"]["starts"] == 1
