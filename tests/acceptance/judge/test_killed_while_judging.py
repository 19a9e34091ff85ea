"""A run that is killed while it judges: what was recorded is judged again, and no agent runs twice."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from evalfleet.testing.http_endpoint import Request
from evalfleet.testing.judge_endpoint import SILENT
from evalfleet.testing.model_endpoint import Scripted
from tests.acceptance.cli.conftest import Orchestrate
from tests.acceptance.judge.test_judged_runs import Project, judged_by, rules
from tests.acceptance.kill.processes import WORKER, Tree

AGENT = """
from pathlib import Path

from evalfleet import COMPLETE_COVERAGE, Turn, Usage, agent

CALLS = Path(__file__).with_name("calls.txt")

@agent(coverage=COMPLETE_COVERAGE)
async def weather(turn, ctx):
    with CALLS.open("a") as calls:
        calls.write("x")
    return Turn(reply="Since the clouds were full.", usage=Usage(input_tokens=7, output_tokens=5))
"""
REPETITIONS = 3


class Judge:
    """A judge that keeps silent until it `is_back`; `all_asked` once every repetition has a question open."""

    def __init__(self) -> None:
        self.is_back = False
        self.all_asked = asyncio.Event()
        self._asked = 0

    def __call__(self, request: Request) -> Scripted:
        self._asked += 1
        if self._asked == REPETITIONS:
            self.all_asked.set()
        return rules(request) if self.is_back else SILENT


def write(project: Project) -> None:
    """The experiment, with an agent that notes each of its calls."""
    (project.folder / "weather_agent.py").write_text(AGENT, encoding="utf-8")
    project.write(rest=f"evals: {{select: [cause]}}\nrepetitions: {REPETITIONS}")
    experiment = project.folder / "experiment.yaml"
    scripted = "parrot: {adapter: scripted, model: parrot-1}"
    own = 'mine: {adapter: python, entry: "weather_agent:weather"}'
    experiment.write_text(experiment.read_text("utf-8").replace(scripted, own), encoding="utf-8")


async def check(project: Project, run: str) -> None:
    assert (project.folder / "calls.txt").read_text() == "x" * REPETITIONS, "an agent ran although it was recorded"
    shown = (await project("show", run, "0", "--json")).values[0]
    assert shown["attempts"][-1]["outcome"] == "completed"
    attempt = shown["attempt"]
    assert (attempt["verdict"], attempt["usage"]["input_tokens"]) == ("passed", 7)
    assert len(project.rows("recipe", run)) == REPETITIONS, "each question was answered once"


async def test_a_killed_run_asks_the_judge_again_and_not_the_agent(orchestrate: Orchestrate, tmp_path: Path) -> None:
    judge = Judge()
    async with judged_by(orchestrate, tmp_path, otherwise=judge) as project:
        write(project)
        process = orchestrate.start("submit", "experiment.yaml", "--inline", cwd=tmp_path)
        await asyncio.wait_for(judge.all_asked.wait(), 60)
        process.send_signal(signal.SIGKILL)
        _, said = await asyncio.to_thread(process.communicate)
        judge.is_back = True
        run = said.splitlines()[0].removeprefix("run ")
        ended = await project("resume", run, "--inline", "--json")
        assert ended.code == 0, ended.out + ended.err
        await check(project, run)


@pytest.mark.ray
async def test_a_killed_worker_costs_no_agent_run_either(orchestrate: Orchestrate, tmp_path: Path) -> None:
    judge = Judge()
    async with judged_by(orchestrate, tmp_path, otherwise=judge) as project:
        write(project)
        process = orchestrate.start("submit", "experiment.yaml", "--json", cwd=tmp_path)
        await asyncio.wait_for(judge.all_asked.wait(), 90)
        (worker,) = Tree(process.pid).find(WORKER)
        judge.is_back = True
        worker.kill()
        out, err = await asyncio.to_thread(process.communicate)
        assert process.returncode == 0, out + err
        await check(project, json.loads(out.splitlines()[-1])["run"]["id"])
