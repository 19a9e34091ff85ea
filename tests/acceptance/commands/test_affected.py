"""`submit --affected-by`: what failed runs anew, nothing of it is carried, and the rest runs after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Ended, Orchestrate

EVAL = """
from evalfleet import Dataset, define_eval, equals

@define_eval(description="Adds one.", dataset=Dataset.jsonl("rows.jsonl", id="name"))
async def sums(t, row):
    t.check((await t.send(str(row["n"]))).reply, equals(str(row["n"] + 1)))
"""
ROWS = "".join(f'{{"name": "r{n}", "n": {n}}}\n' for n in range(6))
#: An agent that can add below `KNOWS`, which is no part of its fingerprint.
AGENT = """
from pathlib import Path

from evalfleet import COMPLETE_COVERAGE, Turn, agent

@agent(coverage=COMPLETE_COVERAGE)
async def adder(turn, ctx):
    knows = int(Path(__file__).with_name("knows.txt").read_text())
    number = int(turn.text)
    return Turn(reply=str(number + 1) if number < knows else "no idea")
"""
EXPERIMENT = """
schema_version: 1
name: sums
repetitions: 2
arms:
  own: {adapter: python, entry: "own_agent:adder"}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "evals").mkdir()
    files = {"evals/sums.eval.py": EVAL, "evals/rows.jsonl": ROWS, "own_agent.py": AGENT, "experiment.yaml": EXPERIMENT}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    knows(tmp_path, 4)
    return tmp_path


def knows(project: Path, number: int) -> None:
    (project / "knows.txt").write_text(str(number))


def submit(orchestrate: Orchestrate, project: Path, *more: str) -> tuple[Ended, list[dict[str, Any]]]:
    """The command, and the summaries of the runs that it made."""
    ended = orchestrate("submit", "experiment.yaml", "--inline", "--json", *more, cwd=project)
    return ended, [value for value in ended.values if "totals" in value]


def evals_of(orchestrate: Orchestrate, report: dict[str, Any]) -> dict[str, int]:
    """How many cases of each eval the run has."""
    found: dict[str, int] = {}
    for case in orchestrate("show", report["run"]["id"], "--json").values:
        found[case["eval"]] = found.get(case["eval"], 0) + 1
    return found


def test_what_failed_runs_anew_then_the_rest(orchestrate: Orchestrate, project: Path) -> None:
    _, (first,) = submit(orchestrate, project)
    run = first["run"]["id"]
    assert (first["totals"]["passed"], first["totals"]["failed"]) == (8, 4)

    ended, (again,) = submit(orchestrate, project, "--affected-by", run, "--then-suite", "--reuse")
    assert (ended.code, again["arms"][0]["carried"]) == (1, 0)
    assert evals_of(orchestrate, again) == {"sums/r4": 2, "sums/r5": 2}
    assert "the other evals were not run: not all that were affected pass" in ended.err

    knows(project, 9)
    ended, (affected, others) = submit(orchestrate, project, "--affected-by", run[:7], "--then-suite", "--reuse")
    assert ended.code == 0
    assert (affected["totals"]["passed"], affected["arms"][0]["carried"]) == (4, 0)
    assert evals_of(orchestrate, others) == {f"sums/r{n}": 2 for n in range(4)}
    assert (others["totals"]["passed"], others["arms"][0]["carried"]) == (8, 8)


def test_an_affected_run_is_gone_on_with_as_it_was_planned(orchestrate: Orchestrate, project: Path) -> None:
    _, (first,) = submit(orchestrate, project)
    _, (affected,) = submit(orchestrate, project, "--affected-by", first["run"]["id"])
    assert affected["totals"]["failed"] == 4
    orchestrate("delete", first["run"]["id"])
    knows(project, 9)
    ended = orchestrate("resume", affected["run"]["id"], "--retry", "failed", "--inline", "--json", cwd=project)
    assert ended.values[-1]["planned"] == 4, ended.err


def test_where_everything_failed_nothing_else_is_left(orchestrate: Orchestrate, project: Path) -> None:
    knows(project, 0)
    _, (first,) = submit(orchestrate, project)
    knows(project, 9)
    ended, (affected,) = submit(orchestrate, project, "--affected-by", first["run"]["id"], "--then-suite")
    assert (ended.code, affected["totals"]["passed"]) == (0, 12)
    assert "there are no other evals" in ended.err


def test_an_eval_that_failed_may_not_be_gone(orchestrate: Orchestrate, project: Path) -> None:
    _, (first,) = submit(orchestrate, project)
    (project / "evals" / "rows.jsonl").write_text(ROWS.replace("r5", "easy"))
    ended, made = submit(orchestrate, project, "--affected-by", first["run"]["id"])
    assert (ended.code, made) == (2, [])
    (problem,) = ended.values[0]["error"]["problems"]
    assert (problem["code"], problem["message"]) == ("UNKNOWN_EVAL", "'sums/r5' is not selected")


def test_what_can_not_be_asked_for(orchestrate: Orchestrate, project: Path) -> None:
    knows(project, 9)
    _, (first,) = submit(orchestrate, project)
    run = first["run"]["id"]
    for more, said in (
        (("--affected-by", run), f"run {run} has no failed or errored case: no eval is affected"),
        (("--affected-by", "0000000000"), "there is no run '0000000000'"),
        (("--then-suite",), "--then-suite goes with --affected-by RUN"),
    ):
        ended = orchestrate("submit", "experiment.yaml", "--inline", *more, cwd=project)
        assert ended.code == 2 and ended.err.startswith(f"error: {said}"), ended.err
