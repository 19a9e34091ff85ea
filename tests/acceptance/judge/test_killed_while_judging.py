"""A run that is killed while it judges: what was recorded is judged again, and no agent runs twice."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from evalfleet.testing.http_endpoint import Request
from evalfleet.testing.judge_endpoint import SILENT
from evalfleet.testing.model_endpoint import Scripted
from tests.acceptance.cli.conftest import Orchestrate
from tests.acceptance.judge.test_judged_runs import judged_by, rules

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


async def test_the_judge_is_asked_again_and_the_agent_is_not(orchestrate: Orchestrate, tmp_path: Path) -> None:
    judging, is_back = asyncio.Event(), False
    asked = 0

    def judge(request: Request) -> Scripted:
        nonlocal asked
        asked += 1
        if asked == REPETITIONS:
            judging.set()
        return rules(request) if is_back else SILENT

    async with judged_by(orchestrate, tmp_path, otherwise=judge) as project:
        (tmp_path / "weather_agent.py").write_text(AGENT, encoding="utf-8")
        project.write(rest=f"evals: {{select: [cause]}}\nrepetitions: {REPETITIONS}")
        experiment = tmp_path / "experiment.yaml"
        scripted = "parrot: {adapter: scripted, model: parrot-1}"
        own = 'mine: {adapter: python, entry: "weather_agent:weather"}'
        experiment.write_text(experiment.read_text("utf-8").replace(scripted, own), encoding="utf-8")

        process = orchestrate.start("submit", "experiment.yaml", "--inline", cwd=tmp_path)
        await asyncio.wait_for(judging.wait(), 60)
        process.send_signal(signal.SIGKILL)
        _, said = await asyncio.to_thread(process.communicate)
        run = said.splitlines()[0].removeprefix("run ")
        is_back = True

        ended = await project("resume", run, "--inline", "--json")
        assert ended.code == 0, ended.out + ended.err
        assert (tmp_path / "calls.txt").read_text() == "x" * REPETITIONS, "an agent ran although it was recorded"
        shown = (await project("show", run, "0", "--json")).values[0]
        assert shown["attempts"][-1]["outcome"] == "completed"
        attempt = shown["attempt"]
        assert (attempt["verdict"], attempt["usage"]["input_tokens"]) == ("passed", 7)
        assert len(project.rows("recipe", run)) == REPETITIONS, "each question was answered once"
