"""The border to adapters: what is a Turn, and what is refused by name."""

from __future__ import annotations

import enum
from collections import OrderedDict, defaultdict
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.errors import FailureKind, SendFailure
from evalfleet.execution.state import WAIT_LIMIT
from evalfleet.execution.turn_check import COST_LIMIT, COUNT_LIMIT, DEPTH_LIMIT, checked_turn, detached
from evalfleet.model.case import AttemptSummary
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
from evalfleet.model.record import AttemptEvidence
from evalfleet.model.turn import Stop, StopKind, Turn
from evalfleet.model.usage import Usage
from evalfleet.model.verdict import Outcome, Verdict
from evalfleet.scheduling.messages import ExchangeRequest
from evalfleet.scheduling.wire import decode_request, encode, pieces
from evalfleet.store.rows import encode_attempt

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
        (Turn(usage=Usage(input_tokens=-1)), "usage.input_tokens: must be a whole number"),
        (Turn(coverage={"tools": partial("x")}), "coverage: unknown channel; there are events,"),  # type: ignore[dict-item]
        (Turn(coverage={Channel.DATA: "partial"}), "coverage.data: must be complete"),  # type: ignore[dict-item]
        (Turn(coverage=["data"]), "coverage: must map channels"),  # type: ignore[arg-type]
        (Turn(observation=["data"]), "observation: must be a JSON object or None, not a list"),  # type: ignore[arg-type]
        (Turn(observation={"a": {1}}), "observation.a: a set is no JSON value"),
        (Turn(session_state={"a": b""}), "session_state.a: a bytes is no JSON value"),  # a partial turn's
        (Turn(stop="completed"), "stop: must be a Stop, not a str"),  # type: ignore[arg-type]
        (Turn(stop=Stop("completed", "done")), "stop.kind: must be a StopKind"),  # type: ignore[arg-type]
        (Turn(stop=Stop(StopKind.SKIPPED, None)), "stop.reason: must be text"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_turn_is_refused_by_its_place(turn: Any, text: str) -> None:
    with pytest.raises(SendFailure) as caught:
        checked_turn(turn)
    assert caught.value.code == "INVALID_TURN"
    assert text in str(caught.value)


COUNTS = [name for name in Usage.__dataclass_fields__ if name != "cost_usd"]


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (-1, "-1"),
        (10**12 + 1, "1000000000001"),
        (2**63, "9223372036854775808"),
        pytest.param(10**5000, "one of 16610 bits", id="too long to print"),
        (1.5, "1.5"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (True, "a bool"),
        ("7", "a str"),
        (Level.HIGH, "a Level"),
    ],
)
def test_a_count_that_is_none_is_refused_by_field_value_and_bound(name: str, value: Any, shown: str) -> None:
    with pytest.raises(SendFailure) as caught:
        checked_turn(Turn(usage=Usage(**{name: value})))
    assert (caught.value.kind, caught.value.code) == (FailureKind.ADAPTER, "INVALID_TURN")
    said = f"usage.{name}: must be a whole number from 0 to 1,000,000,000,000, not {shown}"
    assert str(caught.value) == f"the adapter returned an invalid turn: {said}"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (-1, "-1"),
        (1.7e308, "1.7e+308"),
        (10**400, "one of 1329 bits"),
        (Decimal(1), "a Decimal"),
        (True, "a bool"),
    ],
)
def test_a_cost_that_is_none_is_refused_by_value_and_bound(value: Any, shown: str) -> None:
    with pytest.raises(SendFailure) as caught:
        checked_turn(Turn(usage=Usage(cost_usd=value)))
    assert (caught.value.kind, caught.value.code) == (FailureKind.ADAPTER, "INVALID_TURN")
    assert f"usage.cost_usd: must be an amount from 0 to 1e+12, not {shown}" in str(caught.value)


def test_what_many_turns_consume_at_most_still_travels_and_is_stored() -> None:
    most = {name: COUNT_LIMIT for name in COUNTS}
    turn = checked_turn(Turn(usage=Usage(cost_usd=COST_LIMIT, **most)))
    assert turn.usage is not None
    usage = Usage(unknown_calls=0)
    for _ in range(10_000):
        usage += turn.usage
    summary = AttemptSummary(
        attempt=1, case=0, outcome=Outcome.COMPLETED, verdict=Verdict.PASSED, usage=usage, retry_after=WAIT_LIMIT
    )
    sealed = encode_attempt(AttemptEvidence(summary=summary, turns=(), assertions=()), 1)
    request = ExchangeRequest("w", 1, 1, (sealed,), (), 1)
    assert decode_request(tuple(pieces(encode(request)))) == request
    assert b"=0x" not in sealed.rows.attempt  # how a number is marked that its column can't hold


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
