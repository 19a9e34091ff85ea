"""What an author writes, as pyright sees it in strict mode: `make lint` checks this file, nothing runs it."""

from __future__ import annotations

from typing import assert_type

from pydantic import BaseModel

from evalfleet import (
    COMPLETE_COVERAGE,
    AdapterContext,
    Coverage,
    Dataset,
    SandboxSpec,
    ScoreT,
    SyncT,
    T,
    Turn,
    TurnInput,
    agent,
    command_succeeded,
    complete,
    define_eval,
    define_score_eval,
    equals,
    includes,
    json_match,
    partial,
    tool,
    tool_match,
    unavailable,
)
from evalfleet.model.definition import AgentDefinition, EvalDefinition


class Row(BaseModel):
    prompt: str
    expected: str


@define_eval
async def bare(t: T) -> None:
    turn = await t.send("Hello")
    turn.succeeded().label("it answers")
    await turn.message_includes("hello").or_stop()


@define_eval(
    description="One row", tags=["sql"], dataset=Dataset.jsonl("rows.jsonl", id="key", model=Row), timeout="5m"
)
async def rows(t: T, row: Row) -> None:
    turn = await t.send(row.prompt)
    t.check(turn.reply, equals(row.expected)).gate()


@define_eval(description="Structured answers, by their type")
async def structured(t: T) -> None:
    turn = await t.send("Which row?", output=Row)
    assert_type(turn.data.value, Row)
    turn.output_equals({"prompt": "a", "expected": "b"})
    by_schema = await t.send("Which row?", output={"type": "object"})
    t.check(by_schema.data, json_match({"prompt": "a"}))


@define_score_eval(sandbox=SandboxSpec(files="fixture/", setup=("true",)))
async def scored(t: ScoreT) -> None:
    await t.send("Fix it.")
    t.check(await t.sandbox.run("pytest", "-q", timeout=60.0), command_succeeded()).score(3)


@define_eval(tags=("plain",))
def plain(t: SyncT) -> None:
    turn = t.send("What's the weather?")
    turn.called_tool(tool_match("get_weather", input=json_match({"city": "Brooklyn"})).exactly(1))
    t.check(t.reply, includes("sunny")).optional()
    assert_type(t.send("And which row?", output=Row).data.value, Row)
    turn.succeeded().or_stop()


evals = [define_eval(description=text)(bare.body) for text in ("one", "two")]


@tool
def get_weather(city: str) -> dict[str, str]:
    """The weather in a city."""
    return {"city": city, "sky": "sunny"}


@agent(coverage=COMPLETE_COVERAGE)
async def echo(turn: TurnInput, ctx: AdapterContext) -> Turn:
    return Turn(reply=f"{ctx.flags.get('prefix', '')}{turn.text}")


@agent(
    coverage=Coverage(
        events=partial("final events only"),
        actions=unavailable("not exposed"),
        messages=complete,
        usage=unavailable("not reported"),
        status=complete,
        data=complete,
    )
)
class Clerk:
    def __init__(self, ctx: AdapterContext) -> None:
        self.seed = ctx.seed

    async def send(self, turn: TurnInput) -> str:
        return f"{self.seed}: {turn.text}"


assert_type(bare, EvalDefinition)
assert_type(rows, EvalDefinition)
assert_type(scored, EvalDefinition)
assert_type(plain, EvalDefinition)
assert_type(evals, list[EvalDefinition])
assert_type(echo, AgentDefinition)
assert_type(Clerk, AgentDefinition)
