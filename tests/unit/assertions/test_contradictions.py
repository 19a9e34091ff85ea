"""What an adapter claims to be complete and visibly is not: one row a claim, and what looks like one and is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evalfleet.assertions.contradictions import contradictions
from evalfleet.model.coverage import Channel
from evalfleet.model.events import ErrorReported, OperationFinished, OperationStarted, OperationStatus
from evalfleet.model.turn import TurnRecord
from evalfleet.model.usage import Usage
from tests.unit.assertions.traces import asked, called, covering, said, turn

KNOWN = Usage(input_tokens=1, output_tokens=1)
START, FINISH = OperationStarted("1", "f"), OperationFinished("1")


def told(*turns: TurnRecord) -> list[str]:
    return [channel.value for channel, _ in contradictions(turns)]


def holding(data: Any, *events: Any, **given: Any) -> TurnRecord:
    return replace(turn(*events, usage=KNOWN, **given), data=data)


@pytest.mark.parametrize(
    ("record", "channel"),
    [
        (turn(said("ok")), Channel.USAGE),
        (turn(said("ok"), usage=Usage(input_tokens=1)), Channel.USAGE),
        (turn(said("ok"), usage=Usage(input_tokens=1, output_tokens=1, unknown_calls=1)), Channel.USAGE),
        (holding("It is sunny."), Channel.MESSAGES),
        (holding({"reply": "It is sunny."}), Channel.MESSAGES),
        (turn(START, said("done"), usage=KNOWN), Channel.ACTIONS),
        (turn(FINISH, said("done"), usage=KNOWN), Channel.ACTIONS),
        (turn(*called("a"), FINISH, usage=KNOWN), Channel.ACTIONS),
        (turn(status="failed", usage=KNOWN), Channel.STATUS),
        (turn(*called("a"), status="failed", usage=KNOWN), Channel.STATUS),
        (turn(said("wait"), status="waiting", usage=KNOWN), Channel.STATUS),
    ],
)
def test_a_claim_that_is_contradicted(record: TurnRecord, channel: Channel) -> None:
    assert told(record) == [channel.value]
    for state in ("partial", "unavailable"):
        assert told(replace(record, coverage=covering(channel, state))) == []


@pytest.mark.parametrize(
    "record",
    [
        turn(said("ok"), usage=KNOWN),
        turn(said("ok"), usage=Usage(input_tokens=0, output_tokens=0)),
        holding("It is sunny.", said("It is sunny.")),
        holding({"n": 1}),
        holding({"reply": ""}),
        turn(*called("a"), said("done"), usage=KNOWN),
        turn(START, said("May I?"), asked(), status="waiting", usage=KNOWN),
        turn(said("Let me see."), START, usage=KNOWN),
        turn(START, said("cut"), status="truncated", usage=KNOWN),
        turn(said("I can't do that."), status="failed", usage=KNOWN),
        turn(ErrorReported("boom"), status="failed", usage=KNOWN),
        turn(START, OperationFinished("1", OperationStatus.FAILED), status="failed", usage=KNOWN),
        turn(failure="CONNECTION_BROKEN: it broke", status="failed"),
    ],
)
def test_what_contradicts_nothing(record: TurnRecord) -> None:
    assert told(record) == []


def test_a_call_that_waited_for_a_person_finishes_in_a_later_turn() -> None:
    parked = turn(START, asked(), status="waiting", usage=KNOWN)
    answered = turn(FINISH, said("done"), usage=KNOWN, index=1, sequence=1)
    assert told(parked, answered) == []
    assert told(parked, replace(answered, session=1)) == ["actions"]


def test_each_claim_is_told_once_with_its_turns() -> None:
    turns = [turn(said("ok"), index=n, sequence=n) for n in range(3)]
    assert contradictions([*turns, turn(said("ok"), usage=KNOWN, index=3, sequence=3)]) == [
        (Channel.USAGE, "tokens are not known (turns: 3 of 4)")
    ]
