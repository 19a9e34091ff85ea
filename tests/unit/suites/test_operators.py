"""Each operator of a check, by its table: what holds, what does not, and what its value may be."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from evalfleet.errors import DefinitionError
from evalfleet.model.events import MISSING
from evalfleet.suites.operators import OPERATORS
from evalfleet.suites.parse import parse_assertions
from evalfleet.suites.schema import Operator1, Operator2
from tests.unit.suites.documents import check, criteria, judged_alone

HOLDS: list[tuple[str, Any, Any]] = [
    # operator, value, what stands at the path
    ("exists", MISSING, 1),
    ("exists", MISSING, None),
    ("exists", "ignored", 1),
    ("absent", MISSING, MISSING),
    ("equals", None, None),
    ("equals", 1, 1.0),
    ("equals", 2**70, 2**70),
    ("equals", {"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ("equals", [1, 2], [1, 2]),
    ("equals", True, True),
    ("matches", {}, {"a": 1}),
    ("matches", {"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3}),
    ("matches", [{"a": 1}], [{"a": 1, "b": 2}]),
    ("matches", [], []),
    ("matches", None, None),
    ("contains", {"a": 1}, [{"z": 0}, {"a": 1, "b": 2}]),
    ("contains", 2, [1, 2, 3]),
    ("contains", "ell", "hello"),
    ("contains", "", "hello"),
    ("gte", 3, 3),
    ("gte", 3, 3.5),
    ("lte", 3, 3),
    ("lte", 3, -1),
    ("length", 2, [1, 2]),
    ("length", 2, "ab"),
    ("length", 1, "\U0001f600"),
    ("length", 2.0, "ab"),
    ("gt", 3, 3.1),
    ("lt", 3, 2),
    ("not_equals", 1, True),
    ("not_equals", 1, None),
    ("not_equals", [1, 2], [2, 1]),
    ("one_of", [1, "a"], "a"),
    ("one_of", [{"a": 1}], {"a": 1.0}),
    ("set_equals", [1, 2], [2, 1]),
    ("set_equals", [1, 2], [2.0, 1, 2]),
    ("set_equals", [], []),
    ("set_equals", [{"a": [1.0]}], [{"a": [1]}]),
    ("matches_regex", "^he.*o$", "hello"),
    ("matches_regex", "ell", "hello"),
    ("matches_regex", "(?i)HELLO", "hello"),
    ("count", {"of": {"ok": True}, "equals": 2}, [{"ok": True, "n": 1}, {"ok": False}, {"ok": True}]),
    ("count", {"of": 1, "gte": 1}, [1, 1, 1.0]),
    ("count", {"of": 1, "gte": 1, "lte": 2}, [1, 2]),
    ("count", {"of": 1, "lte": 0}, []),
]

FAILS: list[tuple[str, Any, Any]] = [
    ("exists", MISSING, MISSING),
    ("absent", MISSING, None),
    ("absent", MISSING, 1),
    ("equals", None, MISSING),
    ("equals", 1, True),
    ("equals", True, 1),
    ("equals", 0, False),
    ("equals", "1", 1),
    ("equals", [1, 2], [2, 1]),
    ("equals", {"a": 1}, {"a": 1, "b": 2}),
    ("matches", {"a": None}, {}),
    ("matches", [], [1]),
    ("matches", [1], [1, 2]),
    ("matches", {"a": 1}, {"a": True}),
    ("matches", {}, []),
    ("matches", {}, MISSING),
    ("contains", "a", {"a": 1}),
    ("contains", 1, [True]),
    ("contains", 1, "1"),
    ("contains", "E", "hello"),
    ("contains", 1, 1),
    ("gte", 3, "4"),
    ("gte", 0, True),
    ("gte", 3, 2.9),
    ("gte", 3, MISSING),
    ("lte", 3, "2"),
    ("lte", 3, False),
    ("lte", 3, 4),
    ("length", 1, {"a": 1}),
    ("length", 0, MISSING),
    ("length", 1, 1),
    ("gt", 3, 3),
    ("gt", 0, True),
    ("lt", 3, 3),
    ("not_equals", 1, 1.0),
    ("not_equals", 1, MISSING),
    ("one_of", [1], True),
    ("one_of", [1], MISSING),
    ("set_equals", [1], [True]),
    ("set_equals", [1, 2], [1]),
    ("set_equals", [1], [1, 2]),
    ("set_equals", ["a"], "a"),
    ("matches_regex", "^ell", "hello"),
    ("matches_regex", "1", 1),
    ("count", {"of": 1, "equals": 2}, [1]),
    ("count", {"of": 1, "lte": 1}, [1, 1]),
    ("count", {"of": 1, "gte": 2}, [1, True]),
    ("count", {"of": 1, "lte": 5}, {"a": 1}),
    ("count", {"of": 1, "lte": 5}, MISSING),
]

REFUSED: list[tuple[str, Any, str]] = [
    # operator, value, what is said of it
    ("equals", MISSING, "is required by this operator"),
    ("gte", "3", "must be a number"),
    ("gte", True, "must be a number"),
    ("lte", None, "must be a number"),
    ("length", -1, "must be a whole number, 0 or more"),
    ("length", 1.5, "must be a whole number, 0 or more"),
    ("length", True, "must be a whole number, 0 or more"),
    ("gt", [], "must be a number"),
    ("one_of", [], "must be a list of at least one value"),
    ("one_of", "ab", "must be a list of at least one value"),
    ("set_equals", {}, "must be a list"),
    ("matches_regex", "(?=a)b", "must be a regular expression of the linear-time engine (RE2)"),
    ("matches_regex", "(", "must be a regular expression of the linear-time engine (RE2)"),
    ("matches_regex", "a" * 1001, "must be a regular expression of at most 1000 characters"),
    ("matches_regex", "", "must be a regular expression of at most 1000 characters"),
    ("matches_regex", 1, "must be a regular expression of at most 1000 characters"),
    ("count", 3, "must be an object of `of`"),
    ("count", {"of": 1}, "must hold `of`, and either `equals` or a bound"),
    ("count", {"gte": 1}, "must hold `of`, and either `equals` or a bound"),
    ("count", {"of": 1, "equals": 1, "gte": 1}, "must hold `of`, and either `equals` or a bound"),
    ("count", {"of": 1, "gt": 1}, "may hold `of`, `equals`, `gte` and `lte`"),
    ("count", {"of": 1, "gte": -1}, "`gte` must be a whole number"),
]


def written(operator: str, value: Any) -> dict[str, Any]:
    return check(operator, ["a"], **({} if value is MISSING else {"value": value}))


@pytest.mark.parametrize(("operator", "value", "actual"), HOLDS)
async def test_what_holds(operator: str, value: Any, actual: Any) -> None:
    outcome = await judged_alone(written(operator, value), {} if actual is MISSING else {"a": actual})
    assert (outcome.passed, outcome.error_code) == (True, None)


@pytest.mark.parametrize(("operator", "value", "actual"), FAILS)
async def test_what_fails(operator: str, value: Any, actual: Any) -> None:
    outcome = await judged_alone(written(operator, value), {} if actual is MISSING else {"a": actual})
    assert (outcome.passed, outcome.error_code) == (False, None)


@pytest.mark.parametrize(("operator", "value", "message"), REFUSED)
def test_what_a_value_may_not_be(operator: str, value: Any, message: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        parse_assertions([written(operator, value)])
    (problem,) = raised.value.problems
    assert problem.message.startswith(message) and problem.field == "0.value"


APPROXIMATE = [(10, 0.5, 10.5, True), (10, 0.5, 10.6, False), (0.3, 0, 0.1 + 0.2, False), (10, 1, "10", False)]


@pytest.mark.parametrize(("value", "tolerance", "actual", "holds"), [*APPROXIMATE, (1, 1, True, False)])
async def test_approx_is_within_its_tolerance(value: float, tolerance: float, actual: Any, holds: bool) -> None:
    outcome = await judged_alone(check("approx", value=value, tolerance=tolerance), {"a": actual})
    assert outcome.passed is holds


@pytest.mark.parametrize(
    "document",
    [check("approx", value=1), check("equals", value=1, tolerance=1), check("approx", value=1, tolerance=-1)],
    ids=["none", "of another operator", "negative"],
)
def test_a_tolerance_belongs_to_approx(document: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError) as raised:
        parse_assertions([document])
    assert [problem.field for problem in raised.value.problems] == ["0.tolerance"]


def test_the_schema_knows_every_operator_and_version_1_the_first_eight() -> None:
    assert set(get_args(Operator2)) == set(OPERATORS)
    assert get_args(Operator2)[:8] == get_args(Operator1)


async def test_the_result_repeats_what_was_asked() -> None:
    outcome = await judged_alone(check("equals", ["a", 0], value=2, label="first"), {"a": [1]})
    said = (outcome.kind, outcome.operator, outcome.path, outcome.actual, outcome.expected, outcome.label)
    assert said == ("check", "equals", ("a", 0), 1, 2, "first")


def test_every_operator_has_a_row_that_holds_and_one_that_fails() -> None:
    assert {row[0] for row in HOLDS} | {"approx"} == {row[0] for row in FAILS} | {"approx"} == set(OPERATORS)
    assert len(criteria(*(written(row[0], row[1]) for row in HOLDS[:1]))) == 1
