"""What a listing says of a failed case: more than the assertion's name, never more than a line can hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.assertions.criteria import (
    CalledTool,
    MaxTokens,
    MessageIncludes,
    NotCalledTool,
    Succeeded,
    check_value,
    evaluate,
)
from evalfleet.assertions.evidence import scope_of
from evalfleet.assertions.json_match import json_match
from evalfleet.assertions.match import Match
from evalfleet.assertions.matchers import equals, includes, is_true, similarity
from evalfleet.assertions.tools import tool_match
from evalfleet.grading.explain import QUOTED, explain
from evalfleet.model.assertion import AssertionPolicy, AssertionResult, AssertionRow, Result, ScopeKind
from evalfleet.model.coverage import COMPLETE_COVERAGE
from evalfleet.model.events import MISSING, Message, OperationStarted, Role
from evalfleet.model.turn import TurnInput, TurnRecord, TurnStatus
from evalfleet.model.usage import Usage

TURN = TurnRecord(
    session=0,
    index=0,
    sequence=0,
    input=TurnInput("hello"),
    status=TurnStatus.FAILED,
    events=(Message(Role.USER, "hello"), OperationStarted("1", "search", {"q": "x"}), Message(Role.ASSISTANT, "no")),
    data=MISSING,
    usage=Usage(input_tokens=90, output_tokens=10),
    coverage=COMPLETE_COVERAGE,
    started_at=0.0,
    duration=0.1,
)


def said_of(failed: AssertionRow) -> str:
    return explain(failed, str)


def row(name: str, criterion: Any, outcome: AssertionResult, **more: Any) -> AssertionRow:
    policy = more.pop("policy", AssertionPolicy())
    return AssertionRow(index=0, name=name, scope="t", criterion=criterion, policy=policy, outcome=outcome, **more)


@pytest.mark.parametrize(
    ("match", "value", "said"),
    [
        (includes("sunny"), "It rains.", 'check: expected includes "sunny", got "It rains."'),
        (equals(4), 5, "check: expected equals 4, got 5"),
        (is_true(), "yes", 'check: expected is_true, got "yes", wrong-type:str'),
        (json_match({"city": "Rome"}), {"city": "Bonn"}, 'check: expected json_match {"city": "Rome"}, got {"city"'),
    ],
)
async def test_a_failed_check_says_what_was_expected_and_what_came(match: Match, value: Any, said: str) -> None:
    outcome = await check_value(value, match)
    assert said_of(row("check", match.describe(), outcome)).startswith(said)


@pytest.mark.parametrize(
    ("name", "criterion", "said"),
    [
        ("succeeded", Succeeded(), 'succeeded: expected "completed", got {"status": "failed", "pending_requests": 0}'),
        (
            "called_tool",
            CalledTool(tool_match("weather").exactly(2)),
            'called_tool: expected {"kind": "tool", "name": "weather", "count": {"exactly": 2}}, '
            'got {"matched": 0, "undecided": 0, "seen": ["search"]}',
        ),
        (
            "not_called_tool",
            NotCalledTool(tool_match("search")),
            'not_called_tool: expected {"kind": "tool", "name": "search", "count": "never"}, '
            'got {"matched": 1, "undecided": 0, "seen": ["search"]}',
        ),
        ("message_includes", MessageIncludes("yes"), 'message_includes: expected includes "yes", got ["no"]'),
        (
            "max_tokens",
            MaxTokens(50),
            'max_tokens: expected {"at_most": 50}, got {"tokens": 100, "unknown_turns": 0}',
        ),
    ],
)
def test_a_failed_assertion_on_a_scope_says_so_too(name: str, criterion: Any, said: str) -> None:
    outcome = evaluate(criterion, scope_of(ScopeKind.TURN, (TURN,), False))
    assert outcome.result is Result.MISMATCHED
    assert said_of(row(name, criterion.describe(), outcome)) == said


async def test_a_measurement_says_how_far_it_came() -> None:
    outcome = await check_value("abcd", similarity("abxx"))
    gated = row("check", {}, outcome, policy=AssertionPolicy(gate=True, gate_min=0.8), label="close")
    assert said_of(gated) == "check (close): measured 0.5, needs 0.8"


def test_a_plain_assert_shows_its_expression() -> None:
    outcome = AssertionResult(result=Result.MISMATCHED, expected=1, actual=2)
    assert said_of(row("assert", {"criterion": "assert", "expression": "a == b"}, outcome)) == (
        'assert: expected "a == b", got 2'
    )


@given(st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.lists(inner), max_leaves=300))
def test_it_is_short_whatever_the_agent_said(value: Any) -> None:
    outcome = AssertionResult(result=Result.MISMATCHED, expected=value, actual=value, reason="r" * 1000)
    assert len(said_of(row("check", {"match": "equals"}, outcome))) <= 3 * (QUOTED + 1) + 40
