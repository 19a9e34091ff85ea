"""Structured data that a send asked for: held against it once, and by its type for the author."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
from pydantic import BaseModel

from evalfleet.assertions.matchers import json_match
from evalfleet.assertions.schema_match import matches
from evalfleet.model.coverage import COMPLETE_COVERAGE, Channel, partial
from evalfleet.model.events import MISSING
from evalfleet.model.turn import Turn
from evalfleet.model.usage import Usage
from evalfleet.model.verdict import Outcome, Verdict
from evalfleet.testing.fakes import FakeAdapter


class Person(BaseModel):
    name: str
    age: int


NOTHING = Usage(input_tokens=0, output_tokens=0)
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
ADA = {"name": "Ada", "age": 36}


async def test_what_fits_is_the_model_for_the_author_and_json_for_matchers(attempt: Any) -> None:
    seen: list[Any] = []

    async def body(t: Any) -> None:
        turn = await t.send("who", output=Person)
        seen.extend([turn.data.value, turn.data.value, turn.data["age"]])
        t.check(turn.data, json_match({"age": 36}))
        t.check(turn.data["name"], json_match("Ada"))
        turn.output_equals(ADA)
        turn.output_matches(matches(Person))

    evidence = await attempt(body, [Turn(data=ADA, usage=NOTHING)])
    assert seen == [Person(name="Ada", age=36), Person(name="Ada", age=36), 36]
    assert [(row.name, row.scope, row.holds) for row in evidence.assertions] == [
        ("output", "turn/0/0", True),
        ("check", "value", True),
        ("check", "value", True),
        ("output_equals", "value", True),
        ("output_matches", "value", True),
    ]
    assert evidence.turns[0].input.output_schema == Person.model_json_schema()
    assert evidence.diagnostics == ()


async def test_a_plain_body_gets_the_same(attempt: Any) -> None:
    seen: list[Any] = []

    def body(t: Any) -> None:
        seen.append(t.send("who", output=Person).data.value)

    evidence = await attempt(body, [Turn(data=ADA, usage=NOTHING)])
    assert (seen, evidence.summary.verdict) == ([Person(name="Ada", age=36)], Verdict.PASSED)


@pytest.mark.parametrize(
    ("output", "data", "reason"),
    [
        (Person, {"name": "Ada", "age": "36"}, "schema:/age int_type"),
        (Person, {"name": "Ada"}, "schema:/age missing"),
        (Person, "Ada", "schema:/ model_type"),
        (Person, MISSING, "wrong-type:missing"),
        (SCHEMA, {"age": "36"}, "schema:/age type"),
        (SCHEMA, {}, "schema:/ required"),
    ],
)
async def test_what_does_not_fit_fails_the_attempt_where_it_is_read(
    attempt: Any, output: Any, data: Any, reason: str
) -> None:
    seen: list[Any] = []

    async def body(t: Any) -> None:
        turn = await t.send("who", output=output)
        turn.succeeded()
        seen.append(turn.data.value)

    evidence = await attempt(body, [Turn(data=data, usage=NOTHING)])
    assert (evidence.summary.outcome, evidence.summary.verdict) == (Outcome.COMPLETED, Verdict.FAILED)
    assert [(row.name, row.outcome.result.value) for row in evidence.assertions] == [
        ("succeeded", "matched"),
        ("output", "mismatched"),
    ]
    assert evidence.assertions[1].outcome.reason == reason
    file, line = str(evidence.assertions[1].source).split(":")
    assert (file, linecache.getline(__file__, int(line)).strip()) == (
        "test_structured.py",
        "seen.append(turn.data.value)",
    )
    assert seen == []
    assert evidence.diagnostics[0] == f"turn 0: the data is not what was asked for: {reason}"


async def test_what_does_not_fit_is_only_noted_when_nobody_reads_it(attempt: Any) -> None:
    async def body(t: Any) -> None:
        (await t.send("who", output=Person)).succeeded()

    evidence = await attempt(body, [Turn(data={"age": 1}, usage=NOTHING)])
    assert evidence.summary.verdict is Verdict.PASSED
    assert evidence.diagnostics == ("turn 0: the data is not what was asked for: schema:/name missing",)


async def test_a_misfit_of_data_that_may_be_incomplete_proves_nothing(attempt: Any) -> None:
    seen: list[Any] = []

    async def body(t: Any) -> None:
        seen.append((await t.send("who", output=Person)).data.value)

    lossy = COMPLETE_COVERAGE.downgrade({Channel.DATA: partial("cut off")})
    evidence = await attempt(body, FakeAdapter([Turn(data={"name": "Ada"}, usage=NOTHING)], coverage=lossy))
    assert (evidence.summary.verdict, evidence.summary.code) == (Verdict.ERRORED, "ASSERTION_UNAVAILABLE")
    assert evidence.assertions[0].outcome.reason == "coverage:data=partial (cut off)"


async def test_an_answer_by_a_json_schema_stays_json(attempt: Any) -> None:
    seen: list[Any] = []

    async def body(t: Any) -> None:
        seen.append((await t.send("who", output=SCHEMA)).data.value)

    await attempt(body, [Turn(data=ADA, usage=NOTHING)])
    assert seen == [ADA]


@pytest.mark.parametrize(
    ("output", "code", "says"),
    [
        (int, "INVALID_SEND", "output takes a pydantic model or a JSON Schema, not <class 'int'>"),
        ({"type": "nonsense"}, "AUTHORING_ERROR", "not a JSON Schema at /type"),
    ],
)
async def test_what_is_no_schema_is_refused_before_anything_is_sent(
    attempt: Any, output: Any, code: str, says: str
) -> None:
    async def body(t: Any) -> None:
        await t.send("who", output=output)

    evidence = await attempt(body)
    assert (evidence.summary.code, evidence.turns) == (code, ())
    assert says in evidence.summary.message
