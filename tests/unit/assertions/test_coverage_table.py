"""Semantics §2, the coverage table: one row a test, over every criterion of its kind."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from evalfleet.assertions.criteria import (
    CalledTool,
    EventOccurs,
    EventOrder,
    MaxCost,
    MaxTokens,
    MaxToolCalls,
    MessageIncludes,
    NoFailedActions,
    NotCalledTool,
    NotEvent,
    Parked,
    ScopeCriterion,
    Succeeded,
    ToolOrder,
    UsedNoTools,
    check_value,
    evaluate,
)
from evalfleet.assertions.evidence import covered
from evalfleet.assertions.match import Match
from evalfleet.assertions.matchers import (
    approx,
    equals,
    excludes,
    includes,
    is_defined,
    is_true,
    json_match,
    negate,
    one_of,
    pattern,
    satisfies,
    similarity,
)
from evalfleet.assertions.tools import event_match, subagent_match, tool_match
from evalfleet.model.coverage import Channel
from evalfleet.model.events import MISSING, Compaction, OperationKind, SkillLoaded
from evalfleet.model.turn import TurnRecord
from evalfleet.model.usage import Usage
from tests.unit.assertions.traces import ENTRIES, asked, called, calls, covering, said, scope, turn

GAPS = ("partial", "unavailable")


class Example(NamedTuple):
    criterion: ScopeCriterion
    match: TurnRecord
    """A turn with the evidence: the match of a positive, the counterexample of a negative, an exceeded bound."""
    none: TurnRecord
    """The same without it."""


def tokens(count: int) -> TurnRecord:
    return turn(usage=Usage(input_tokens=count, output_tokens=0))


AGENT = OperationKind.SUBAGENT

POSITIVE = {
    "succeeded": Example(Succeeded(), turn(said("ok")), turn(status="failed")),
    "parked": Example(Parked(), turn(asked(), status="waiting"), turn(said("ok"))),
    "called_tool": Example(CalledTool(tool_match("search")), turn(*called("search")), turn(*called("fetch"))),
    "called_subagent": Example(
        CalledTool(subagent_match("critic")), turn(*called("critic", kind=AGENT)), turn(*called("critic"))
    ),
    "tool_order": Example(
        ToolOrder((tool_match("a"), tool_match("b"))),
        turn(*called("a"), *called("b")),
        turn(*called("b"), *called("a")),
    ),
    "event": Example(EventOccurs(event_match("compaction")), turn(Compaction()), turn(said("ok"))),
    "loaded_skill": Example(
        EventOccurs(event_match("skill.loaded", skill="sql")), turn(SkillLoaded("sql")), turn(SkillLoaded("web"))
    ),
    "event_order": Example(
        EventOrder((event_match("compaction"), event_match("message", role="assistant"))),
        turn(Compaction(), said("ok")),
        turn(said("ok"), Compaction()),
    ),
    "message_includes": Example(MessageIncludes("sunny"), turn(said("It is sunny.")), turn(said("It rains."))),
}

NEGATIVE = {
    "not_called_tool": Example(NotCalledTool(tool_match("rm")), turn(*called("rm")), turn(*called("ls"))),
    "used_no_tools": Example(UsedNoTools(), turn(*called("ls")), turn(said("ok"))),
    "no_failed_actions": Example(
        NoFailedActions(), turn(*called("ls", status="failed")), turn(*called("ls", status="rejected"))
    ),
    "no_failed_actions of a sub-agent": Example(
        NoFailedActions(), turn(*called("critic", kind=AGENT, status="failed")), turn(*called("critic", kind=AGENT))
    ),
    "not_event": Example(NotEvent(event_match("compaction")), turn(Compaction()), turn(said("ok"))),
}

BOUNDS = {
    "max_tool_calls": Example(MaxToolCalls(2), turn(*calls(3)), turn(*calls(2))),
    "max_tokens": Example(MaxTokens(100), tokens(101), tokens(100)),
}


def told(criterion: ScopeCriterion, record: TurnRecord, state: str) -> str:
    """The result of the criterion over that one turn, with its own channel in `state`."""
    return evaluate(criterion, scope(replace(record, coverage=covering(criterion.channel, state)))).result.value


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize(
    ("evidence", "state", "result"),
    [
        ("match", "complete", "matched"),
        ("match", "partial", "matched"),
        ("match", "unavailable", "matched"),
        ("none", "complete", "mismatched"),
        ("none", "partial", "unavailable"),
        ("none", "unavailable", "unavailable"),
    ],
)
def test_positive(name: str, evidence: str, state: str, result: str) -> None:
    example = POSITIVE[name]
    assert told(example.criterion, getattr(example, evidence), state) == result


@pytest.mark.parametrize("name", NEGATIVE)
@pytest.mark.parametrize(
    ("evidence", "state", "result"),
    [
        ("none", "complete", "matched"),
        ("none", "partial", "unavailable"),
        ("none", "unavailable", "unavailable"),
        ("match", "complete", "mismatched"),
        ("match", "partial", "mismatched"),
        ("match", "unavailable", "mismatched"),
    ],
)
def test_negative(name: str, evidence: str, state: str, result: str) -> None:
    example = NEGATIVE[name]
    assert told(example.criterion, getattr(example, evidence), state) == result


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize(
    ("evidence", "state", "result"),
    [
        ("none", "complete", "matched"),
        ("none", "partial", "unavailable"),
        ("none", "unavailable", "unavailable"),
        ("match", "complete", "mismatched"),
        ("match", "partial", "mismatched"),
        ("match", "unavailable", "mismatched"),
    ],
)
def test_upper_bound(name: str, evidence: str, state: str, result: str) -> None:
    example = BOUNDS[name]
    assert told(example.criterion, getattr(example, evidence), state) == result


@pytest.mark.parametrize(
    ("costs", "state", "result", "reason"),
    [
        ((0.4, 0.6), "complete", "matched", None),
        ((0.4, 0.7), "complete", "mismatched", None),
        ((0.4, 0.6), "partial", "unavailable", "coverage:usage=partial (lossy stream)"),
        ((0.4, 0.7), "partial", "mismatched", None),
        ((0.4, None), "complete", "unavailable", "evidence:unpriced-turns=1"),
        ((1.1, None), "complete", "mismatched", None),
        ((0.0, 0.0), "complete", "matched", None),
        ((), "complete", "unavailable", "evidence:unpriced-turns=2"),
    ],
)
def test_max_cost_needs_a_price(costs: tuple[float | None, ...], state: str, result: str, reason: str | None) -> None:
    coverage = covering(Channel.USAGE, state)
    found = evaluate(MaxCost(1.0, costs), scope(turn(coverage=coverage), turn(coverage=coverage, index=1, sequence=1)))
    assert (found.result.value, found.reason) == (result, reason)


@pytest.mark.parametrize(
    ("usage", "result"),
    [
        (Usage(input_tokens=40, output_tokens=60), "matched"),
        (Usage(input_tokens=40, output_tokens=61), "mismatched"),
        (Usage(input_tokens=40, output_tokens=60, cache_read_tokens=9000), "matched"),
        (Usage(input_tokens=40), "unavailable"),
        (Usage(input_tokens=101), "mismatched"),
        (Usage(input_tokens=40, output_tokens=60, unknown_calls=1), "unavailable"),
        (Usage(input_tokens=40, output_tokens=61, unknown_calls=1), "mismatched"),
        (Usage(input_tokens=0, output_tokens=0), "matched"),
        (None, "unavailable"),
    ],
)
def test_max_tokens_never_reads_unknown_as_zero(usage: Usage | None, result: str) -> None:
    assert evaluate(MaxTokens(100), scope(turn(usage=usage))).result.value == result


# --- values that carry their coverage -------------------------------------------------------------------------

REPLY = "It is sunny in Brooklyn."

POSITIVE_VALUES: dict[str, tuple[Match, object, object]] = {
    "includes": (includes("sunny"), REPLY, "It rains."),
    "pattern": (pattern(r"sun\w+"), REPLY, "It rains."),
    "equals": (equals({"a": 1}), {"a": 1}, {"a": 2}),
    "one_of": (one_of("yes", "no"), "yes", "perhaps"),
    "approx": (approx(0.3), 0.1 + 0.2, 0.4),
    "json_match": (json_match({"a": includes("x")}), {"a": "xyz", "b": 0}, {"a": "y"}),
    "satisfies": (satisfies("is long", lambda text: len(text) > 12), REPLY, "no"),
    "is_true": (is_true(), True, False),
    "is_defined": (is_defined(), 0, MISSING),
    "not excludes": (negate(excludes("sunny")), REPLY, "It rains."),
}

NEGATIVE_VALUES: dict[str, tuple[Match, object, object]] = {
    "excludes": (excludes("rain"), REPLY, "It rains."),
    "not includes": (negate(includes("rain")), REPLY, "It rains."),
    "not includes and not pattern": (~includes("rain") & ~pattern("sn.w"), REPLY, "It rains."),
}


@pytest.mark.parametrize("name", POSITIVE_VALUES)
@pytest.mark.parametrize(
    ("fits", "state", "result"),
    [
        (True, "complete", "matched"),
        (True, "partial", "matched"),
        (True, "unavailable", "matched"),
        (False, "complete", "mismatched"),
        (False, "partial", "unavailable"),
        (False, "unavailable", "unavailable"),
    ],
)
async def test_positive_value(name: str, fits: bool, state: str, result: str) -> None:
    match, good, bad = POSITIVE_VALUES[name]
    value = covered(good if fits else bad, Channel.DATA, ENTRIES[state])
    assert (await check_value(value, match)).result.value == result


@pytest.mark.parametrize("name", NEGATIVE_VALUES)
@pytest.mark.parametrize(
    ("fits", "state", "result"),
    [
        (True, "complete", "matched"),
        (True, "partial", "unavailable"),
        (True, "unavailable", "unavailable"),
        (False, "complete", "mismatched"),
        (False, "partial", "mismatched"),
        (False, "unavailable", "mismatched"),
    ],
)
async def test_negative_value(name: str, fits: bool, state: str, result: str) -> None:
    match, good, bad = NEGATIVE_VALUES[name]
    value = covered(good if fits else bad, Channel.MESSAGES, ENTRIES[state])
    assert (await check_value(value, match)).result.value == result


async def test_the_reason_names_channel_state_and_the_authors_reason() -> None:
    value = covered("nothing", Channel.MESSAGES, ENTRIES["partial"])
    assert (await check_value(value, includes("x"))).reason == "coverage:messages=partial (lossy stream)"
    record = turn(coverage=covering(Channel.ACTIONS, "unavailable"))
    found = evaluate(UsedNoTools(), scope(record))
    assert found.reason == "coverage:actions=unavailable (not exposed)"


async def test_a_value_that_carries_no_coverage_is_simply_checked() -> None:
    assert (await check_value("nothing", includes("x"))).result.value == "mismatched"


async def test_a_missing_value_is_no_counterexample_of_a_negative_matcher() -> None:
    value = covered(MISSING, Channel.DATA, ENTRIES["unavailable"])
    assert (await check_value(value, excludes("x"))).result.value == "unavailable"


async def test_a_number_measured_on_incomplete_text_is_not_known() -> None:
    found = await check_value(covered("abc", Channel.MESSAGES, ENTRIES["partial"]), similarity("abc"))
    assert (found.result.value, found.measurement) == ("unavailable", None)


@pytest.mark.parametrize(
    "note",
    [excludes("sorry"), includes("n") & excludes("sorry"), excludes("sorry") & includes("n"), ~includes("sorry")],
)
async def test_a_negative_matcher_inside_json_match_leaves_nothing_certain(note: Match) -> None:
    for value in ({"note": "sorry"}, {"note": "fine"}):
        found = await check_value(covered(value, Channel.DATA, ENTRIES["partial"]), json_match({"note": note}))
        assert found.result.value == "unavailable"


async def test_a_doubly_negated_matcher_inside_json_match_is_positive() -> None:
    value = covered({"note": "fine"}, Channel.DATA, ENTRIES["partial"])
    assert (await check_value(value, json_match({"note": ~excludes("fine")}))).result.value == "matched"


@pytest.mark.parametrize("text", ["sorry", "fine"])
def test_some_message_without_a_word_may_always_be_the_one_that_was_not_collected(text: str) -> None:
    assert told(MessageIncludes(excludes("sorry")), turn(said(text)), "partial") == "unavailable"
    assert told(MessageIncludes(excludes("sorry")), turn(said("sorry")), "complete") == "mismatched"


def test_no_message_yet_is_no_proof_while_the_send_is_running() -> None:
    found = evaluate(MessageIncludes("sunny"), scope(in_flight=True))
    assert (found.result.value, found.reason) == ("unavailable", "coverage:messages=partial (scope-still-running)")
