"""Runs that stopped half-way: found by the next `submit`, asked about, moved with their project, carried in a file."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

FILES = {
    "slow_agent.py": """
import asyncio
from evalfleet import COMPLETE_COVERAGE, Turn, Usage, agent

@agent(coverage=COMPLETE_COVERAGE)
async def slow(turn, ctx):
    await asyncio.sleep(0.25)
    return Turn(reply="sunny", usage=Usage(input_tokens=1000, output_tokens=100))
""",
    "evals/slow.eval.py": """
from evalfleet import define_eval, includes

@define_eval(description="answers")
async def slow(t):
    await t.send("hello")
    t.check(t.reply, includes("sunny"))
    t.max_cost(0.01)
""",
    "experiment.yaml": """
schema_version: 1
name: slow
evals: {select: [slow]}
repetitions: 20
limits: {concurrency: 2}
prices: {local: {input: 2, output: 10}}
arms:
  mine: {adapter: python, entry: "slow_agent:slow", model: local}
""",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "project"


def interrupted(orchestrate: Orchestrate, project: Path) -> str:
    """A run that somebody stopped when some of its cases were settled."""
    with orchestrate.start("submit", "experiment.yaml", "--inline", cwd=project) as process:
        assert process.stderr is not None
        run = process.stderr.readline().strip().removeprefix("run ")
        while " settled · " not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    return run


def status(orchestrate: Orchestrate, run: str) -> dict[str, Any]:
    (value,) = orchestrate("status", run, "--json").values
    return value["run"]


def on_terminal(orchestrate: Orchestrate, answer: str, project: Path, *arguments: str) -> tuple[int, str]:
    """Runs a command on a terminal, types an answer to its question, and returns what it said there."""
    master, slave = pty.openpty()
    try:
        program = Path(sys.executable).with_name("orchestrate")
        with subprocess.Popen(
            [program, *arguments],
            cwd=project,
            env=orchestrate.environment,
            preexec_fn=lambda: os.login_tty(slave),
        ) as process:
            os.close(slave)
            said = b""
            while b"?" not in said:
                said += os.read(master, 4096)
            os.write(master, answer.encode())
            while True:
                if not select.select([master], [], [], 1.0)[0]:
                    os.write(master, answer.encode())  # a Ctrl-C between the question and the reading is lost
                    continue
                try:
                    said += os.read(master, 4096)
                except OSError:  # the terminal's other side is closed
                    break
        return process.returncode, said.decode()
    finally:
        os.close(master)


def test_an_unfinished_run_is_named_asked_about_and_gone_on_with(orchestrate: Orchestrate, project: Path) -> None:
    old = interrupted(orchestrate, project)
    assert status(orchestrate, old)["status"] == "cancelled"

    fresh = orchestrate("submit", "experiment.yaml", "--inline", cwd=project)
    first, second = fresh.err.splitlines()[:2]
    assert fresh.code == 0 and first != f"run {old}"
    assert second.startswith(f"run {old} of the same definitions is not finished: ")
    assert second.endswith(f"(orchestrate resume {old} goes on with that one)")

    (planned,) = orchestrate("plan", "experiment.yaml", "--set", "repetitions=3", "--json", cwd=project).values
    assert planned["arms"][0]["estimated_usd"] == pytest.approx(3 * 0.003)
    (reason,) = planned["reasons"]
    assert (reason["action"], reason["reason"].endswith("; --reuse would carry it")) == ("run", True)
    (carried,) = orchestrate("plan", "experiment.yaml", "--reuse", "--json", cwd=project).values
    assert (carried["arms"][0]["carry"], carried["arms"][0]["estimated_usd"]) == (20, 0.0)

    code, said = on_terminal(orchestrate, "\n", project, "submit", "experiment.yaml", "--inline")
    assert code == 0, said
    assert f"run {old} of the same definitions is not finished" in said and "Go on with it" in said
    assert status(orchestrate, old)["status"] == "completed"

    again = orchestrate("submit", "experiment.yaml", "--inline", "--resume-unfinished", cwd=project)
    assert again.code == 0
    assert again.err.splitlines()[0] not in (f"run {old}", first)


def test_a_question_that_is_interrupted_starts_nothing(orchestrate: Orchestrate, project: Path) -> None:
    old = interrupted(orchestrate, project)
    before = orchestrate("runs", "--json").values
    code, said = on_terminal(orchestrate, "\x03", project, "submit", "experiment.yaml", "--inline")
    assert code == 130, said
    assert orchestrate("runs", "--json").values == before
    assert status(orchestrate, old)["status"] == "cancelled"


def test_a_run_goes_on_in_another_checkout_and_travels_in_a_file(
    orchestrate: Orchestrate, project: Path, tmp_path: Path
) -> None:
    old = interrupted(orchestrate, project)
    moved = tmp_path / "elsewhere"
    shutil.move(project, moved)
    refused = orchestrate("resume", old, "--inline")
    assert refused.code == 2 and "experiment.yaml" in refused.err
    assert orchestrate("resume", old, "--inline", "--project", str(moved)).code == 0

    again = orchestrate("resume", old, "--inline", "--project", str(moved), "--retry", "errored")
    assert (again.code, again.err) == (2, f"error: run {old} is completed: it has no errored case\n")
    assert orchestrate("cancel", old).out == f"run {old} has ended already\n"

    file = tmp_path / "run.evalfleet"
    before = orchestrate("show", old, "--json", "--text").values
    assert [case["status"] for case in before] == ["passed"] * 20
    assert before[0]["cost_usd"] == pytest.approx(0.003)
    assert orchestrate("export", old, "-o", str(file)).code == 0
    assert orchestrate("import", str(file)).code == 2
    assert orchestrate("delete", old, "--yes").code == 0
    assert orchestrate("show", old).code == 2
    assert orchestrate("import", str(file)).code == 0
    assert orchestrate("show", old, "--json", "--text").values == before


def test_before_the_first_run_every_command_says_how_to_start_one(orchestrate: Orchestrate, tmp_path: Path) -> None:
    alone = replace(orchestrate, database_url="", home=tmp_path)
    for command in ("status", "runs"):
        assert "orchestrate submit EXPERIMENT starts one" in alone(command).err


def test_garbage_is_what_try_left_and_nothing_else(orchestrate: Orchestrate, project: Path) -> None:
    assert orchestrate("try", "experiment.yaml", "--set", "repetitions=1", cwd=project).code == 0
    tries = [run["id"] for run in orchestrate("runs", "--all", "--json").values if run["kind"] == "try"]
    kept = orchestrate("runs", "--json").values
    assert tries
    (nothing,) = orchestrate("db", "gc", "--json").values
    assert (nothing["deleted"], nothing["objects"]) == ([], {})
    (collected,) = orchestrate("db", "gc", "--older-than", "0", "--json").values
    assert sorted(collected["deleted"]) == sorted(tries)
    assert orchestrate("runs", "--all", "--json").values == kept
