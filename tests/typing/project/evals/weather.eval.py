"""Asynchronous and synchronous bodies, several definitions in one file, every kind of assertion and handle."""

from __future__ import annotations

from typing import assert_type

from pydantic import BaseModel

from evalfleet import (
    EvalDefinition,
    Resources,
    SandboxSpec,
    SyncT,
    T,
    TrackChanges,
    command_match,
    command_succeeded,
    define_eval,
    equals,
    event_match,
    includes,
    json_match,
    subagent_match,
    tool_match,
)


class Sky(BaseModel):
    city: str
    sky: str


@define_eval
async def bare(t: T) -> None:
    turn = await t.send("Hello")
    turn.succeeded().label("it answers")
    await turn.message_includes("hello").or_stop()


@define_eval(tags=("plain",), timeout=90, metadata={"owner": "weather"})
def plain(t: SyncT) -> None:
    turn = t.send("What's the weather?")
    turn.called_tool(tool_match("get_weather", input=json_match({"city": "Brooklyn"})).exactly(1))
    turn.not_called_tool(command_match("rm"))
    turn.called_tool(subagent_match("planner"))
    turn.event_order("message", event_match("operation.started", name="get_weather"))
    t.check(t.reply, includes("sunny") & includes("Brooklyn")).optional()
    t.check(t.sandbox.run("true", timeout=5.0), command_succeeded())
    t.sandbox.file_changed("*.py").label("code").or_stop()
    t.check(t.sandbox.changed_paths(), equals(["app.py"]))
    turn.succeeded().or_stop()
    assert_type(t.send("And as data?", output=Sky).data.value, Sky)


@define_eval(
    description="Everything at once",
    sandbox=SandboxSpec(
        files="fixed/",
        setup=("true",),
        network="none",
        resources=Resources(cpus=1, memory=1 << 30),
        changes=TrackChanges(ignore=("*.log",), include=("dist",)),
    ),
    criteria=["hidden/*.py"],
    timeout="5m",
)
async def thorough(t: T) -> None:
    turn = await t.send("What's the weather in Brooklyn?", output=Sky)
    assert_type(turn.data.value, Sky)
    turn.output_matches({"city": "Brooklyn"})
    turn.output_equals({"city": "Brooklyn", "sky": "sunny"})
    t.check((await t.send("And now?", output={"type": "object"})).data, json_match({"sky": "sunny"}))
    turn.max_tokens(500).key("tokens")
    t.check(turn.usage, equals(None)).optional()
    other = t.new_session()
    await other.send("And in Queens?")
    with t.group("limits"):
        t.max_tool_calls(2)
        t.max_cost(0.1).optional()
    request = t.require_input_request(options=["yes", "no"])
    await t.respond(request.options[0].id)
    await t.sandbox.write("note.txt", "text")
    assert_type(await t.sandbox.read_text("note.txt"), str)
    t.sandbox.file_changed("src/**/*.py").gate()
    t.sandbox.file_deleted("old.py").optional()
    t.sandbox.no_changes().key("untouched")
    t.sandbox.not_in_diff(includes("secret")).label("no secret")
    t.sandbox.not_in_diff("TODO")
    for path in t.sandbox.changed_paths():
        t.log(path.upper())
    t.check(t.sandbox.diff(), includes("+new"))
    if t.time_left is not None and t.time_left < 1:
        t.skip("no time left")


evals = [define_eval(description=text)(bare.body) for text in ("one", "two")]

assert_type(bare, EvalDefinition)
assert_type(plain, EvalDefinition)
assert_type(thorough, EvalDefinition)
assert_type(evals, list[EvalDefinition])
