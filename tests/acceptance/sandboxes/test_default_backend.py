"""Sandboxes for which nobody names a backend: bubblewrap where it works, else none; a run keeps what it began in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evalfleet.plugins import sandbox_factories

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Ended, Orchestrate

pytestmark = pytest.mark.skipif("bubblewrap" not in sandbox_factories(), reason="bubblewrap is not installed")

AGENT = """
from evalfleet import Coverage, Turn, complete, sandbox_agent, unavailable
from evalfleet.sandbox_ports import Command

@sandbox_agent(coverage=Coverage(messages=complete, actions=complete, events=complete, status=complete,
                                 data=complete, usage=unavailable("no model")))
async def worker(turn, ctx):
    done = await ctx.sandbox.run(Command(argv=("sh", "-c", turn.text)))
    return Turn(reply=done.stdout.decode())
"""
EVAL = """
from pathlib import Path

from evalfleet import define_eval, includes

@define_eval(description="Looks for a file of this machine.")
async def body(t):
    await t.send(f"test -e {Path(__file__).parent} && echo this machine || echo sealed")
    t.check(t.reply, includes("EXPECTED"))
"""
ARM = {"adapter": "python", "entry": "my_agents:worker"}
NOT_HERE = "sandbox backend bubblewrap does not work here: "


def project(folder: Path, expected: str = "") -> Path:
    (folder / "evals").mkdir()
    (folder / "evals/look.eval.py").write_text(EVAL.replace("EXPECTED", expected))
    (folder / "my_agents.py").write_text(AGENT)
    document = {"schema_version": 1, "name": "default", "arms": {"mine": ARM}, "reuse": "settled"}
    (folder / "experiment.yaml").write_text(json.dumps(document))
    return folder


@pytest.fixture
def gone(orchestrate: Orchestrate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orchestrate]:
    """The command on a machine whose bubblewrap the kernel refuses to make namespaces."""
    folder = tmp_path_factory.mktemp("refused")
    (folder / "bwrap").write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n")
    (folder / "bwrap").chmod(0o755)
    yield replace(orchestrate, variables={"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"})


def case_of(orchestrate: Orchestrate, run: str) -> tuple[dict[str, Any], str, str]:
    """The default that the run keeps, the backend that its case had, and what the agent saw there."""
    (shown,) = orchestrate("show", run, "0", "--json").values
    attempt = shown["attempt"]
    return shown["default_backend"], attempt["sandbox"]["backend"], attempt["turns"][0]["events"][-1]["text"].strip()


def run_of(ended: Ended) -> str:
    return ended.values[-1]["run"]["id"]


@pytest.mark.ray
@pytest.mark.parametrize("how", [["--inline"], ["--workers", "1"]], ids=" ".join)
def test_where_bubblewrap_works_it_is_the_default(orchestrate: Orchestrate, tmp_path: Path, how: list[str]) -> None:
    folder = project(tmp_path, "sealed")
    ended = orchestrate("submit", "experiment.yaml", *how, "--json", cwd=folder)
    assert ended.code == 0, ended.err
    assert "default sandbox backend bubblewrap: it works here\n" in ended.err
    run = run_of(ended)
    assert case_of(orchestrate, run) == ({"name": "bubblewrap", "why": "it works here"}, "bubblewrap", "sealed")
    if how != ["--inline"]:
        return
    line = "default sandbox backend bubblewrap (chosen when the run was planned): it works here"
    assert line in orchestrate("show", run).out.splitlines()
    assert line in orchestrate("show", run, "0").out.splitlines()


def test_where_it_does_not_work_nothing_runs_without_isolation(gone: Orchestrate, tmp_path: Path) -> None:
    folder = project(tmp_path, "this machine")
    for command in (("plan",), ("submit", "--inline"), ("try",)):
        ended = gone(command[0], "experiment.yaml", *command[1:], cwd=folder)
        assert (ended.code, "[SANDBOX_TEMPLATE_MISSING]" in ended.err) == (2, True)
        assert NOT_HERE in ended.err
        assert "setting up uid map: Permission denied" in ended.err
        assert "('local' always works and isolates nothing); set sandbox.backend in the experiment" in ended.err
    chosen = replace(gone, variables={**gone.variables, "EVALFLEET_SANDBOX_BACKEND": "local"})
    ended = chosen("submit", "experiment.yaml", "--inline", "--json", cwd=folder)
    assert ended.code == 0, ended.err
    assert "default sandbox backend local: EVALFLEET_SANDBOX_BACKEND says so; it isolates nothing\n" in ended.err
    assert case_of(gone, run_of(ended))[1:] == ("local", "this machine")


def test_results_are_shared_with_the_backend_by_name_and_not_with_another(
    orchestrate: Orchestrate, tmp_path: Path
) -> None:
    folder = project(tmp_path, "sealed")
    run = run_of(orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=folder))

    def action(command: Orchestrate) -> tuple[str, list[str], str]:
        (value,) = command("plan", "experiment.yaml", "--cases", "--json", cwd=folder).values
        return value["action"], value["changed"], value["reason"]

    assert action(orchestrate)[:2] == ("carry", [])
    unsealed = replace(orchestrate, variables={"EVALFLEET_SANDBOX_BACKEND": "local"})
    assert action(unsealed) == ("run", ["sandbox"], f"changed since run {run}: sandbox")
    experiment = json.loads((folder / "experiment.yaml").read_text())
    (folder / "experiment.yaml").write_text(json.dumps({**experiment, "sandbox": {"backend": "bubblewrap"}}))
    assert action(orchestrate)[:2] == ("carry", [])


def test_a_run_goes_on_in_what_it_was_planned_with_or_says_what_is_missing(
    orchestrate: Orchestrate, gone: Orchestrate, tmp_path: Path
) -> None:
    folder = project(tmp_path, "neither")
    begun = run_of(orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=folder))
    again = ("resume", begun, "--retry", "failed", "--inline")
    refused = gone(*again)
    said = (
        f"error: run {begun} has the default sandbox backend bubblewrap: sandbox backend bubblewrap does not work here"
    )
    assert (refused.code, said in refused.err) == (2, True)
    assert orchestrate(*again).code == 1
    (shown,) = orchestrate("show", begun, "0", "--json").values
    assert len(shown["attempts"]) == 2
    assert shown["attempt"]["sandbox"]["backend"] == "bubblewrap"

    unsealed = replace(gone, variables={**gone.variables, "EVALFLEET_SANDBOX_BACKEND": "local"})
    elsewhere = run_of(unsealed("submit", "experiment.yaml", "--inline", "--json", cwd=folder))
    resumed = orchestrate("resume", elsewhere, "--retry", "failed", "--inline")
    assert "default sandbox backend local (chosen when the run was planned): EVALFLEET_SANDBOX_BACKEND" in resumed.err
    assert case_of(orchestrate, elsewhere)[1:] == ("local", "this machine")


def test_on_a_cluster_somebody_has_to_say_it(orchestrate: Orchestrate, tmp_path: Path) -> None:
    folder = project(tmp_path)
    cluster = replace(orchestrate, variables={"EVALFLEET_RAY_ADDRESS": "192.0.2.1:6379"})
    ended = cluster("plan", "experiment.yaml", cwd=folder)
    assert ended.code == 2
    assert "what works on the workers of 192.0.2.1:6379 can't be told from here (EVALFLEET_SANDBOX_BACKEND" in ended.err
    assert "[SANDBOX_TEMPLATE_MISSING]" in ended.err
    said = replace(cluster, variables={**cluster.variables, "EVALFLEET_SANDBOX_BACKEND": "bubblewrap"})
    (planned,) = said("plan", "experiment.yaml", "--json", cwd=folder).values
    assert planned["default_backend"] == {"name": "bubblewrap", "why": "EVALFLEET_SANDBOX_BACKEND says so"}


def test_the_environment_may_say_it(orchestrate: Orchestrate, tmp_path: Path) -> None:
    folder = project(tmp_path)
    local = replace(orchestrate, variables={"EVALFLEET_SANDBOX_BACKEND": "local"})
    (planned,) = local("plan", "experiment.yaml", "--json", cwd=folder).values
    assert planned["default_backend"]["why"] == "EVALFLEET_SANDBOX_BACKEND says so; it isolates nothing"
    unknown = replace(orchestrate, variables={"EVALFLEET_SANDBOX_BACKEND": "lokal"})
    ended = unknown("plan", "experiment.yaml", cwd=folder)
    assert (ended.code, "there is no sandbox backend 'lokal' (installed: bubblewrap" in ended.err) == (2, True)


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="rights can be taken from root alone, by setpriv"
)
def test_a_binary_without_the_right_to_make_namespaces_does_not_count(orchestrate: Orchestrate, tmp_path: Path) -> None:
    folder, less = project(tmp_path), ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
    program = Path(sys.executable).with_name("orchestrate")
    done = subprocess.run(
        [*less, program, "plan", "experiment.yaml"],
        cwd=folder, env=orchestrate.environment, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 2
    assert "as root sandbox backend bubblewrap needs cap_sys_admin" in done.stderr


def test_doctor_says_it(orchestrate: Orchestrate, gone: Orchestrate) -> None:
    def check(command: Orchestrate) -> tuple[str, str]:
        found = {check["name"]: check for check in command("doctor", "--json").values}["default sandbox backend"]
        return found["health"], found["found"]

    assert check(orchestrate) == ("good", "bubblewrap: it works here")
    health, found = check(gone)
    assert (health, found.startswith(f"none: {NOT_HERE}")) == ("warning", True)
