"""Runs that stop trying an eval once it has passed: here, on Ray, after a kill, and as reports tell of them."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.conftest import forks, orchestrate
from tests.acceptance.kill.command import Command, Surroundings

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

__all__ = ["forks", "orchestrate"]

#: The row says in which try the agent succeeds, 0 for never.
EVAL = """
import asyncio
from evalfleet import Dataset, T, define_eval, equals


@define_eval(dataset=Dataset.jsonl("rows.jsonl", id="name"))
async def tries(t: T, row):
    with open("asked", "a") as asked:
        asked.write(f"{row['name']} {t.arm} {t.repetition}\\n")
    await asyncio.sleep(row.get("seconds", 0))
    turn = await t.send("hello")
    t.check(turn.reply, equals("hi" if row["at"] and t.repetition >= row["at"] - 1 else "bye"))
"""
EXPERIMENT = """
schema_version: 1
name: tries
repetitions: {repetitions}
arms:
{arms}
stop: {{early_exit: true}}
limits: {{concurrency: {lanes}}}
"""


def written(folder: Path, rows: list[dict[str, Any]], *, repetitions: int = 4, lanes: int = 1, arms: str = "a") -> Path:
    (folder / "evals").mkdir(parents=True)
    (folder / "evals" / "tries.eval.py").write_text(EVAL)
    (folder / "evals" / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = "\n".join(f"  {arm}: {{adapter: scripted, replies: [hi]}}" for arm in arms)
    (folder / "experiment.yaml").write_text(EXPERIMENT.format(repetitions=repetitions, arms=named, lanes=lanes))
    return folder


def asked(folder: Path) -> list[str]:
    return sorted((folder / "asked").read_text().splitlines())


@pytest.mark.parametrize(
    "how", [["--inline"], pytest.param(["--workers", "1"], marks=pytest.mark.ray)], ids=["inline", "ray"]
)
def test_an_eval_is_tried_until_it_passes(orchestrate: Orchestrate, tmp_path: Path, how: list[str]) -> None:
    rows = [{"name": name, "at": at} for name, at in (("first", 1), ("third", 3), ("never", 0))]
    folder = written(tmp_path / "p", rows)
    ended = orchestrate("submit", "experiment.yaml", "--json", *how, cwd=folder)
    # one lane, and repetitions outermost: nothing is under way when the next is granted
    assert asked(folder) == sorted(
        ["first a 0", *(f"third a {number}" for number in range(3)), *(f"never a {number}" for number in range(4))]
    )
    report = ended.values[-1]
    assert report["run"]["status"] == "completed"
    assert report["totals"] | {"passed": 2, "failed": 6, "not_needed": 4} == report["totals"]
    [arm] = report["arms"]
    figures = arm["headline"]
    assert (figures["measure"], figures["within"]) == ("solved_within", 4)
    assert (figures["passed"], figures["answered"], figures["total"], figures["missing"]) == (2, 3, 3, 0)
    assert arm["per_eval"]["repeated"] == []
    assert report["accepted"] is False
    assert report["reasons"] == ["arm a: 2 of 3 evals solved within 4 repetitions"]
    shown = orchestrate("show", report["run"]["id"], cwd=folder).out
    assert shown.count("not_needed") == 4
    markdown = orchestrate("report", report["run"]["id"], "--format", "md", cwd=folder).out
    assert "(2/3 evals within 4)" in markdown and "pass@k and pass^k are undefined" in markdown
    document = orchestrate("report", report["run"]["id"], "--format", "json", cwd=folder).out
    assert document.count("not-needed:early_exit") == 4


def test_arms_are_tried_for_themselves_and_all_solved_is_accepted(orchestrate: Orchestrate, tmp_path: Path) -> None:
    folder = written(tmp_path / "p", [{"name": "second", "at": 2}, {"name": "first", "at": 1}], arms="ab")
    ended = orchestrate("submit", "experiment.yaml", "--json", "--inline", cwd=folder)
    assert ended.code == 0, ended.err
    assert [line for line in asked(folder) if line.startswith("first")] == ["first a 0", "first b 0"]
    assert [line for line in asked(folder) if line.startswith("second")] == [
        f"second {arm} {repetition}" for arm in "ab" for repetition in range(2)
    ]


async def test_a_resumed_run_knows_what_has_passed(tmp_path: Path, database: str) -> None:
    """The whole process is killed once the first repetition is done."""
    surroundings = Surroundings(tmp_path / "home", database)
    rows = [{"name": f"row {number}", "at": 1, "seconds": 0.05} for number in range(6)]
    rows.append({"name": "slow", "at": 0, "seconds": 3.0})
    folder = written(tmp_path / "p", rows, lanes=2)
    command = await Command.started(surroundings, folder, "submit", "experiment.yaml", "--inline", "--json")
    run = await command.run_id()

    def six_are_done() -> None:
        while not (folder / "asked").exists() or len(asked(folder)) < 7:
            time.sleep(0.05)

    await asyncio.to_thread(six_are_done)
    await asyncio.sleep(1.0)
    command.send(signal.SIGKILL)
    await command.ended()
    again = await Command.started(surroundings, folder, "resume", run, "--inline", "--json")
    assert await again.ended(60) == 1, again.said
    assert again.value["totals"]["not_needed"] >= 6 * 3 - 2
    per_row = [sum(line.startswith(f"row {number} ") for line in asked(folder)) for number in range(6)]
    assert sum(per_row) <= 6 + 2, "two lanes may have begun one more each before the kill"


def test_a_score_is_no_success(orchestrate: Orchestrate, tmp_path: Path) -> None:
    folder = written(tmp_path / "p", [{"name": "one", "at": 1}])
    (folder / "evals" / "tries.eval.py").write_text(
        "from evalfleet import define_score_eval\n\n\n@define_score_eval\nasync def body(t):\n"
        "    turn = await t.send('hello')\n    t.check(turn.reply, lambda reply: True).points(1)\n"
    )
    ended = orchestrate("submit", "experiment.yaml", "--json", "--inline", cwd=folder)
    assert ended.values[-1]["totals"]["not_needed"] == 0, ended.err
