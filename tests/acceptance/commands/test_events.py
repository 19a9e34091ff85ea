"""Run events as `submit`, `resume` and `watch` write them: a line each, the same for all who read, after a kill too."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

AGENT = """
import asyncio

from evalfleet import COMPLETE_COVERAGE, Turn, agent


@agent(coverage=COMPLETE_COVERAGE)
async def slow(turn, ctx):
    await asyncio.sleep(0.3)
    return Turn(reply=turn.text)
"""
EVAL = """
from evalfleet import define_eval, equals


@define_eval
async def say(t):
    await t.send("hello")
    t.check(t.reply, equals("hello"))
"""
EXPERIMENT = """
schema_version: 1
name: told
arms:
  slow: {adapter: python, entry: "slow_agent:slow"}
limits: {concurrency: 4}
repetitions: 40
"""
CASES = 40


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("told")
    (folder / "evals").mkdir()
    (folder / "slow_agent.py").write_text(AGENT)
    (folder / "evals" / "say.eval.py").write_text(EVAL)
    (folder / "experiment.yaml").write_text(EXPERIMENT)
    return folder


def read(process: subprocess.Popen[str], count: int) -> list[dict[str, Any]]:
    """Its next lines."""
    assert process.stdout is not None
    return [json.loads(process.stdout.readline()) for _ in range(count)]


def test_lines_are_events_as_they_come_and_the_last_one_is_the_summary(orchestrate: Orchestrate, project: Path) -> None:
    ended = orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=project)
    assert ended.code == 0, ended.err
    *events, summary = ended.values
    assert (summary["totals"]["passed"], summary["accepted"]) == (CASES, True)
    assert [event["sequence"] for event in events] == list(range(1, 3 * CASES + 3))
    assert Counter(event["event"] for event in events) == {
        "run.started": 1, "case.started": CASES, "turn.completed": CASES, "case.completed": CASES, "run.completed": 1
    }  # fmt: skip
    run = summary["run"]["id"]
    watched = orchestrate("watch", run, "--json")
    assert watched.values == [*events, {"event": "report", **summary}]
    later = orchestrate("watch", run, "--json", "--after", events[99]["cursor"])
    assert later.values[:-1] == events[100:]
    wrong = orchestrate("watch", run, "--json", "--after", "100")
    assert (wrong.code, wrong.err) == (
        2,
        "error: '100' is not the cursor of a run event: take one as an event has it, like 17.5.3\n",
    )


@pytest.mark.parametrize("place", [("--inline",), ("--workers", "1")], ids=["inline", "ray"])
@pytest.mark.ray
def test_a_killed_run_goes_on_with_the_next_number(
    orchestrate: Orchestrate, project: Path, place: tuple[str, ...]
) -> None:
    with orchestrate.start("submit", "experiment.yaml", *place, "--json", cwd=project) as process:
        told = read(process, 20)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    run = told[0]["run"]
    listed = {value["id"]: value for value in orchestrate("runs", "--json").values}
    assert (listed[run]["status"], listed[run]["interrupted"]) == ("running", True), (
        "at once, not when its beat is stale"
    )
    resumed = orchestrate("resume", run, "--inline", "--steal", "--json", cwd=project)
    assert resumed.code == 0, resumed.err
    *after, summary = resumed.values
    everything = orchestrate("watch", run, "--json").values[:-1]
    assert [event["sequence"] for event in everything] == list(range(1, len(everything) + 1))
    assert everything[: len(told)] == told
    assert everything[-len(after) :] == after
    assert (after[0]["event"], after[-1]["event"]) == ("run.resumed", "run.completed")
    completed = [event["case"] for event in everything if event["event"] == "case.completed"]
    assert sorted(completed) == list(range(CASES))
    assert summary["totals"]["passed"] == CASES


def test_a_pipe_that_is_closed_is_an_observer_that_failed(orchestrate: Orchestrate, project: Path) -> None:
    with orchestrate.start("submit", "experiment.yaml", "--inline", "--json", cwd=project) as process:
        (first,) = read(process, 1)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 4, said
    assert f"error: the observer of run {first['run']} failed at event " in said
    assert "BrokenPipeError" in said and "[EVALUATION_OBSERVER_FAILED]" in said
    assert "Traceback" not in said and "Exception ignored" not in said
    (status,) = orchestrate("status", first["run"], "--json").values
    assert (status["run"]["status"], status["run"]["stop_reason"]) == ("cancelled", "its observer failed")
    assert 0 < status["totals"]["passed"] < CASES
    assert orchestrate("resume", first["run"], "--inline", cwd=project).code == 0


def test_whoever_watches_and_leaves_ends_nothing(orchestrate: Orchestrate, project: Path) -> None:
    with orchestrate.start("submit", "experiment.yaml", "--inline", "--json", cwd=project) as process:
        (first,) = read(process, 1)
        with orchestrate.start("watch", first["run"], "--json") as watching:
            assert read(watching, 1) == [first]
            assert watching.stdout is not None and watching.stderr is not None
            watching.stdout.close()
            assert (watching.stderr.read(), watching.wait(60)) == ("", 1)
        *_, summary = process.communicate(timeout=90)[0].splitlines()
    assert json.loads(summary)["totals"]["passed"] == CASES
