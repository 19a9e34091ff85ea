"""What an agent tells by the Agent Client Protocol, update by update, as events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalfleet.model.events import (
    MISSING,
    Event,
    Message,
    OperationFinished,
    OperationStarted,
    OperationStatus,
    Role,
    Thinking,
    Unrecognised,
)
from evalfleet.model.turn import TurnStatus
from evalfleet_adapters.acp.permission import Permission, chosen, outcome
from evalfleet_adapters.converters.acp_updates import AcpReading, ended_turn
from evalfleet_adapters.converters.json_output import read_output

FIXTURE = (Path(__file__).parents[1] / "fixtures" / "acp_updates.jsonl").read_bytes()


def read(data: bytes) -> tuple[Event, ...]:
    reading = AcpReading()
    for document in read_output(data).documents:
        reading.take(document["params"]["update"])
    return reading.events()


def of(*updates: dict[str, Any]) -> tuple[Event, ...]:
    reading = AcpReading()
    for update in updates:
        reading.take(update)
    return reading.events()


def test_a_turn() -> None:
    plan = {"sessionUpdate": "plan", "entries": [{"content": "Look", "priority": "high", "status": "pending"}]}
    assert list(read(FIXTURE)) == [
        Unrecognised("plan", plan),
        Thinking("Look first."),
        Message(Role.ASSISTANT, "I look — then I edit."),
        OperationStarted("call_1", "Bash", {"command": "cat a.txt"}, tool="shell"),
        OperationFinished("call_1", OperationStatus.FAILED, "no such file\nexit 1"),
        OperationStarted("call_2", "write", {"path": "/w/b.txt"}, tool="file_edit"),
        OperationFinished(
            "call_2",
            OperationStatus.COMPLETED,
            [{"type": "diff", "path": "/w/b.txt", "oldText": None, "newText": "b"}],
        ),
        Message(Role.ASSISTANT, "Done."),
        OperationStarted("call_3", "sleep", MISSING),
    ]


def test_a_cut_turn_says_nothing_that_was_not_there() -> None:
    whole = read(FIXTURE)
    names = {event.operation_id for event in whole if isinstance(event, OperationStarted)}
    for end in range(len(FIXTURE)):
        events = read(FIXTURE[:end])
        assert {event.operation_id for event in events if isinstance(event, OperationStarted)} <= names
        ended = [event for event in events if isinstance(event, OperationFinished)]
        assert all(event in whole for event in ended), end
        assert len(events) <= len(whole)


@pytest.mark.parametrize(
    "update",
    [
        {},
        {"sessionUpdate": 3},
        {"sessionUpdate": "agent_message_chunk"},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": "aGk="}},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": None}},
        {"sessionUpdate": "from_the_future", "x": 1},
    ],
)
def test_what_is_not_known_is_kept(update: dict[str, Any]) -> None:
    [event] = of(update)
    assert isinstance(event, Unrecognised)


def test_what_is_too_deep_to_keep_is_told() -> None:
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    [event] = of({"sessionUpdate": "tool_call", "toolCallId": "c", "rawInput": deep})
    assert isinstance(event, Unrecognised) and "too deep" in str(event.raw)
    [event] = of({"sessionUpdate": "tool_call", "toolCallId": "c", "rawInput": {"n": 10**400}})
    assert isinstance(event, Unrecognised)


def test_silent_updates_are_silent() -> None:
    assert of({"sessionUpdate": "available_commands_update"}, {"sessionUpdate": "usage_update", "used": 3}) == ()


def test_an_operation_that_was_not_begun_is_told_by_its_update() -> None:
    events = of({"sessionUpdate": "tool_call_update", "toolCallId": "c", "title": "look", "status": "completed"})
    assert events == (
        OperationStarted("c", "look", MISSING),
        OperationFinished("c", OperationStatus.COMPLETED, MISSING),
    )


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("end_turn", TurnStatus.COMPLETED),
        ("max_tokens", TurnStatus.TRUNCATED),
        ("cancelled", TurnStatus.FAILED),
        (None, TurnStatus.FAILED),
        ({}, TurnStatus.FAILED),
    ],
)
def test_why_a_turn_stopped(reason: Any, status: TurnStatus) -> None:
    found, told = ended_turn(reason)
    assert found is status
    assert bool(told) == (status is TurnStatus.FAILED)


ALWAYS = {"optionId": "a", "name": "Always", "kind": "allow_always"}
ONCE = {"optionId": "b", "name": "Once", "kind": "allow_once"}
NEVER = {"optionId": "c", "name": "Never", "kind": "reject_always"}


@pytest.mark.parametrize(
    ("options", "answer", "sent"),
    [
        ([ALWAYS, ONCE, NEVER], "allow", "b"),
        ([ALWAYS, NEVER], "allow", "a"),
        ([ALWAYS, ONCE, NEVER], "deny", "c"),
        ([ALWAYS, ONCE, NEVER], "a", "a"),
        ([ALWAYS, ONCE, NEVER], "Always", "a"),
        ([ALWAYS, ONCE, NEVER], "never heard of", "c"),
        ([ALWAYS, ONCE], "deny", None),
        ([], "allow", None),
        (["hostile", 3, {"kind": "allow_once"}], "allow", ""),
    ],
)
def test_the_option_of_an_answer(options: list[Any], answer: str, sent: str | None) -> None:
    asked = Permission.read(1, {"toolCall": {"toolCallId": "c"}, "options": options})
    told = outcome(chosen(asked, answer))["outcome"]
    assert told == ({"outcome": "cancelled"} if sent is None else {"outcome": "selected", "optionId": sent})


def test_the_fixture_is_what_the_wire_has() -> None:
    lines = [json.loads(line) for line in FIXTURE.splitlines()]
    assert {line["method"] for line in lines} == {"session/update"}
