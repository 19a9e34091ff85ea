"""A scope's status and coverage, and the pairing of operations."""

from __future__ import annotations

import copy
import pickle

import pytest

from evalfleet.assertions.criteria import Parked, Succeeded, UsedNoTools, check_value, evaluate
from evalfleet.assertions.evidence import (
    CoveredStr,
    CoveredValue,
    covered,
    plain,
    scope_of,
    unwrap,
)
from evalfleet.assertions.matchers import equals, includes
from evalfleet.model.assertion import Result, ScopeKind
from evalfleet.model.coverage import Channel, CoverageState, complete, partial
from evalfleet.model.events import MISSING, OperationFinished, OperationKind, OperationStarted, OperationStatus
from evalfleet.model.turn import TurnRecord
from evalfleet.model.usage import Usage
from tests.unit.assertions.traces import asked, called, covering, said, scope, turn


@pytest.mark.parametrize(
    ("turns", "in_flight", "status"),
    [
        ((), False, "not-started"),
        ((), True, "waiting"),
        ((turn(),), False, "completed"),
        ((turn(),), True, "waiting"),
        ((turn(status="failed"),), False, "failed"),
        ((turn(status="truncated"),), False, "truncated"),
        ((turn(asked(), status="waiting"),), False, "waiting"),
        # the last turn of a session decides it
        ((turn(status="failed"), turn(index=1)), False, "completed"),
        # a send that raised keeps its session failed for good
        ((turn(failure="SEND_FAILED"), turn(index=1)), False, "failed"),
        # over sessions: waiting before failed before truncated before completed
        ((turn(), turn(session=1, status="failed")), False, "failed"),
        ((turn(status="failed"), turn(asked(), session=1, status="waiting")), False, "waiting"),
        ((turn(status="truncated"), turn(session=1)), False, "truncated"),
        ((turn(status="truncated"), turn(session=1, status="failed")), False, "failed"),
    ],
)
def test_status_of_a_scope(turns: tuple[TurnRecord, ...], in_flight: bool, status: str) -> None:
    assert scope(*turns, in_flight=in_flight).status == status


def test_coverage_is_the_worst_of_the_turns() -> None:
    found = scope(turn(), turn(index=1, coverage=covering(Channel.USAGE, "partial")), turn(index=2))
    assert found.coverage.usage.state is CoverageState.PARTIAL
    assert found.coverage.actions.is_complete


def test_nothing_is_proven_absent_while_a_send_is_in_flight() -> None:
    found = evaluate(UsedNoTools(), scope(turn(), in_flight=True))
    assert (found.result, found.reason) == (Result.UNAVAILABLE, "coverage:actions=partial (scope-still-running)")


def test_a_send_that_raised_leaves_everything_but_its_status_open() -> None:
    lost = scope(turn(failure="CONNECTION_LOST"))
    assert evaluate(UsedNoTools(), lost).reason == "coverage:actions=partial (send-failed: CONNECTION_LOST)"
    assert evaluate(Succeeded(), lost).result is Result.MISMATCHED


def test_a_scope_without_any_turn_did_not_succeed() -> None:
    found = evaluate(Succeeded(), scope())
    assert (found.result, found.reason) == (Result.MISMATCHED, "evidence:no-activity")


def test_parked_and_succeeded_are_opposites_on_a_waiting_turn() -> None:
    waiting = scope(turn(asked("a"), asked("b"), status="waiting"))
    assert waiting.pending_requests == 2
    assert evaluate(Parked(), waiting).result is Result.MATCHED
    assert evaluate(Succeeded(), waiting).result is Result.MISMATCHED


def test_a_request_that_a_completed_turn_went_past_is_not_pending() -> None:
    past = scope(turn(asked(), said("approved by policy, done")))
    assert past.pending_requests == 0
    assert evaluate(Succeeded(), past).result is Result.MATCHED


def test_answered_requests_are_not_pending() -> None:
    assert scope(turn(asked(), status="waiting"), turn(said("done"), index=1)).pending_requests == 0


def names(turns: tuple[TurnRecord, ...]) -> list[tuple[str, str, object]]:
    found = scope(*turns).seen.operations
    return [(each.name, each.status.value, each.output) for each in found]


@pytest.mark.parametrize(
    ("turns", "expected", "orphans"),
    [
        ((turn(*called("a", output=1)),), [("a", "completed", 1)], 0),
        ((turn(*called("a", status="rejected")),), [("a", "rejected", MISSING)], 0),
        ((turn(*called("a", status="failed", output="boom")),), [("a", "failed", "boom")], 0),
        ((turn(*called("a", status="pending")),), [("a", "pending", MISSING)], 0),
        ((turn(*called("a", output=None)),), [("a", "completed", None)], 0),
        ((turn(OperationFinished("1")),), [], 1),
        # an id used again after its finish is a new operation
        (
            (turn(*called("a", output=1), *called("b", output=2)),),
            [("a", "completed", 1), ("b", "completed", 2)],
            0,
        ),
        # concurrent calls, finished in the other order
        (
            (
                turn(
                    OperationStarted("1", "a"),
                    OperationStarted("2", "b"),
                    OperationFinished("2", output="B"),
                    OperationFinished("1", output="A"),
                ),
            ),
            [("a", "completed", "A"), ("b", "completed", "B")],
            0,
        ),
        # two at once under one id: the older one finishes first
        (
            (
                turn(
                    OperationStarted("1", "a"),
                    OperationStarted("1", "b"),
                    OperationFinished("1", output="first"),
                ),
            ),
            [("a", "completed", "first"), ("b", "pending", MISSING)],
            0,
        ),
        # approved in the next turn of the session
        (
            (
                turn(*called("a", status="pending"), asked(), status="waiting"),
                turn(OperationFinished("1", output="ok"), index=1, sequence=1),
            ),
            [("a", "completed", "ok")],
            0,
        ),
        # the same id in another session is another operation
        (
            (turn(OperationStarted("1", "a")), turn(OperationFinished("1"), session=1, sequence=1)),
            [("a", "pending", MISSING)],
            1,
        ),
        # each session pairs its own
        (
            (turn(*called("a", output=1)), turn(*called("b", output=2), session=1, sequence=1)),
            [("a", "completed", 1), ("b", "completed", 2)],
            0,
        ),
        # a sub-agent's id is not a tool's
        (
            (turn(OperationStarted("1", "a"), OperationFinished("1", kind=OperationKind.SUBAGENT)),),
            [("a", "pending", MISSING)],
            1,
        ),
    ],
)
def test_pairing(turns: tuple[TurnRecord, ...], expected: list[tuple[str, str, object]], orphans: int) -> None:
    assert names(turns) == expected
    assert scope(*turns).seen.orphans == orphans


def test_an_operation_that_waited_for_a_person_belongs_to_both_turns_and_happened_once() -> None:
    parked = turn(OperationStarted("1", "rm", {"path": "x"}), asked(), status="waiting")
    answered = turn(OperationFinished("1", output="gone"), index=1, sequence=1)
    other = turn(OperationStarted("1", "rm", {"path": "y"}), session=1, sequence=2)
    whole = [parked, answered, other]

    (before,) = scope_of(ScopeKind.TURN, [parked], False, whole).seen.operations
    after = scope_of(ScopeKind.TURN, [answered], False, whole).seen
    assert (before.status, before.output) == (OperationStatus.PENDING, MISSING)
    assert [(each.input, each.status, each.output) for each in after.operations] == [
        ({"path": "x"}, OperationStatus.COMPLETED, "gone")
    ]
    assert after.orphans == 0
    assert len(scope(parked, answered).seen.operations) == 1

    alone = scope_of(ScopeKind.TURN, [turn(OperationFinished("1"), session=1, index=1)], False, [parked]).seen
    assert (alone.operations, alone.orphans) == ((), 1)


def test_input_that_could_not_be_parsed_is_its_text() -> None:
    (found,) = scope(turn(OperationStarted("1", "a", raw_input="{oops"))).seen.operations
    assert (found.input, found.status) == ("{oops", OperationStatus.PENDING)


def test_a_scope_is_frozen_at_the_call() -> None:
    turns = [turn()]
    before = scope_of(ScopeKind.SESSION, turns, False)
    turns.append(turn(status="failed", index=1))
    assert before.status == "completed"
    assert len(before.turns) == 1


# --- values that carry their coverage -------------------------------------------------------------------------

ENTRY = partial("lossy")


def test_covered_text_is_text() -> None:
    reply = covered("It is Sunny ", Channel.MESSAGES, ENTRY)
    assert isinstance(reply, str)
    assert reply == "It is Sunny "
    assert f"{reply}!" == "It is Sunny !"
    assert {reply: 1} == {"It is Sunny ": 1}
    assert type(unwrap(reply)[0]) is str


async def test_trimming_and_case_keep_the_coverage() -> None:
    reply = CoveredStr("  Yes ", Channel.MESSAGES, ENTRY)
    for text in (reply.strip(), reply.lstrip(), reply.rstrip(), reply.lower(), reply.upper(), reply.casefold()):
        assert unwrap(text)[1:] == (Channel.MESSAGES, ENTRY)
    assert (await check_value(reply.strip().lower(), equals("no"))).result is Result.UNAVAILABLE


def test_covered_values_read_like_what_they_hold() -> None:
    data = covered({"city": "Rome", "days": [1, 2], "ok": True}, Channel.DATA, ENTRY)
    assert data == {"city": "Rome", "days": [1, 2], "ok": True}
    assert data["city"] == "Rome"
    assert isinstance(data["city"], CoveredStr)
    assert data["days"][1] > 1
    assert data["days"][0] <= 1 < data["days"][1] < 3 and data["days"][1] >= 2
    assert [item == 2 for item in data["days"]] == [False, True]
    assert "ok" in data and len(data) == 3
    assert bool(data["ok"]) and not covered(0, Channel.DATA, ENTRY)
    assert str(data["days"]) == "[1, 2]"


def test_attributes_carry_the_coverage_too() -> None:
    usage = covered(Usage(input_tokens=1, output_tokens=2), Channel.USAGE, ENTRY)
    assert usage.total_tokens == 3
    assert unwrap(usage.total_tokens) == (3, Channel.USAGE, ENTRY)
    with pytest.raises(AttributeError):
        _ = usage.no_such_field


def test_missing_keys_raise_as_they_do_in_a_dict() -> None:
    with pytest.raises(KeyError):
        _ = covered({}, Channel.DATA, ENTRY)["city"]


@pytest.mark.parametrize("value", ["text", {"a": [1]}, None, MISSING])
def test_covered_values_survive_copy_and_pickle(value: object) -> None:
    before = covered(value, Channel.DATA, ENTRY)
    for after in (copy.deepcopy(before), pickle.loads(pickle.dumps(before)), covered(before, Channel.EVENTS, complete)):
        assert unwrap(after) == (value, Channel.DATA, ENTRY)


def test_unwrapping_what_is_not_covered() -> None:
    assert unwrap("x") == ("x", None, None)
    assert plain(CoveredValue(3, Channel.DATA, ENTRY)) == plain(3) == 3


async def test_parts_of_incomplete_data_are_as_incomplete_as_the_whole() -> None:
    data = covered({"note": "hello"}, Channel.DATA, ENTRY)
    assert (await check_value(data["note"], includes("bye"))).result is Result.UNAVAILABLE
