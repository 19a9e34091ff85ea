"""A few agents that stall, kill or exhaust their worker among good ones: each good case keeps its verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

AGENT = """
import asyncio, math, os, re
from evalfleet import COMPLETE_COVERAGE, Turn, agent

@agent(coverage=COMPLETE_COVERAGE)
async def mixed(turn, ctx):
    text = turn.text
    if text == "loop":
        re.match(r"(a+)+$", "a" * 40 + "b")
    if text == "swallow":
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                pass
    if text == "exit":
        os._exit(3)
    if text == "allocate":
        held = []
        while True:
            held.append(bytearray(1 << 30))
    if text == "big":
        return Turn(reply="x" * 50_000_000)
    if text == "odd":
        return Turn(reply="nul \\x00 lone \\ud800 echo")
    if text == "nan":
        return Turn(reply="echo", data={"nan": math.nan})
    await asyncio.sleep(0.05)
    return Turn(reply="echo: " + text)
"""
EVAL = """
from evalfleet import Dataset, T, define_eval, includes

@define_eval(dataset=Dataset.jsonl("rows.jsonl"))
async def h(t: T, row) -> None:
    turn = await t.send(row["q"])
    t.check(turn.reply, includes("echo"))
"""
EXPERIMENT = """
schema_version: 1
name: hostile
limits: {concurrency: 20, attempt_timeout: 8s}
arms:
  mine: {adapter: python, entry: "my_agents:mixed"}
"""
GOOD = 200
#: What each hostile agent must end as: its status and the failure kind.
EXPECTED = {
    "loop": ("errored", "deadline"),
    "swallow": ("errored", "deadline"),
    "exit": ("errored", "worker"),
    "allocate": ("errored", "agent"),
    "big": ("failed", None),
    "odd": ("passed", None),
    "nan": ("passed", None),
}


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.timeout(300)
def test_good_cases_keep_their_verdicts(tmp_path: Path) -> None:
    rows = [f"good {number}" for number in range(GOOD)]
    for place, name in enumerate(EXPECTED):
        rows.insert(place * 25, name)
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "h.eval.py").write_text(EVAL)
    (tmp_path / "evals" / "rows.jsonl").write_text("\n".join(json.dumps({"q": row}) for row in rows))
    (tmp_path / "my_agents.py").write_text(AGENT)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)

    def orchestrate(*arguments: str) -> str:
        command = [sys.executable, "-m", "evalfleet.cli.main", *arguments]
        environment = {**os.environ, "EVALFLEET_HOME": str(tmp_path / "home")}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        return done.stdout

    report = json.loads(orchestrate("submit", "experiment.yaml", "--json").splitlines()[-1])
    listed = orchestrate("show", report["run"]["id"], "--json")
    cases = [json.loads(line) for line in listed.splitlines() if line.strip()]
    asked = {f"h/{number:04d}": row for number, row in enumerate(rows)}
    ended = {asked[case["eval"]]: (case["status"], case.get("kind")) for case in cases}
    assert {row: end for row, end in ended.items() if row.startswith("good")} == {
        f"good {number}": ("passed", None) for number in range(GOOD)
    }
    assert {row: ended[row] for row in EXPECTED} == EXPECTED
