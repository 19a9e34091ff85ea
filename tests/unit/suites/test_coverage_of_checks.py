"""Semantics §2 on checks: what evidence decides that may be incomplete."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evalfleet.model.coverage import COMPLETE_COVERAGE, Channel, Coverage, partial, unavailable
from evalfleet.suites.observation import CHANNELS, Observation
from tests.unit.suites.documents import check, custom, either, every, judged_alone, negated

PASSED, FAILED, UNKNOWN = "passed", "failed", "not covered"

CALLS = [{"name": "search"}, {"name": "pay"}]

ROWS: list[tuple[str, Any, Any, str, str]] = [
    # operator, value, what is seen, when complete, when not
    ("exists", None, CALLS, PASSED, PASSED),
    ("absent", None, CALLS, FAILED, FAILED),
    ("contains", {"name": "pay"}, CALLS, PASSED, PASSED),
    ("contains", {"name": "ship"}, CALLS, FAILED, UNKNOWN),
    ("contains", "lo", "hello", PASSED, PASSED),
    ("equals", "done", "done", PASSED, PASSED),
    ("equals", "done", "open", FAILED, UNKNOWN),
    ("equals", CALLS, CALLS, PASSED, UNKNOWN),
    ("not_equals", "done", "open", PASSED, UNKNOWN),
    ("not_equals", "done", "done", FAILED, FAILED),
    ("not_equals", CALLS, CALLS, FAILED, UNKNOWN),
    ("matches", {"a": 1}, {"a": 1, "b": 2}, PASSED, PASSED),
    ("matches", {"a": 1}, {"b": 2}, FAILED, UNKNOWN),
    ("matches", {"a": [1]}, {"a": [1]}, PASSED, UNKNOWN),
    ("gte", 3, 3, PASSED, PASSED),
    ("gte", 3, 2, FAILED, UNKNOWN),
    ("gt", 3, 4, PASSED, PASSED),
    ("lte", 3, 3, PASSED, UNKNOWN),
    ("lte", 3, 4, FAILED, FAILED),
    ("lte", 3, "many", FAILED, UNKNOWN),
    ("lt", 3, 3, FAILED, FAILED),
    ("length", 2, CALLS, PASSED, UNKNOWN),
    ("length", 1, CALLS, FAILED, FAILED),
    ("length", 3, CALLS, FAILED, UNKNOWN),
    ("one_of", ["a", "b"], "a", PASSED, PASSED),
    ("one_of", ["a", "b"], "c", FAILED, UNKNOWN),
    ("set_equals", [1, 2], [2, 1], PASSED, UNKNOWN),
    ("set_equals", [1, 2], [1], FAILED, UNKNOWN),
    ("set_equals", [1, 2], [3], FAILED, FAILED),
    ("matches_regex", "^he", "hello", PASSED, PASSED),
    ("matches_regex", "^lo", "hello", FAILED, UNKNOWN),
    ("count", {"of": {}, "gte": 2}, CALLS, PASSED, PASSED),
    ("count", {"of": {}, "gte": 3}, CALLS, FAILED, UNKNOWN),
    ("count", {"of": {}, "lte": 2}, CALLS, PASSED, UNKNOWN),
    ("count", {"of": {}, "lte": 1}, CALLS, FAILED, FAILED),
    ("count", {"of": {}, "equals": 2}, CALLS, PASSED, UNKNOWN),
    ("count", {"of": {}, "equals": 1}, CALLS, FAILED, FAILED),
    ("count", {"of": {}, "equals": 3}, CALLS, FAILED, UNKNOWN),
]

GAPS = {"partial": partial("lossy stream"), "unavailable": unavailable("not exposed")}


def with_gap(channel: Channel, state: str) -> Coverage:
    return COMPLETE_COVERAGE.downgrade({channel: GAPS[state]})


def seen(value: Any, coverage: Coverage = COMPLETE_COVERAGE) -> Observation:
    return Observation(value={"toolCalls": value}, coverage=coverage, channels=CHANNELS)


def said(outcome: Any) -> str:
    if outcome.error_code is not None:
        assert (outcome.error_code, outcome.passed) == ("EVIDENCE_NOT_COVERED", False)
        return UNKNOWN
    return PASSED if outcome.passed else FAILED


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]} {row[3]} {row[4]}" for row in ROWS])
@pytest.mark.parametrize("state", GAPS)
async def test_what_an_incomplete_channel_decides(row: tuple[str, Any, Any, str, str], state: str) -> None:
    operator, value, actual, when_complete, when_not = row
    document = check(operator, ["toolCalls"], value=value)
    assert said(await judged_alone(document, seen(actual))) == when_complete
    outcome = await judged_alone(document, seen(actual, with_gap(Channel.ACTIONS, state)))
    assert said(outcome) == when_not
    reason = f"coverage:actions={state} ({GAPS[state].reason})"
    assert outcome.reason == (reason if when_not == UNKNOWN else None)


@pytest.mark.parametrize("operator", ["exists", "absent", "equals", "lte"])
async def test_what_is_missing_where_evidence_may_be(operator: str) -> None:
    document = check(operator, ["toolCalls", 5], value=1)
    outcome = await judged_alone(document, seen([], with_gap(Channel.ACTIONS, "partial")))
    assert said(outcome) == UNKNOWN


async def test_only_the_channel_of_the_path_counts_and_the_root_takes_the_worst() -> None:
    coverage = with_gap(Channel.USAGE, "partial").downgrade({Channel.EVENTS: GAPS["unavailable"]})
    assert said(await judged_alone(check("absent", ["toolCalls", 9]), seen([], coverage))) == PASSED
    assert said(await judged_alone(check("absent", ["no such key"]), seen([], coverage))) == PASSED
    root = await judged_alone(check("not_equals", [], value={}), seen([], coverage))
    assert root.reason == "coverage:events=unavailable (not exposed)"


async def test_an_observation_of_its_own_is_as_good_as_its_data() -> None:
    own = Observation(value={"a": 1}, coverage=with_gap(Channel.DATA, "partial"), otherwise=Channel.DATA)
    assert said(await judged_alone(check("equals", ["a"], value=1), own)) == PASSED
    outcome = await judged_alone(check("absent", ["b"]), own)
    assert (said(outcome), outcome.reason) == (UNKNOWN, "coverage:data=partial (lossy stream)")
    known = replace(own, coverage=with_gap(Channel.EVENTS, "partial"))
    assert said(await judged_alone(check("absent", ["b"]), known)) == PASSED


async def test_a_host_s_observation_is_complete() -> None:
    assert said(await judged_alone(check("absent", ["b"]), {"a": 1})) == PASSED


@pytest.mark.parametrize("compose", [negated, every, lambda child: either(check("exists", ["reply"], id="x"), child)])
async def test_no_composite_makes_an_answer_of_what_is_not_covered(compose: Any) -> None:
    child = check("contains", ["toolCalls"], value={"name": "ship"})
    value = Observation(
        value={"reply": "hi", "toolCalls": CALLS}, coverage=with_gap(Channel.ACTIONS, "partial"), channels=CHANNELS
    )
    outcome = await judged_alone(compose(child), value)
    assert (said(outcome), outcome.reason) == (UNKNOWN, "coverage:actions=partial (lossy stream)")


async def test_evaluators_see_how_far_evidence_goes() -> None:
    def covered(context: Any, _: Any) -> Any:
        return {"passed": context.evidence.gap(("toolCalls",)) == "coverage:actions=partial (lossy stream)"}

    value = seen(CALLS, with_gap(Channel.ACTIONS, "partial"))
    assert (await judged_alone(custom("covered"), value, functions={"covered": covered})).passed
