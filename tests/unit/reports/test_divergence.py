"""Where an attempt first diverges: which criterion, and what is named at each of the seven boundaries."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from evalfleet.errors import FailureKind
from evalfleet.model.assertion import AssertionPolicy, AssertionResult, Result
from evalfleet.model.changes import Attribution, Change, ChangedBy, ChangeKind, Window
from evalfleet.model.coverage import COMPLETE_COVERAGE, Channel, partial
from evalfleet.model.events import (
    Compaction,
    ContextInjected,
    ErrorReported,
    Event,
    InputRequested,
    Message,
    OperationFinished,
    OperationStarted,
    OperationStatus,
    Role,
    SkillLoaded,
    Thinking,
)
from evalfleet.model.verdict import CaseStatus, Style
from evalfleet.reports.divergence import Boundary, Divergence, first_divergence
from evalfleet.reports.divergence_lines import divergence_lines, divergence_value
from tests.unit.reports.documents import PRIVATE, case, detail, row, suite_row, turn

EVENTS: tuple[Event, ...] = (
    Message(Role.USER, "pay"),
    ContextInjected("be kind"),
    SkillLoaded("checkout"),
    Compaction(),
    Thinking("hm"),
    OperationStarted("c1", "charge", {"sum": 3}),
    InputRequested("r1", "may I?"),
    OperationFinished("c1", OperationStatus.REJECTED),
    ErrorReported("no"),
    Message(Role.ASSISTANT, "It was not allowed."),
)

#: The events that are named at each boundary, by their number; input and state are no events.
NAMED = {
    Boundary.CONTEXT: [1, 2, 3],
    Boundary.INTERPRETATION: [4, 5],
    Boundary.AUTHORISATION: [6, 7],
    Boundary.CAPABILITIES: [5, 7, 8],
    Boundary.RESPONSE: [9],
}


def diverging(*turns: Any, **fields: Any) -> Divergence:
    rows = fields.pop("rows", [row(0, Result.MISMATCHED)])
    found = first_divergence(case(CaseStatus.FAILED), detail(*turns, rows=rows, **fields))
    assert found is not None
    return found


def ids(found: Divergence, boundary: Boundary) -> list[str]:
    return [each.id for crossing in found.crossings if crossing.boundary is boundary for each in crossing.evidence]


@pytest.mark.parametrize("boundary", NAMED)
def test_events_are_named_by_their_number(boundary: Boundary) -> None:
    found = diverging(turn(1, events=EVENTS))
    assert ids(found, boundary) == [f"turn/0/1/event/{number}" for number in NAMED[boundary]]


def test_the_boundaries_stand_in_order_and_each_asks_something() -> None:
    found = diverging(turn(0))
    names = [crossing.boundary.value for crossing in found.crossings]
    assert names == ["input", "context", "interpretation", "authorisation", "capabilities", "state", "response"]
    assert all(boundary.question.endswith("?") for boundary in Boundary)


def test_the_input_and_what_was_committed() -> None:
    change = Change(path="paid.txt", kind=ChangeKind.ADDED)
    windows = (
        Window(label="turn1", by=ChangedBy.EVAL, before="a", after="b"),
        Window(label="turn1", by=ChangedBy.AGENT, before="b", after="c", changes=(change,)),
    )
    told = turn(0, data={"paid": True}, session_state={"at": 1}, observation={"x": 1})
    found = diverging(told, attribution=Attribution(windows=windows))
    assert ids(found, Boundary.INPUT) == ["turn/0/0/input"]
    state = ["turn/0/0/data", "turn/0/0/observation", "turn/0/0/checkpoint", "changes/1"]
    assert ids(found, Boundary.STATE) == state


#: Nothing stands at a boundary: what is said, by the coverage of the turn.
UNSEEN = [
    (Boundary.CONTEXT, COMPLETE_COVERAGE, None),
    (Boundary.AUTHORISATION, COMPLETE_COVERAGE, None),
    (Boundary.STATE, COMPLETE_COVERAGE, None),
    (Boundary.INTERPRETATION, COMPLETE_COVERAGE, "turn/0/0/coverage/actions"),
    (Boundary.CAPABILITIES, COMPLETE_COVERAGE, "turn/0/0/coverage/actions"),
    (Boundary.RESPONSE, COMPLETE_COVERAGE, "turn/0/0/coverage/messages"),
    (Boundary.CAPABILITIES, COMPLETE_COVERAGE.downgrade({Channel.ACTIONS: partial("final only")}), None),
    (Boundary.RESPONSE, COMPLETE_COVERAGE.downgrade({Channel.MESSAGES: partial("cut")}), None),
]


@pytest.mark.parametrize(("boundary", "coverage", "proof"), UNSEEN)
def test_that_there_was_nothing_is_said_only_where_it_is_proven(
    boundary: Boundary, coverage: Any, proof: str | None
) -> None:
    found = diverging(turn(0, events=(Message(Role.USER, "x"),), coverage=coverage))
    (crossing,) = [each for each in found.crossings if each.boundary is boundary]
    assert crossing.none is (proof is not None)
    assert [each.id for each in crossing.evidence] == ([] if proof is None else [proof])
    (line,) = [text for text in divergence_lines(case(), found, None) if f" {boundary.value} " in text]
    assert line.endswith("not recorded" if proof is None else f"none, by {proof}")


def test_a_send_that_failed_proves_no_absence() -> None:
    found = diverging(turn(0, failure="SEND_FAILED: x", events=()))
    assert [crossing.boundary for crossing in found.crossings if crossing.recorded] == [Boundary.INPUT]


#: Assertions in their order, and which of them is the first that diverges.
FIRST = [
    (Style.PASS, [row(0), row(1, Result.MISMATCHED), row(2, Result.MISMATCHED)], 1),
    (Style.PASS, [row(0, Result.UNAVAILABLE), row(1, Result.MISMATCHED)], 0),
    (Style.PASS, [row(0, Result.UNAVAILABLE, policy=AssertionPolicy(optional=True)), row(1, Result.ERRORED)], 1),
    (Style.PASS, [row(0), row(1)], None),
    (Style.SCORE, [row(0, Result.MISMATCHED), row(1, Result.MISMATCHED, policy=AssertionPolicy(points=2))], 1),
    (Style.PASS, [suite_row(0, "choose"), suite_row(1, "pay", passed=False), suite_row(2, None, passed=False)], 1),
    # a passing `any` holds failed children, which are no divergence
    (Style.PASS, [row(0, outcome=AssertionResult(result=Result.MATCHED, children=(
        AssertionResult(result=Result.MISMATCHED), AssertionResult(result=Result.MATCHED),
    )))], None),
]  # fmt: skip


@pytest.mark.parametrize(("style", "rows", "first"), FIRST)
def test_the_first_that_decides_and_does_not_hold(style: Style, rows: Any, first: int | None) -> None:
    found = first_divergence(case(CaseStatus.FAILED, style=style), detail(turn(0), rows=rows))
    assert (None if found is None or found.assertion is None else found.assertion.index) == first


@pytest.mark.parametrize(
    ("scope", "turns"),
    [
        ("turn/0/1", ["turn/0/1"]),
        ("session/1", ["turn/1/0"]),
        ("t", ["turn/0/0", "turn/0/1", "turn/1/0"]),
        ("value", ["turn/0/0", "turn/0/1", "turn/1/0"]),
    ],
)
def test_the_turns_that_a_criterion_is_about(scope: str, turns: list[str]) -> None:
    held = (turn(0), turn(1), turn(0, session=1, sequence=2))
    assert list(diverging(*held, rows=[row(0, Result.MISMATCHED, scope=scope)]).turns) == turns


def test_a_failure_is_named_by_its_code_and_says_what_to_check_first() -> None:
    view = case(CaseStatus.ERRORED, kind=FailureKind.DEADLINE, code="TURN_TIMEOUT")
    failed = detail(turn(0), turn(1, failure=f"TURN_TIMEOUT: {PRIVATE}"), rows=[row(0)], kind=FailureKind.DEADLINE,
                    code="TURN_TIMEOUT")  # fmt: skip
    found = first_divergence(view, failed)
    assert found is not None and found.assertion is None
    assert (found.code, found.turns) == ("EVALUATION_TIMEOUT", ("turn/0/1",))
    lines = list(divergence_lines(view, found, None))
    assert any(line.startswith("  EVALUATION_TIMEOUT: check `limits.turn_timeout`") for line in lines)
    assert PRIVATE not in "\n".join(lines) + json.dumps(divergence_value(found))


def test_what_could_not_be_judged_has_a_code_beside_it() -> None:
    found = diverging(turn(0), rows=[row(0, Result.UNAVAILABLE, reason="coverage:actions=partial (x)")])
    assert (found.code, found.assertion is not None) == ("EVIDENCE_NOT_COVERED", True)


def test_lines_name_calls_and_keep_the_rest_short() -> None:
    calls = [
        event
        for number in range(5)
        for event in (
            OperationStarted(f"c{number}", f"look\x1b{number}"),
            OperationFinished(f"c{number}", output=number),
        )
    ]
    found = diverging(turn(0, events=(Message(Role.USER, "x"), *calls, Message(Role.ASSISTANT, "a\nb"))))
    lines = list(divergence_lines(replace(case(CaseStatus.FAILED), eval_id="w\x1b"), found, None))
    assert not any("\x1b" in line or "\n" in line for line in lines)
    assert "  5 capabilities    turn/0/0/event/1  tool look\\x1b0()" in lines
    assert "                    turn/0/0/event/2  look\\x1b0 completed: 0" in lines
    assert "                    and 4 more" in lines
    assert '  7 response        turn/0/0/event/11  assistant "a\\nb"' in lines


def test_json_and_lines_have_the_same_boundaries() -> None:
    found = diverging(turn(0, events=EVENTS))
    value: Any = divergence_value(found)
    told = [
        line.split()[1] for line in divergence_lines(case(), found, None) if line[2:3].isdigit() and line[3:4] == " "
    ]
    assert [each["boundary"] for each in value["boundaries"]] == told
    assert value["assertion"]["index"] == 0 and value["turns"] == ["turn/0/0"]


def test_where_all_is_as_it_should_be() -> None:
    assert first_divergence(case(), detail(turn(0), rows=[row(0)])) is None
    assert divergence_value(None) is None
    assert list(divergence_lines(case(), None, None))[1:] == [
        "  nothing diverges: what decides holds, and nothing failed"
    ]
