"""A run of a suite that is killed between two turns: what was said is not said again, and the conversation goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from tests.acceptance.cli.conftest import Orchestrate

#: Says what it hears into a file; keeps silent at its third turn until a file is there.
AGENT = """
import asyncio
from pathlib import Path

from evalfleet import COMPLETE_COVERAGE, Turn, Usage, agent

HERE = Path(__file__).parent


@agent(coverage=COMPLETE_COVERAGE)
class Clerk:
    def __init__(self, ctx, basket=()):
        self.basket = list(basket)

    @classmethod
    def resume(cls, state, ctx):
        return cls(ctx, state["basket"])

    async def send(self, turn):
        with (HERE / "heard.txt").open("a") as heard:
            heard.write(turn.text + "\\n")
        if turn.text == "pay" and not (HERE / "open").exists():
            (HERE / "paying").write_text("now")
            await asyncio.sleep(600)
        self.basket.append(turn.text)
        basket = {"basket": list(self.basket)}
        return Turn(reply="ok", observation=basket, session_state=basket, usage=Usage(input_tokens=1, output_tokens=1))
"""

SUITE = """
schemaVersion: 1
id: shop
name: Shop
scenarios:
  - id: buy
    name: Buy two things
    writePolicy: read_only
    steps:
      - {id: one, input: {text: lamp}}
      - {id: two, input: {text: desk}, assertions: [{id: two, kind: check, path: [basket], operator: length, value: 2}]}
      - {id: three, input: {text: pay}}
    assertions:
      - {id: all, kind: check, path: [basket], operator: equals, value: [lamp, desk, pay]}
"""


async def test_a_killed_conversation_goes_on_at_its_next_step(orchestrate: Orchestrate, tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "shop.suite.yaml").write_text(SUITE)
    (tmp_path / "clerk.py").write_text(AGENT)
    (tmp_path / "experiment.yaml").write_text(
        "schema_version: 1\nname: shop\narms:\n  mine: {adapter: python, entry: 'clerk:Clerk'}\n"
    )
    heard = tmp_path / "heard.txt"
    os.mkfifo(tmp_path / "paying")
    process = orchestrate.start("submit", "experiment.yaml", "--inline", cwd=tmp_path)
    await asyncio.wait_for(asyncio.to_thread((tmp_path / "paying").read_text), 60)
    process.send_signal(signal.SIGKILL)
    _, said = await asyncio.to_thread(process.communicate)
    (tmp_path / "open").touch()
    run = said.splitlines()[0].removeprefix("run ")
    ended = await asyncio.to_thread(orchestrate, "resume", run, "--inline", "--json", cwd=tmp_path)
    assert ended.code == 0, ended.out + ended.err
    assert heard.read_text().split() == ["lamp", "desk", "pay", "pay"], "only the turn that was lost is sent again"
    shown = orchestrate("show", run, "0", "--json", cwd=tmp_path).values[0]
    assert [turn["input"]["text"] for turn in shown["attempt"]["turns"]] == ["lamp", "desk", "pay"]
