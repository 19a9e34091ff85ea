"""The project that is drilled: an agent that notes each of its starts in a file that only grows."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

AGENT = """
import asyncio
import os
import time
from pathlib import Path

from evalfleet import COMPLETE_COVERAGE, Turn, agent

STARTS = os.open(Path(__file__).with_name("starts"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)


@agent(coverage=COMPLETE_COVERAGE)
async def patient(turn, ctx):
    row, seconds = turn.text.split()
    os.write(STARTS, f"{row} {os.getpid()} {time.time():.6f}\\n".encode())
    await asyncio.sleep(float(seconds))
    return Turn(reply=f"done {row}")
"""

EVAL = """
from evalfleet import Dataset, T, define_eval, equals


@define_eval(dataset=Dataset.jsonl("rows.jsonl"))
async def patient(t: T, row) -> None:
    turn = await t.send(f"{row['row']} {row['seconds']}")
    turn.succeeded()
    t.check(turn.reply, equals(f"done {row['row']}"))
"""

EXPERIMENT = """
schema_version: 1
name: drill
limits: {{concurrency: {concurrency}}}
arms:
  mine: {{adapter: python, entry: "drilled_agent:patient"}}
"""


@dataclass(frozen=True)
class Start:
    """One start of the agent: for which case, in which process, at which second since the epoch."""

    row: int
    pid: int
    at: float


@dataclass(frozen=True)
class Project:
    """A project folder with one experiment of `cases` cases."""

    folder: Path
    cases: int

    @classmethod
    def written(cls, folder: Path, seconds: Sequence[float], *, concurrency: int) -> Project:
        """A new project with one case for each of `seconds`, which is how long its agent takes."""
        (folder / "evals").mkdir(parents=True)
        (folder / "drilled_agent.py").write_text(AGENT)
        (folder / "evals" / "patient.eval.py").write_text(EVAL)
        rows = [json.dumps({"row": row, "seconds": round(taken, 3)}) for row, taken in enumerate(seconds)]
        (folder / "evals" / "rows.jsonl").write_text("\n".join(rows) + "\n")
        (folder / "experiment.yaml").write_text(EXPERIMENT.format(concurrency=concurrency))
        return cls(folder, len(seconds))

    def starts(self) -> list[Start]:
        """Every start so far, in the order of the file."""
        try:
            lines = (self.folder / "starts").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [Start(int(row), int(pid), float(at)) for row, pid, at in map(str.split, lines)]

    def started(self) -> int:
        """How many starts there are."""
        try:
            return (self.folder / "starts").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0


def quick_agent(cases: int, seed: str) -> list[float]:
    """Seconds of an agent that takes 20 to 200 ms."""
    source = random.Random(seed)
    return [source.uniform(0.02, 0.2) for _ in range(cases)]
