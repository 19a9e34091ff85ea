"""What a failed assertion wanted reads alike for every matcher: its name, and what it was given."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from evalfleet.assertions import matchers
from evalfleet.assertions.criteria import CalledTool, EventOccurs, NotCalledTool, check_value, evaluate
from evalfleet.assertions.evidence import scope_of
from evalfleet.assertions.match import Match
from evalfleet.assertions.matchers import (
    all_of,
    any_of,
    approx,
    command_succeeded,
    define_match,
    define_score_match,
    equals,
    excludes,
    has_sections,
    includes,
    includes_url,
    is_defined,
    is_false,
    is_true,
    json_match,
    negate,
    one_of,
    pattern,
    references_any_path,
    satisfies,
    similarity,
)
from evalfleet.assertions.schema_match import matches
from evalfleet.assertions.tools import event_match, tool_match
from evalfleet.grading.explain import matcher_text
from evalfleet.model.assertion import AssertionPolicy, AssertionResult, AssertionRow, Result, ScopeKind
from evalfleet.model.coverage import COMPLETE_COVERAGE
from evalfleet.model.events import MISSING, Message, OperationFinished, OperationStarted, Role
from evalfleet.model.turn import TurnInput, TurnRecord, TurnStatus
from evalfleet.reports.assertion_tree import assertion_lines


class City(BaseModel):
    name: str


def never(value: Any) -> bool:
    return False


#: One failing case of each matcher: the value, and how its expectation reads.
MATCHERS: list[tuple[Match, Any, str]] = [
    (includes("rain"), "sun", 'includes "rain"'),
    (includes("rain", ignore_case=True), "sun", 'includes "rain" (ignore_case)'),
    (excludes("rain"), "rain", 'excludes "rain"'),
    (pattern("^r"), "sun", 'pattern "^r"'),
    (equals({"a": 1}), {"a": 2}, 'equals {"a": 1}'),
    (equals(None), 0, "equals null"),
    (one_of("a", 2), "c", 'one_of ["a", 2]'),
    (approx(3, rel=0.1), 5, "approx 3 (rel 0.1, abs 1e-12)"),
    (is_defined(), None, "is_defined"),
    (is_true(), False, "is_true"),
    (is_false(), True, "is_false"),
    (includes_url(2), "sun", "includes_url 2"),
    (has_sections(3), "sun", "has_sections 3"),
    (satisfies("is polite", never), "sun", 'satisfies "is polite"'),
    (define_match("polite", never), "sun", 'satisfies "polite"'),
    (json_match({"a": 1}), {"a": 2}, 'json_match {"a": 1}'),
    (references_any_path("a.py"), "sun", 'references_any_path ["a.py"]'),
    (matches(City), {"name": 1}, 'matches "City"'),
    (matches({"type": "integer"}), "sun", 'matches {"type": "integer"}'),
    (command_succeeded(), {"exit_code": 1}, "command_succeeded"),
    (all_of(includes("a"), excludes("s")), "sun", 'all_of(includes "a", excludes "s")'),
    (negate(includes("s")), "sun", 'negate(includes "s")'),
    (any_of(includes("a"), negate(includes("s"))), "sun", 'any_of(includes "a", negate(includes "s"))'),
]
MEASURES = [(similarity("abc"), 'similarity "abc"'), (define_score_match("tone", never), 'score "tone"')]

TURN = TurnRecord(
    session=0,
    index=0,
    sequence=0,
    input=TurnInput("hello"),
    status=TurnStatus.COMPLETED,
    events=(
        Message(Role.USER, "hello"),
        OperationStarted("1", "search", {"q": "rain"}),
        OperationFinished("1", output="none"),
        Message(Role.ASSISTANT, "rain"),
    ),
    data=MISSING,
    usage=None,
    coverage=COMPLETE_COVERAGE,
    started_at=0.0,
    duration=0.1,
)


def lines(criterion: Any, outcome: AssertionResult) -> list[str]:
    row = AssertionRow(
        index=0, name="check", scope="value", criterion=criterion, policy=AssertionPolicy(), outcome=outcome
    )
    return list(assertion_lines(row, 200))


@pytest.mark.parametrize(("match", "value", "said"), MATCHERS, ids=[said for *_, said in MATCHERS])
async def test_a_failed_check_names_its_matcher_and_what_it_was_given(match: Match, value: Any, said: str) -> None:
    outcome = await check_value(value, match)
    assert outcome.result is Result.MISMATCHED
    assert lines(match.describe(), outcome)[1] == f"      expected {said}"


def test_no_matcher_is_forgotten() -> None:
    told = {match.describe()["match"] for match, *_ in [*MATCHERS, *MEASURES]}
    # two are written under another name than they are described by, three are no matchers
    others = {"define_match", "define_score_match", "Match", "as_match", "evaluate_match"}
    assert told - {"score", "matches"} == set(matchers.__all__) - others


@pytest.mark.parametrize(("match", "said"), MEASURES)
def test_a_measure_has_words_too(match: Match, said: str) -> None:
    assert matcher_text(match.describe(), json.dumps) == said


async def test_every_part_of_a_composite_names_its_matcher() -> None:
    match = any_of(equals("x"), all_of(includes("s"), ~excludes("s"), excludes("u")))
    assert lines(match.describe(), await check_value("sun", match))[2:] == [
        '      ✗ equals "x"',
        '          actual   "sun"',
        '      ✗ all_of(includes "s", negate(excludes "s"), excludes "u")',
        '          ✓ includes "s"',
        '          ✓ negate(excludes "s")',
        '              ✗ excludes "s"',
        '                  actual   "sun"',
        '          ✗ excludes "u"',
        '              actual   "sun"',
    ]


async def test_a_matcher_inside_of_a_json_pattern_is_named() -> None:
    match = json_match({"a": excludes("u"), "b": [is_true()]})
    said = lines(match.describe(), await check_value({"a": "sun", "b": [True]}, match))
    assert said[-3:] == ['      ✗ excludes "u"', '          actual   "sun"', "      ✓ is_true"]


def test_conditions_on_tools_and_events_are_named() -> None:
    scope = scope_of(ScopeKind.ATTEMPT, (TURN,), False)
    tool = CalledTool(tool_match("search", input=json_match({"q": excludes("rain")})))
    said = lines(tool.describe(), evaluate(tool, scope))
    assert said[2].startswith('      ✗ json_match {"q": ') and said[-2:] == [
        '          ✗ excludes "rain"',
        '              actual   "rain"',
    ]
    event = EventOccurs(event_match("message", role="assistant", text=excludes("rain")))
    said = lines(event.describe(), evaluate(event, scope))
    assert '      ✗ excludes "rain"' in said


def test_a_match_that_must_not_occur_does_not_read_as_one_that_must() -> None:
    criterion = NotCalledTool(tool_match("search"))
    outcome = evaluate(criterion, scope_of(ScopeKind.ATTEMPT, (TURN,), False))
    assert lines(criterion.describe(), outcome)[1] == (
        '      expected {"kind": "tool", "name": "search", "count": "never"}'
    )


def test_a_row_that_holds_no_expectation_shows_its_criterion() -> None:
    outcome = AssertionResult(result=Result.UNAVAILABLE, reason="not-evaluated")
    assert lines({"criterion": "succeeded"}, outcome)[1] == '      expected {"criterion": "succeeded"}'
