"""The observation that is built from a turn, and the one that a turn brings."""

from __future__ import annotations

from typing import Any

from evalfleet.model.coverage import COMPLETE_COVERAGE, Channel
from evalfleet.model.events import (
    MISSING,
    InputOption,
    InputRequested,
    Message,
    OperationFinished,
    OperationKind,
    OperationStarted,
    OperationStatus,
    Role,
)
from evalfleet.model.turn import TurnInput, TurnRecord, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.suites.bounded_json import detached
from evalfleet.suites.observation import CHANNELS, observe

EVENTS = (
    Message(Role.USER, "hello"),
    OperationStarted("1", "search", {"q": "shoes"}),
    OperationFinished("1", OperationStatus.COMPLETED, [1, 2]),
    OperationStarted("2", "helper", kind=OperationKind.SUBAGENT),
    OperationStarted("3", "pay"),
    InputRequested("r", "sure?", options=(InputOption("y", "yes"), InputOption("n"))),
    Message(Role.ASSISTANT, "found"),
)


def record(**changes: Any) -> TurnRecord:
    fields: dict[str, Any] = {
        "session": 0,
        "index": 0,
        "sequence": 0,
        "input": TurnInput("hello"),
        "status": TurnStatus.COMPLETED,
        "events": EVENTS,
        "data": MISSING,
        "usage": None,
        "coverage": COMPLETE_COVERAGE,
        "started_at": 0.0,
        "duration": 1.0,
    }
    return TurnRecord(**(fields | changes))


def test_what_is_built_of_a_turn() -> None:
    observation = observe(record(usage=Usage(input_tokens=3, output_tokens=5), data=None))
    assert observation.value == {
        "reply": "found",
        "status": "completed",
        "data": None,
        "toolCalls": [
            {"name": "search", "input": {"q": "shoes"}, "output": [1, 2], "status": "completed"},
            {"name": "pay", "status": "pending"},
        ],
        "events": [
            {"type": "message", "role": "user", "text": "hello"},
            {
                "type": "operation.started",
                "operationId": "1",
                "name": "search",
                "input": {"q": "shoes"},
                "kind": "tool",
            },
            {"type": "operation.finished", "operationId": "1", "status": "completed", "output": [1, 2], "kind": "tool"},
            {"type": "operation.started", "operationId": "2", "name": "helper", "kind": "subagent"},
            {"type": "operation.started", "operationId": "3", "name": "pay", "kind": "tool"},
            {
                "type": "input.requested",
                "requestId": "r",
                "prompt": "sure?",
                "options": [{"id": "y", "label": "yes"}, {"id": "n"}],
            },
            {"type": "message", "role": "assistant", "text": "found"},
        ],
        "usage": {"inputTokens": 3, "outputTokens": 5, "unknownCalls": 0},
    }
    assert detached(observation.value) == observation.value


def test_what_is_not_there() -> None:
    value = observe(record(events=())).value
    assert (value["reply"], value["usage"], value["toolCalls"]) == ("", None, []) and "data" not in value


def test_each_key_has_a_channel_and_each_channel_a_key() -> None:
    assert set(observe(record(data=1)).value) == set(CHANNELS) and set(CHANNELS.values()) == set(Channel)


def test_a_turn_s_own_observation_stands_in_place_of_all() -> None:
    observation = observe(record(observation={"reply": "own"}))
    assert (observation.value, observation.otherwise, observation.channels) == ({"reply": "own"}, Channel.DATA, {})
