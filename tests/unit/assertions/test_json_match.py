"""`json_match`: objects partially, arrays exactly, matchers at any depth."""

from __future__ import annotations

import math
from typing import Any

import pytest

from evalfleet.assertions.match import evaluate_now
from evalfleet.assertions.matchers import (
    as_match,
    equals,
    excludes,
    includes,
    is_defined,
    json_match,
    negate,
    pattern,
    satisfies,
)
from evalfleet.errors import AuthoringError
from evalfleet.model.assertion import Result
from evalfleet.model.events import MISSING


@pytest.mark.parametrize(
    ("expected", "value", "result", "where"),
    [
        ({"city": "Rome"}, {"city": "Rome", "unit": "C"}, "matched", None),
        ({"city": "Rome"}, {"city": "rome"}, "mismatched", "differs-at:/city"),
        ({"city": "Rome"}, {}, "mismatched", "differs-at:/city"),
        ({}, {"anything": 1}, "matched", None),
        ({}, [], "mismatched", "differs-at:"),
        ({}, MISSING, "mismatched", "differs-at:"),
        ([1, 2], [1, 2], "matched", None),
        ([1, 2], [1, 2, 3], "mismatched", "differs-at:"),
        ([1, 2], [1], "mismatched", "differs-at:"),
        ([], "", "mismatched", "differs-at:"),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}]}, "matched", None),
        ({"a": [{"b": 1}]}, {"a": [{"b": True}]}, "mismatched", "differs-at:/a/0/b"),
        ({"a": None}, {"a": None}, "matched", None),
        ({"a": None}, {}, "mismatched", "differs-at:/a"),
        ({"n": 1}, {"n": 1.0}, "matched", None),
        ({"n": 9007199254740993}, {"n": 9007199254740992}, "mismatched", "differs-at:/n"),
        ({"text": includes("x")}, {"text": "axb"}, "matched", None),
        ({"text": includes("x")}, {"text": "abc", "other": "x"}, "mismatched", "differs-at:/text"),
        ({"text": includes("x")}, {}, "mismatched", "differs-at:/text"),
        ([pattern("^a"), "b"], ["abc", "b"], "matched", None),
        ({"secret": negate(is_defined())}, {"a": 1}, "matched", None),
        ({"secret": negate(is_defined())}, {"secret": 1}, "mismatched", "differs-at:/secret"),
        ({"note": excludes("x")}, {}, "mismatched", "differs-at:/note"),
        ({"rate": equals(math.nan)}, {"rate": math.nan}, "matched", None),
        ("text", "text", "matched", None),
        (1, True, "mismatched", "differs-at:"),
    ],
)
def test_json_match(expected: Any, value: Any, result: str, where: str | None) -> None:
    found = evaluate_now(json_match(expected), value)
    assert (found.result.value, found.reason) == (result, where)


def test_every_nested_matcher_is_evaluated_and_kept() -> None:
    found = evaluate_now(json_match({"a": includes("x"), "b": includes("y")}), {"a": "no", "b": "y"})
    assert [child.result for child in found.children] == [Result.MISMATCHED, Result.MATCHED]


def test_a_broken_nested_matcher_errors_the_whole_even_when_something_else_differs() -> None:
    match = json_match({"a": 1, "b": satisfies("breaks", lambda value: 1 // value == 1)})
    found = evaluate_now(match, {"a": 2, "b": 0})
    assert (found.result, found.reason) == (Result.ERRORED, "evaluator-error:ZeroDivisionError")


def test_the_criterion_shows_nested_matchers() -> None:
    described = json_match({"a": includes("x"), "b": [1]}).describe()
    assert described == {
        "match": "json_match",
        "pattern": {"a": {"$match": includes("x").describe()}, "b": [1]},
    }


def test_a_later_change_to_the_pattern_changes_nothing() -> None:
    expected = {"a": [1]}
    match = json_match(expected)
    expected["a"].append(2)
    assert evaluate_now(match, {"a": [1]}).holds


@pytest.mark.parametrize("expected", [math.nan, {"a": math.inf}, {1: "a"}, {"a": {1, 2}}, [object()], b"x"])
def test_a_pattern_is_finite_json(expected: Any) -> None:
    with pytest.raises(AuthoringError, match="json_match"):
        json_match(expected)


def test_a_plain_value_stands_for_its_json_match() -> None:
    assert evaluate_now(as_match({"a": 1}, "input"), {"a": 1, "b": 2}).holds
    match = includes("x")
    assert as_match(match, "input") is match
