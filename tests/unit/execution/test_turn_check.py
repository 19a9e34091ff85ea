"""The border to adapters: what is a Turn, and what is refused by name."""

from __future__ import annotations

import enum
from collections import OrderedDict, defaultdict
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.errors import SendFailure
from evalfleet.execution.turn_check import DEPTH_LIMIT, checked_turn, detached
from evalfleet.model.coverage import Channel, partial
from evalfleet.model.events import (
    MISSING,
    Compaction,
    ContextInjected,
    ErrorReported,
    InputOption,
    InputRequested,
    Message,
    OperationFinished,
    OperationStarted,
    Role,
    SkillLoaded,
    Thinking,
    Unrecognised,
)
from evalfleet.model.turn import Turn
from evalfleet.model.usage import Usage

ALL_EVENTS = (
    Message(Role.ASSISTANT, "hi"),
    Thinking("hm"),
    OperationStarted("1", "search", {"q": [1, "a", None]}, tool="web_search", raw_input="{}"),
    OperationFinished("1", output=[{"hit": 1.5}]),
    SkillLoaded("sql", "1"),
    InputRequested("r", "Sure?", "delete", {"x": 1}, (InputOption("yes", "Yes"),)),
    ContextInjected("ctx", "hook"),
    Compaction("long"),
    ErrorReported("oops"),
    Unrecognised("new.event", {"raw": True}),
)


def test_a_turn_with_every_event_passes_unchanged() -> None:
    turn = Turn(reply="hi", events=ALL_EVENTS, data={"a": 1}, usage=Usage(input_tokens=1, cost_usd=0.5))
    assert checked_turn(turn) == turn


def test_a_turn_without_containers_is_not_copied() -> None:
    turn = Turn(reply="hi", events=(Message(Role.ASSISTANT, "hi"),), usage=Usage())
    assert checked_turn(turn) is turn


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "x" * 50_000_000, "‮", ""])
def test_any_text_is_kept_as_it_is(text: str) -> None:
    turn = checked_turn(Turn(reply=text, data={"text": text}, events=(Thinking(text),)))
    assert turn.reply is text and turn.data["text"] is text


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -0.0, 2**63, -(2**900), 10**200])
def test_any_number_of_reasonable_size_is_kept(number: Any) -> None:
    assert repr(checked_turn(Turn(data=[number])).data[0]) == repr(number)


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


def test_what_extends_a_json_type_is_recorded_as_that_type() -> None:
    value = OrderedDict(a=Colour.RED, b=Level.HIGH, c=defaultdict(list, d=(1, 2)))
    result = detached(value)
    assert result == {"a": "red", "b": 3, "c": {"d": [1, 2]}}
    assert [type(item) for item in (result, *result.values())] == [dict, str, int, dict]


def loop() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"in": value}
    return value


class Hostile:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("turn", "text"),
    [
        (None, "a NoneType is not an evalfleet Turn"),
        ("reply", "a str is not an evalfleet Turn"),
        (Turn, "a type is not an evalfleet Turn"),
        (Turn(reply=7), "reply: must be text or None, not a int"),  # type: ignore[arg-type]
        (Turn(status="completed"), "status: must be a TurnStatus, not a str"),  # type: ignore[arg-type]
        (Turn(data={1, 2}), "data: a set is no JSON value"),
        (Turn(data={"a": [0, Decimal(1)]}), "data.a[1]: a Decimal is no JSON value"),
        (Turn(data={1: "a"}), "data: a key is a int; JSON keys are strings"),
        (Turn(data=b"bytes"), "data: a bytes is no JSON value"),
        (Turn(data=10**400), "data: an integer of more than 1024 bits"),
        (Turn(data=loop()), "nests deeper"),
        (Turn(data=nested(DEPTH_LIMIT + 2)), "nests deeper"),
        (Turn(events="ab"), "events: must be a tuple of events, not a str"),  # type: ignore[arg-type]
        (Turn(events=({"type": "message"},)), "events[0]: a dict is no event type"),  # type: ignore[arg-type]
        (Turn(events=(Message("assistant", "x"),)), "events[0].role: must be a Role"),  # type: ignore[arg-type]
        (Turn(events=(ALL_EVENTS[0], Message(Role.USER, 1))), "events[1].text: must be text"),  # type: ignore[arg-type]
        (Turn(events=(OperationStarted(1, "x"),)), "events[0].operation_id: must be text"),  # type: ignore[arg-type]
        (Turn(events=(OperationStarted("1", "x", {"f": open}),)), "events[0].input.f: a builtin_function_or_method"),
        (Turn(events=(OperationFinished("1", "done"),)), "events[0].status: must be a OperationStatus"),  # type: ignore[arg-type]
        (Turn(events=(InputRequested("1", options=("a",)),)), "options[]: must be a InputOption"),  # type: ignore[arg-type]
        (Turn(usage={"input_tokens": 1}), "usage: must be a Usage, not a dict"),  # type: ignore[arg-type]
        (Turn(usage=Usage(input_tokens=-1)), "usage.input_tokens: must be a count"),
        (Turn(usage=Usage(input_tokens=True)), "usage.input_tokens: must be a count"),
        (Turn(usage=Usage(output_tokens=1.5)), "usage.output_tokens: must be a count"),  # type: ignore[arg-type]
        (Turn(usage=Usage(requests=2**63)), "usage.requests: must be a count"),
        (Turn(usage=Usage(unknown_calls=None)), "usage.unknown_calls: must be a count"),  # type: ignore[arg-type]
        (Turn(usage=Usage(cost_usd=float("nan"))), "usage.cost_usd: must be an amount from 0 to 1e12"),
        (Turn(usage=Usage(cost_usd=-1)), "usage.cost_usd: must be an amount from 0 to 1e12"),
        (Turn(usage=Usage(cost_usd=10**400)), "usage.cost_usd: must be an amount from 0 to 1e12"),
        (Turn(usage=Usage(cost_usd=1.7e308)), "usage.cost_usd: must be an amount from 0 to 1e12"),
        (Turn(coverage={"tools": partial("x")}), "coverage: unknown channel; there are events,"),  # type: ignore[dict-item]
        (Turn(coverage={Channel.DATA: "partial"}), "coverage.data: must be complete"),  # type: ignore[dict-item]
        (Turn(coverage=["data"]), "coverage: must map channels"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_turn_is_refused_by_its_place(turn: Any, text: str) -> None:
    with pytest.raises(SendFailure) as caught:
        checked_turn(turn)
    assert caught.value.code == "INVALID_TURN"
    assert text in str(caught.value)


def test_a_list_of_events_and_a_channel_by_name_are_accepted() -> None:
    turn = checked_turn(Turn(events=[Thinking("x")], coverage={"data": partial("cut")}))  # type: ignore[arg-type]
    assert turn.events == (Thinking("x"),)
    assert list(turn.coverage) == [Channel.DATA]


async def test_a_hostile_object_ends_the_send_and_nothing_else(attempt: Any) -> None:
    async def body(t: Any) -> None:
        await t.send("x")

    for value in (Hostile(), Turn(data=Hostile()), Turn(events=(Hostile(),))):  # type: ignore[arg-type]
        evidence = await attempt(body, lambda turn, ctx, value=value: later(value))
        assert (evidence.summary.kind, evidence.summary.turns) == ("adapter", 1)


async def later(value: Any) -> Any:
    return value


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_detaching_keeps_the_value_and_shares_no_container(value: Any) -> None:
    copy = detached(value)
    assert repr(copy) == repr(value)
    assert not (containers(copy) & containers(value))


def containers(value: Any) -> set[int]:
    if isinstance(value, dict):
        return {id(value)}.union(*(containers(item) for item in value.values()))
    if isinstance(value, list):
        return {id(value)}.union(*(containers(item) for item in value))
    return set()


def test_missing_stays_missing() -> None:
    assert detached(MISSING) is MISSING
