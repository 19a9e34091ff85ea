"""What an agent changed: recorded, shown, and judged again without the agent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

AGENT = """
from pathlib import Path

from evalfleet import COMPLETE_COVERAGE, Turn, sandbox_agent
from evalfleet.sandbox_ports import Command

CALLS = Path(__file__).with_name("calls.txt")

@sandbox_agent(coverage=COMPLETE_COVERAGE)
async def worker(turn, ctx):
    with CALLS.open("a") as calls:
        calls.write("x")
    await ctx.sandbox.run(Command(argv=("sh", "-ec", turn.text)))
    return Turn(reply="done")
"""
EVAL = """
from evalfleet import SandboxSpec, TrackChanges, define_eval, equals

SETUP = ("printf 'one\\\\r\\\\ntwo\\\\r\\\\n' > kept.txt", "printf '*.log\\\\n' > .gitignore", "touch gone.txt")

@define_eval(sandbox=SandboxSpec(backend="local", setup=SETUP, changes=TrackChanges()))
async def body(t):
    await t.sandbox.write("from-eval.txt", "eval")
    await t.send("printf 'one\\\\r\\\\nTWO\\\\r\\\\n' > kept.txt; printf 'a\\\\000b' > small.bin; echo x > run.log")
    await t.send("rm gone.txt; ln -s kept.txt link; head -c 3000000 /dev/zero > big.bin")
    t.sandbox.file_changed("kept.txt")
    t.sandbox.file_changed("from-eval.txt").label("the eval's own")
"""
EXPERIMENT = """
schema_version: 1
name: changes
arms:
  own: {adapter: python, entry: "own_agent:worker"}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "files.eval.py").write_text(EVAL)
    (tmp_path / "own_agent.py").write_text(AGENT)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    return tmp_path


def changes_of(orchestrate: Orchestrate, run: str) -> dict[str, Any]:
    (value,) = orchestrate("show", run, "0", "--json").values
    return value["attempt"]["changes"]


def results(orchestrate: Orchestrate, run: str) -> list[str]:
    (value,) = orchestrate("show", run, "0", "--json").values
    return [row["outcome"]["result"] for row in value["attempt"]["assertions"]]


def test_what_an_agent_changed_is_kept_shown_and_judged_again(orchestrate: Orchestrate, project: Path) -> None:
    ended = orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=project)
    run = ended.values[-1]["run"]["id"]
    assert results(orchestrate, run) == ["matched", "mismatched"]
    found = changes_of(orchestrate, run)
    windows = [
        (window["label"], window["by"], [(each["kind"], each["path"], each["ignored"]) for each in window["changes"]])
        for window in found["windows"]
    ]
    assert windows == [
        ("turn1", "eval", [("added", "from-eval.txt", False)]),
        (
            "turn1",
            "agent",
            [("modified", "kept.txt", False), ("added", "run.log", True), ("added", "small.bin", False)],
        ),
        ("turn2", "agent", [("added", "big.bin", False), ("deleted", "gone.txt", False), ("added", "link", False)]),
    ]
    assert found["error"] is None and found["gap"] is None
    kept, big = found["windows"][1]["changes"][0], found["windows"][2]["changes"][0]
    assert "-two\r\n+TWO\r\n" in kept["patch"]
    assert (big["patch"], big["binary"], big["after"]["size"]) == (None, True, 3_000_000)
    shown = orchestrate("show", run, "0", "--diff").out
    assert "added    big.bin (binary, 2.86 MB, content not kept)" in shown and "+TWO" in shown

    edited = EVAL.replace('file_changed("from-eval.txt")', 'not_in_diff("three")')
    (project / "evals" / "files.eval.py").write_text(edited + '    t.sandbox.file_deleted("gone.*")\n')
    judged = orchestrate("rescore", run, "--reason", "another question", cwd=project)
    assert judged.code == 1, judged.out
    assert results(orchestrate, run) == ["matched", "unavailable", "matched"]
    assert changes_of(orchestrate, run) == found
    assert (project / "calls.txt").read_text() == "xx"


def test_without_git_no_case_begins(orchestrate: Orchestrate, project: Path, tmp_path: Path) -> None:
    (tmp_path / "programs").mkdir()
    for program in ("sh", "env", "uname"):
        (tmp_path / "programs" / program).symlink_to(f"/bin/{program}")
    poor = replace(orchestrate, variables={**orchestrate.variables, "PATH": str(tmp_path / "programs")})
    ended = poor("submit", "experiment.yaml", "--inline", cwd=project)
    assert ended.code == 2 and "install git" in ended.err, ended.err
    assert not (project / "calls.txt").exists() and "run " not in ended.err.partition("error:")[0]
    found = {check["name"]: (check["health"], check["found"]) for check in poor("doctor", "--json").values}
    assert found["git"] == ("warning", "not installed")
    assert {check["name"]: check["health"] for check in orchestrate("doctor", "--json").values}["git"] == "good"
