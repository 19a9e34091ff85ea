"""From an empty folder to a report, as a user does it: every command as installed, nothing faked."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

SLOW = """
import asyncio
from evalfleet import COMPLETE_COVERAGE, Turn, agent

@agent(coverage=COMPLETE_COVERAGE)
async def slow(turn, ctx):
    await asyncio.sleep(0.25)
    return Turn(reply="sunny")
"""
SLOW_EVAL = """
from evalfleet import define_eval, includes

@define_eval
async def slow(t):
    await t.send("hello")
    t.check(t.reply, includes("sunny"))
"""
SLOW_EXPERIMENT = """
schema_version: 1
name: slow
evals: {select: [slow]}
repetitions: 40
limits: {concurrency: 2}
arms:
  mine: {adapter: python, entry: "slow_agent:slow"}
"""


@pytest.fixture
def project(orchestrate: Orchestrate, tmp_path: Path) -> Iterator[Path]:
    assert orchestrate("init", str(tmp_path)).code == 0
    yield tmp_path


def run_id(err: str) -> str:
    first = err.splitlines()[0]
    assert first.startswith("run "), err
    return first.removeprefix("run ")


def test_try_shows_what_happened(orchestrate: Orchestrate, project: Path) -> None:
    ended = orchestrate("try", "experiment.yaml", "--set", "repetitions=1", cwd=project)
    assert ended.code == 0, ended.out + ended.err
    lines = ended.out.splitlines()
    assert lines[0].startswith("weather/brooklyn #1 · arm mine · attempt 1 · passed")
    assert "  user      What's the weather like in Brooklyn today?" in lines
    assert '  tool      get_weather({"city": "Brooklyn"})' in lines
    assert "  assistant It is sunny in Brooklyn." in lines
    assert sum(line.startswith("  ✓ ") for line in lines) == 3
    assert any("brooklyn.eval.py:" in line for line in lines)
    assert lines[-1] == "accepted"


def test_a_run_is_listed_shown_and_reported(orchestrate: Orchestrate, project: Path) -> None:
    ended = orchestrate("submit", "experiment.yaml", "--inline", cwd=project)
    assert ended.code == 0, ended.out + ended.err
    run = run_id(ended.err)
    listed = orchestrate("runs", "--json").values
    assert (run, "completed", 3) in [(each["id"], each["status"], each["total"]) for each in listed]
    assert {each["kind"] for each in listed} == {"sweep"}
    cases = orchestrate("show", run[:6], "--json").values
    assert [(each["class"], each["repetition"]) for each in cases] == [("passed", 0), ("passed", 1), ("passed", 2)]
    shown = orchestrate("show", run, "0", "--json").values[0]
    assert shown["attempt"]["turns"][0]["events"][-1]["text"] == "It is sunny in Brooklyn."
    written = orchestrate("report", run, "--format", "text,json,md,junit", "-o", "out", cwd=project)
    assert written.code == 0, written.err
    suite = ElementTree.parse(project / "out/junit.xml").getroot()
    assert (suite.attrib["tests"], suite.attrib["failures"], suite.attrib["errors"]) == ("3", "0", "0")
    assert "100.0 % (3/3)" in (project / "out/report.md").read_text()
    status = orchestrate("status", run, "--json").values[0]
    assert (status["accepted"], status["totals"]["passed"]) == (True, 3)


def test_a_failing_agent_is_not_accepted_and_the_reason_is_found(orchestrate: Orchestrate, project: Path) -> None:
    agent = project / "my_agent.py"
    agent.write_text(agent.read_text().replace('"sunny"', '"raining"'))
    ended = orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=project)
    assert ended.code == 1, ended.err
    report = ended.values[-1]
    assert (report["accepted"], report["totals"]["failed"]) == (False, 3)
    shown = orchestrate("show", report["run"]["id"], "0", "--assertions")
    assert shown.code == 0
    marks = [line[2] for line in shown.out.splitlines() if line.startswith("  ") and line[2] in "✓✗?!"]
    assert marks == ["✓", "✓", "✗"]
    assert "raining" in shown.out


def test_everything_that_is_wrong_is_reported_before_anything_runs(orchestrate: Orchestrate, project: Path) -> None:
    experiment = project / "experiment.yaml"
    experiment.write_text(experiment.read_text().replace("repetitions: 3", "repetition: 3").replace("python", "pyton"))
    ended = orchestrate("submit", "experiment.yaml", "--inline", cwd=project)
    assert (ended.code, ended.out) == (2, "")
    assert len(ended.err.splitlines()) == 2
    assert all(line.startswith("error: ") and "experiment.yaml:" in line for line in ended.err.splitlines())


def test_an_interrupted_run_keeps_what_it_settled_and_resumes(orchestrate: Orchestrate, project: Path) -> None:
    (project / "slow_agent.py").write_text(SLOW)
    (project / "evals/slow.eval.py").write_text(SLOW_EVAL)
    (project / "slow.yaml").write_text(SLOW_EXPERIMENT)
    with orchestrate.start("submit", "slow.yaml", "--inline", cwd=project) as process:
        assert process.stderr is not None
        run = run_id(process.stderr.readline())
        while orchestrate("status", run, "--json").values[0]["totals"]["passed"] < 2:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert f"orchestrate resume {run} goes on" in err
    before = orchestrate("status", run, "--json").values[0]
    assert before["run"]["status"] == "cancelled"
    assert 2 <= before["totals"]["passed"] < 40
    ended = orchestrate("resume", run, "--inline", "--set", "limits.concurrency=40", cwd=project)
    assert ended.code == 0, ended.out + ended.err
    after = orchestrate("status", run, "--json").values[0]
    assert (after["run"]["status"], after["totals"]["passed"]) == ("completed", 40)
    assert after["arms"][0]["attempts"] <= 42


def test_a_detached_run_goes_on_by_itself(orchestrate: Orchestrate, project: Path) -> None:
    ended = orchestrate("submit", "experiment.yaml", "--inline", "--detach", "--json", cwd=project)
    assert ended.code == 0, ended.out + ended.err
    (value,) = ended.values
    assert run_id(ended.err) == value["run"]
    watched = orchestrate("watch", value["run"])
    assert watched.code == 0, watched.out + watched.err
    assert watched.out.endswith("accepted\n")
    assert "100.0 % (3/3)" in Path(value["log"]).read_text() + watched.out


def test_what_is_wrong_with_a_detached_run_is_said_at_once(orchestrate: Orchestrate, project: Path) -> None:
    (project / "my_agent.py").unlink()
    ended = orchestrate("submit", "experiment.yaml", "--inline", "--detach", cwd=project)
    assert (ended.code, ended.out) == (2, "")
    assert "my_agent" in ended.err


@pytest.mark.ray
def test_the_same_command_runs_on_ray(orchestrate: Orchestrate, project: Path) -> None:
    ended = orchestrate("submit", "experiment.yaml", "--workers", "1", cwd=project)
    assert ended.code == 0, ended.out + ended.err
    assert "100.0 % (3/3)" in ended.out
