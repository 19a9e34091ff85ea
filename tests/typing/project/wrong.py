"""Mistakes: each line that ends in `# wrong` must be an error to both checkers, and no other line."""

from __future__ import annotations

import evalfleet
from evalfleet import (
    COMPLETE_COVERAGE,
    Coverage,
    Dataset,
    SandboxSpec,
    T,
    Turn,
    Usage,
    agent,
    complete,
    define_eval,
    equals,
    includes,
    partial,
    run_sync,
    tool_match,
    unavailable,
)


@define_eval(descripton="a slip of the pen")  # wrong
async def unknown_option(t: T) -> None: ...


@define_eval(tags="smoke", timeout=None)  # wrong
async def wrong_option(t: T) -> None: ...


@define_eval(dataset="rows.jsonl")  # wrong
async def a_path_is_no_dataset(t: T, row: object) -> None: ...


@agent  # wrong
async def undeclared(turn: object, ctx: object) -> str:
    return ""


async def body(t: T) -> None:
    turn = await t.send("Hello")
    await t.send(42)  # wrong
    t.send("not awaited").succeeded()  # wrong
    turn.suceeded()  # wrong
    turn.called_tool(42)  # wrong
    turn.max_tokens("many")  # wrong
    turn.succeeded().label(7)  # wrong
    turn.succeeded().gate("0.8")  # wrong
    t.check(turn.reply, "sunny")  # wrong
    t.check(turn.reply)  # wrong
    t.model = "another"  # wrong
    await t.sandbox.run(["pytest"])  # wrong
    await t.sandbox.run("pytest", seconds=5)  # wrong
    t.sandbox.file_changed()  # wrong
    t.sandbox.file_changed(["a.py"])  # wrong
    await t.sandbox.no_changes()  # wrong
    t.sandbox.not_in_diff(3)  # wrong
    turn.judge.closed_qa()  # wrong
    turn.judge.closed_qa("Is it so?", input="x")  # wrong
    turn.judge.custom("How polite?", choices=["rude", "polite"])  # wrong
    t.judge.rubric("Polite.")  # wrong
    t.skip()  # wrong


SandboxSpec(image=3)  # wrong
SandboxSpec(changes=True)  # wrong
SandboxSpec(imgae="python:3.12")  # wrong
Coverage(events=complete, actions=complete)  # wrong
Coverage(events=complete, actions=complete, messages=complete, usage="none", status=complete, data=complete)  # wrong
partial()  # wrong
unavailable(3)  # wrong
agent(coverage="complete")  # wrong
Turn(replay="a slip of the pen")  # wrong
Usage(input_tokens="3")  # wrong
Dataset.jsonl("rows.jsonl", key="id")  # wrong
Dataset.csv("rows.csv", model=dict)  # wrong
Dataset.huggingface("rows", revision="main")  # wrong
Dataset.jsonl("rows.jsonl").sample("ten")  # wrong
Dataset.jsonl("rows.jsonl").shuffle(7)  # wrong
Dataset.jsonl("rows.jsonl").filter(["easy"])  # wrong
includes(3)  # wrong
tool_match("get_weather", inputs={})  # wrong
tool_match("get_weather").exactly("once")  # wrong
equals()  # wrong
run_sync("experiment.yaml", slect=["weather"])  # wrong
run_sync(overrides={"repetitions": "1"})  # wrong
agent(coverage=COMPLETE_COVERAGE, cover=1)  # wrong
evalfleet.define_evil(print)  # wrong
