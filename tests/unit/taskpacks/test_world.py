"""One attempt's world: every call is traced, only what succeeds is kept, and the responder is its own actor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from evalfleet.errors import AttemptFailure, AuthoringError
from evalfleet.model.tool import ToolArgumentError, ToolRejected
from evalfleet.taskpacks.case_store import CaseStore, keep_state
from evalfleet.taskpacks.cases import Cases
from evalfleet.taskpacks.diff import Operation
from evalfleet.taskpacks.pack_tool import pack_tool
from evalfleet.taskpacks.policy import Allowed
from evalfleet.taskpacks.responder import Script, ScriptRule
from evalfleet.taskpacks.sqlite_cases import SqliteCases
from evalfleet.taskpacks.state import Collection, read_state, schema_of
from evalfleet.taskpacks.trace import read_trace, result_ref
from evalfleet.taskpacks.trace_file import TraceFile
from evalfleet.taskpacks.world import World
from evalfleet.testing.fakes import FakeClock

SCHEMA = schema_of([Collection("cases"), Collection("messages")])
START = read_state(SCHEMA, {"cases": [{"id": "C-1", "status": "open"}]})
RULES = [
    ScriptRule(
        id="lease",
        asked=frozenset({"lease"}),
        reply="Here is the lease.",
        supplies=frozenset({"lease"}),
        writes=[{"collection": "messages", "record": {"id": "IN-1", "text": "lease"}}],  # type: ignore[list-item]
    )
]
hold = asyncio.Event()


@pack_tool
def look(cases: Cases, id: Annotated[str, "the case"]) -> dict[str, Any]:
    """Read a case."""
    return cases.need("cases", id)


@pack_tool(mutating=True)
def close(cases: Cases, id: str, note: str = "") -> str:
    cases.update("cases", id, status="closed")
    cases.add("messages", {"id": cases.next_id("M"), "text": note})
    cases.tick(60)
    return cases.now


@pack_tool(mutating=True)
async def break_half_way(cases: Cases) -> None:
    cases.update("cases", "C-1", status="half")
    raise RuntimeError("broken")


@pack_tool(mutating=True)
async def wait(cases: Cases) -> None:
    await hold.wait()


@pack_tool
def sneak(cases: Cases) -> None:
    cases.update("cases", "C-1", status="sneaked")


@pack_tool
def unreadable(cases: Cases) -> None:
    raise FileNotFoundError("the tool's own")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    backend = SqliteCases(tmp_path)
    store = CaseStore(SCHEMA, await backend.open("one"), FakeClock())
    found = World(store, TraceFile(tmp_path / "trace.jsonl", "41", FakeClock()), TOOLS, Script(RULES))
    await found.reset(await keep_state(backend, START))
    yield found
    await store.close()


TOOLS = [look, close, break_half_way, wait, sneak, unreadable]
POLICY = [
    Allowed(collection="cases", operation=Operation.UPDATED, fields=frozenset({"status"})),
    Allowed(collection="messages", operation=Operation.ADDED),
]


def on_disk(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "trace.jsonl").read_bytes().splitlines()]


def test_an_agent_sees_a_tool_without_its_case_store() -> None:
    assert (look.name, look.mutating, look.tool.description) == ("look", False, "Read a case.")
    assert look.tool.parameters == {
        "additionalProperties": False,
        "properties": {"id": {"description": "the case", "type": "string"}},
        "required": ["id"],
        "type": "object",
    }


def test_a_function_without_a_first_parameter_is_no_tool_of_a_pack() -> None:
    with pytest.raises(TypeError, match="its first parameter is the case store"):
        pack_tool(lambda: None)


async def test_a_call_returns_the_result_and_leaves_a_line(world: World, tmp_path: Path) -> None:
    offered = {tool.name: tool for tool in world.tools}
    assert await offered["look"].call({"id": "C-1"}) == {"id": "C-1", "status": "open"}
    assert await offered["look"](id="C-1") == {"id": "C-1", "status": "open"}
    first, second = on_disk(tmp_path)
    ours = {"evalfleet.turn": 0}
    assert first == {
        "run_id": "41",
        "step": 1,
        "tool": "look",
        "arguments": {"id": "C-1"},
        "result_ref": result_ref({"id": "C-1", "status": "open"}),
        "timestamp": "2027-01-15T08:00:00.000Z",
        **ours,
    }
    assert second["step"] == 2
    assert world.results[first["result_ref"]] == {"id": "C-1", "status": "open"}


async def test_a_mutating_call_is_announced_before_it_runs_and_told_after(world: World, tmp_path: Path) -> None:
    assert await world.call("close", {"id": "C-1", "note": "done"}) == "2026-01-05T09:01:00+00:00"
    intent, done = on_disk(tmp_path)
    assert (intent["evalfleet.phase"], intent["evalfleet.status"], intent["result_ref"]) == ("intent", "unknown", None)
    assert done["evalfleet.state_digest"] == (await world.state()).digest
    written = [(each["collection"], each["key"]) for each in done["evalfleet.writes"]]
    assert written == [("cases", "C-1"), ("harness", "clock"), ("harness", "counters"), ("messages", "M-0001")]
    assert (await world.state()).record("messages", "M-0001") == {"id": "M-0001", "text": "done"}


@pytest.mark.parametrize(
    ("name", "arguments", "error", "line"),
    [
        ("gone", {"a": 1}, ToolArgumentError, ("gone", {"a": 1}, "denied", "UNKNOWN_TOOL", None)),
        ("look", {"id": 7}, ToolArgumentError, ("look", {"id": 7}, "denied", "INVALID_ARGUMENTS", None)),
        ("look", {}, ToolArgumentError, ("look", {}, "denied", "INVALID_ARGUMENTS", None)),
        ("look", '{"id": ', ToolArgumentError, ("look", {}, "denied", "INVALID_ARGUMENTS", '{"id": ')),
        ("look", ["C-1"], ToolArgumentError, ("look", {}, "denied", "INVALID_ARGUMENTS", ["C-1"])),
        ("look", {"id": "C-9"}, ToolRejected, ("look", {"id": "C-9"}, "denied", "CALL_REJECTED", None)),
        ("unreadable", {}, FileNotFoundError, ("unreadable", {}, "error", "TOOL_RAISED", None)),
        ("break_half_way", {}, RuntimeError, ("break_half_way", {}, "error", "TOOL_RAISED", None)),
    ],
)
async def test_what_goes_wrong_is_traced_and_changes_nothing(
    world: World, name: str, arguments: Any, error: type[Exception], line: tuple[Any, ...]
) -> None:
    with pytest.raises(error):
        await world.call(name, arguments)
    (call,) = world.trace.calls
    assert (call.tool, call.arguments, call.status.value, call.error, call.received) == line
    assert call.result_ref is None
    assert (await world.state()).rows == START.rows
    world.check()


async def test_a_tool_that_writes_without_saying_so_is_the_packs_mistake(world: World) -> None:
    with pytest.raises(AuthoringError, match=r"sneak wrote cases/C-1: declare it @pack_tool\(mutating=True\)"):
        await world.call("sneak", {})
    assert (await world.state()).rows == START.rows
    with pytest.raises(AttemptFailure) as caught:
        world.check()
    assert (caught.value.kind, caught.value.code) == ("authoring", "READ_ONLY_TOOL")


async def test_a_call_that_was_cut_off_leaves_its_intent(world: World, tmp_path: Path) -> None:
    call = asyncio.create_task(world.call("wait", {}))
    file = tmp_path / "trace.jsonl"
    while not file.exists() or not file.stat().st_size:  # noqa: ASYNC110 - the file is all that can be seen of it
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    trace = read_trace((tmp_path / "trace.jsonl").read_bytes())
    assert [(line.tool, line.status.value) for line in trace.unfinished] == [("wait", "unknown")]
    await world.call("look", {"id": "C-1"})
    assert [line.step for line in world.trace.calls] == [1, 2]


async def test_calls_at_the_same_time_are_made_one_after_the_other(world: World) -> None:
    await asyncio.gather(*(world.call("close", {"id": "C-1", "note": str(number)}) for number in range(8)))
    assert [line.step for line in world.trace.calls] == list(range(1, 9))
    assert world.trace.faults == ()
    assert len((await world.state()).records("messages")) == 8


async def test_the_responder_answers_by_its_script_and_writes_as_itself(world: World) -> None:
    found = await world.reply(["lease", "lease"])
    assert (found.rule.reply, found.cursor.answers) == ("Here is the lease.", 1)
    (line,) = world.trace.calls
    assert (line.tool, line.arguments, line.rule, line.actor.value) == (
        "responder.reply",
        {"asked": ["lease"]},
        "lease",
        "responder",
    )
    examined = await world.examine(POLICY)
    assert [(each["path"], each["because"]) for each in examined.ignored] == [
        ("harness/responder", "not the agent's"),
        ("messages/IN-1", "not the agent's"),
    ]
    assert examined.clean


async def test_without_a_rule_there_is_no_answer(world: World) -> None:
    with pytest.raises(AttemptFailure) as caught:
        await world.reply(["permit", "lease"])
    assert (caught.value.code, str(caught.value)) == (
        "RESPONDER_NO_RULE",
        "no rule of the responder answers who asks for lease, permit",
    )


async def test_a_world_in_use_is_not_reset(world: World) -> None:
    await world.call("look", {"id": "C-1"})
    with pytest.raises(AttemptFailure, match=r"reset\(\) while the agent works on the store"):
        await world.reset(START.snapshot_id)


async def test_the_diff_holds_what_the_agent_did_against_the_policy(world: World) -> None:
    await world.call("close", {"id": "C-1"})
    await world.call("close", {"id": "C-1"})
    examined = await world.examine(POLICY)
    assert [each["path"] for each in examined.expected] == ["cases/C-1", "messages/M-0001"]
    assert [each["path"] for each in examined.unexpected] == ["messages/M-0002"]
    assert not examined.clean


async def test_a_store_that_breaks_is_nobodys_fault_but_its_own(world: World, tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").mkdir()
    with pytest.raises(OSError, match="directory"):
        await world.call("look", {"id": "C-1"})
    with pytest.raises(AttemptFailure) as caught:
        world.check()
    assert (caught.value.kind, caught.value.code) == ("infrastructure", "CASE_STORE_FAILED")
