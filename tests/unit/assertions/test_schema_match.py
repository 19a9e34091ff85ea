"""`matches`: pydantic types and JSON Schemas."""

from __future__ import annotations

import datetime
import pickle
import time
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from evalfleet.assertions.match import evaluate_now
from evalfleet.assertions.schema_match import matches
from evalfleet.errors import AuthoringError
from evalfleet.model.assertion import Result
from evalfleet.model.events import MISSING


class Trip(BaseModel):
    city: str
    days: int
    on: datetime.date | None = None


class Picky(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def check(cls, value: int) -> int:
        return 10 // value


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "pattern": "^[A-Z]"}, "days": {"type": "integer"}},
    "required": ["city"],
}


@pytest.mark.parametrize(
    ("schema", "value", "result", "reason"),
    [
        (Trip, {"city": "Rome", "days": 2}, "matched", None),
        (Trip, {"city": "Rome", "days": 2, "on": "2026-01-02"}, "matched", None),
        (Trip, Trip(city="Rome", days=2), "matched", None),
        (Trip, {"city": "Rome", "days": "2"}, "mismatched", "schema:/days int_type"),
        (Trip, {"city": "Rome", "days": True}, "mismatched", "schema:/days int_type"),
        (Trip, {}, "mismatched", "schema:/city missing, /days missing"),
        (Trip, "Rome", "mismatched", "schema:/ model_type"),
        (Trip, MISSING, "mismatched", "wrong-type:missing"),
        (Trip, object(), "mismatched", "wrong-type:object"),
        (list[int], [1, 2], "matched", None),
        (list[int], [1, "2"], "mismatched", "schema:/1 int_type"),
        (SCHEMA, {"city": "Rome", "days": 2}, "matched", None),
        (SCHEMA, {"city": "Rome", "days": True}, "mismatched", "schema:/days type"),
        (SCHEMA, {"city": "rome"}, "mismatched", "schema:/city pattern"),
        (SCHEMA, {}, "mismatched", "schema:/ required"),
        (SCHEMA, MISSING, "mismatched", "wrong-type:missing"),
        ({"const": True}, 1, "mismatched", "schema:/ const"),
        ({"enum": [9007199254740993]}, 9007199254740992, "mismatched", "schema:/ enum"),
        ({"type": "array"}, (1, 2), "matched", None),
        (True, "anything", "matched", None),
    ],
)
def test_matches(schema: Any, value: Any, result: str, reason: str | None) -> None:
    found = evaluate_now(matches(schema), value)
    assert (found.result.value, found.reason) == (result, reason)


def test_a_validator_that_breaks_is_an_evaluator_error() -> None:
    found = evaluate_now(matches(Picky), {"n": 0})
    assert (found.result, found.reason) == (Result.ERRORED, "evaluator-error:ZeroDivisionError")


def test_a_reference_to_elsewhere_is_not_loaded() -> None:
    found = evaluate_now(matches({"$ref": "https://example.org/schema.json"}), {})
    assert found.result is Result.ERRORED


def test_patterns_of_a_schema_run_in_linear_time() -> None:
    started = time.perf_counter()
    assert not evaluate_now(matches({"pattern": "^(a+)+$"}), "a" * 30_000 + "b").holds
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "strnig"}, "not a JSON Schema at /type"),
        ({"properties": {"a": {"pattern": "(?=x)"}}}, "linear-time engine"),
        (7, "not int"),
    ],
)
def test_what_is_no_schema_is_refused(schema: Any, message: str) -> None:
    with pytest.raises(AuthoringError, match=message):
        matches(schema)


def test_a_literal_that_looks_like_a_pattern_is_none() -> None:
    assert evaluate_now(matches({"const": {"pattern": "(?=x)"}}), {"pattern": "(?=x)"}).holds


def test_a_schema_survives_pickling_and_later_changes() -> None:
    schema = {"required": ["a"]}
    match = matches(schema)
    schema["required"].append("b")
    for again in (match, pickle.loads(pickle.dumps(match))):
        assert evaluate_now(again, {"a": 1}).holds
        assert again.describe() == {"match": "matches", "schema": {"required": ["a"]}}


def test_the_criterion_names_the_type() -> None:
    assert matches(Trip).describe() == {"match": "matches", "type": "Trip"}
    assert matches(list[int]).describe() == {"match": "matches", "type": "list[int]"}
