"""Sandboxes that stay after an attempt that failed: found, entered, spared by the reaper, and removed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.sandboxes.other_backends import AGENT

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

EVALS = {
    "good": "t.check(turn.reply, equals('written\\n'))",
    "bad": "t.check(turn.reply, equals('something else'))",
    "broken": "raise ZeroDivisionError",
}
EVAL = """
from evalfleet import *

SPEC = SandboxSpec(backend="local", env={{"COLOUR": "deep 'blue' é"}}, env_from=("DOOR_CODE",))

@define_eval(description="Writes a file.", sandbox=SPEC)
async def body(t):
    turn = await t.send("(sleep 600 &) ; echo left by {name} > note; test -n \\"$DOOR_CODE\\" && echo written")
    {check}
"""
EXPERIMENT = """
schema_version: 1
name: keeping
arms: {mine: {adapter: python, entry: "my_agents:worker"}}
"""


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOOR_CODE", "7-1-3")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "evals").mkdir()
    for name, check in EVALS.items():
        (tmp_path / "evals" / f"{name}.eval.py").write_text(EVAL.format(name=name, check=check))
    (tmp_path / "my_agents.py").write_text(AGENT)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    return tmp_path


@pytest.fixture
def clean(orchestrate: Orchestrate) -> Any:
    yield
    orchestrate("sandboxes", "--reap", "--kept")
    assert listed(orchestrate) == {}


def listed(orchestrate: Orchestrate) -> dict[str, str]:
    """The evals of the sandboxes that there are, and how each stands."""
    (value,) = orchestrate("sandboxes", "--json").values
    return {view["eval_id"]: view["standing"] for view in value["sandboxes"]}


@pytest.mark.parametrize(
    ("how", "kept"),
    [
        ([], set[str]()),
        (["--keep-sandbox=all"], {"good", "bad", "broken"}),
    ],
    ids=["none", "all"],
)
@pytest.mark.usefixtures("clean")
def test_whose_sandbox_stays(orchestrate: Orchestrate, project: Path, how: list[str], kept: set[str]) -> None:
    assert orchestrate("try", "experiment.yaml", *how, cwd=project).code == 1
    assert listed(orchestrate) == dict.fromkeys(kept, "kept")


@pytest.mark.usefixtures("clean")
def test_a_kept_one_is_told_entered_spared_and_stopped(orchestrate: Orchestrate, project: Path) -> None:
    ended = orchestrate("submit", "experiment.yaml", "--inline", "--json", "--keep-sandbox", cwd=project)
    run = ended.values[-1]["run"]["id"]
    shown = orchestrate("show", run, "bad").out
    (use,) = [line for line in shown.splitlines() if line.startswith("  sandbox local")]
    identifier = use.rpartition("orchestrate sandbox enter ")[2]
    assert identifier.startswith(run)

    entered = enter(orchestrate, "bad", "cat note; echo more > other; exit 7\n")
    assert (entered.returncode, entered.stdout) == (7, "left by bad\n")
    assert enter(orchestrate, identifier, "cat other\n").stdout == "more\n"
    assert enter(orchestrate, identifier, 'echo "$COLOUR|$DOOR_CODE"\n').stdout == "deep 'blue' é|\n"

    (value,) = orchestrate("sandboxes", "--reap", "--force", "--json").values
    assert value == {"removed": []}
    assert orchestrate("sandbox", "stop", identifier).out == f"sandbox {identifier} is removed\n"
    assert listed(orchestrate) == {"broken": "kept"}
    gone = orchestrate("sandbox", "enter", identifier)
    assert gone.code == 2
    assert gone.err == f"error: there is no sandbox '{identifier}': orchestrate sandboxes lists them\n"
    text = orchestrate("sandboxes", "--reap", "--kept").out.splitlines()
    assert text[-1] == "1 sandbox removed" and "broken" in text[1]


@pytest.mark.usefixtures("clean")
def test_a_run_that_goes_on_keeps_what_it_is_told_to(orchestrate: Orchestrate, project: Path) -> None:
    ended = orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=project)
    run = ended.values[-1]["run"]["id"]
    assert orchestrate("resume", run, "--inline", "--retry", "errored", cwd=project).code == 1
    assert listed(orchestrate) == {}
    assert orchestrate("resume", run, "--inline", "--retry", "errored", "--keep-sandbox", cwd=project).code == 1
    assert listed(orchestrate) == {"broken": "kept"}


@pytest.mark.usefixtures("clean")
def test_a_name_that_fits_several_is_refused_with_their_ids(orchestrate: Orchestrate, project: Path) -> None:
    orchestrate("try", "experiment.yaml", "--keep-sandbox", cwd=project)
    stopped = orchestrate("sandbox", "stop", "b")
    assert stopped.code == 2 and stopped.err.startswith("error: 'b' names several sandboxes: ")


def test_kept_and_force_without_reap_are_no_words_of_their_own(orchestrate: Orchestrate) -> None:
    refused = orchestrate("sandboxes", "--force")
    assert refused.code == 2 and "say what --reap removes" in refused.err
    assert orchestrate("sandboxes").out == "there are none\n"
    assert json.loads(orchestrate("sandboxes", "--json").out)["faults"].get("local") is None


def enter(orchestrate: Orchestrate, target: str, typed: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("orchestrate")
    return subprocess.run(
        [program, "sandbox", "enter", target],
        input=typed,
        env=orchestrate.environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
