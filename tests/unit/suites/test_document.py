"""A suite's document: bounds, forms and names, and everything wrong with it told together, at its place."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.errors import DefinitionError
from evalfleet.model.canonical import canonical_bytes, digest
from evalfleet.model.suite import CheckAssertion, JudgedAssertion, Severity
from evalfleet.suites.bounded_json import MAX_DEPTH, MAX_VALUES, BoundsExceeded, NotJson, detached
from evalfleet.suites.frozen_json import FrozenList
from evalfleet.suites.parse import parse_suite
from evalfleet.suites.schema import suite_schema
from tests.unit.suites.documents import check, custom, either, every, negated, problems, scenario, step, suite

REPO = Path(__file__).parents[3]

JUDGED = {"id": "j", "kind": "judge", "recipe": "rubric", "criterion": "Polite.", "path": ["reply"], "minimum": 0.5}

FIELDS: list[tuple[str, dict[str, Any], str]] = [
    # what is wrong, document, its field
    ("an unknown key of the suite", suite(extra=1), "extra"),
    ("an id with a space", suite(id="a b"), "id"),
    ("an id of 161 characters", suite(id="a" * 161), "id"),
    ("an id that starts with a dot", suite(id=".a"), "id"),
    ("no name", suite(name="  "), "name"),
    ("a name of 501 characters", suite(name="a" * 501), "name"),
    ("metadata that are no object", suite(metadata=[]), "metadata"),
    ("no scenarios", suite() | {"scenarios": []}, "scenarios"),
    ("201 criteria", suite(assertions=[check(id=f"c{n}") for n in range(201)]), "assertions"),
    ("no write policy", suite({"id": "a", "name": "A", "steps": [step()]}), "scenarios.0.writePolicy"),
    ("another write policy", suite(scenario(writePolicy="readonly")), "scenarios.0.writePolicy"),
    ("an empty reason to skip", suite(scenario(skipReason=" ")), "scenarios.0.skipReason"),
    ("a description that is null", suite(scenario(description=None)), "scenarios.0.description"),
    ("a description of 5001 characters", suite(scenario(description="a" * 5001)), "scenarios.0.description"),
    ("an empty tag", suite(scenario(tags=["a", ""])), "scenarios.0.tags.1"),
    ("101 tags", suite(scenario(tags=["a"] * 101)), "scenarios.0.tags"),
    ("no steps", suite(scenario(steps=[])), "scenarios.0.steps"),
    ("an input that is no object", suite(scenario("a", step(input="hi"))), "scenarios.0.steps.0.input"),
    ("an empty list of variants", suite(scenario("a", step() | {"variants": []})), "scenarios.0.steps.0.variants"),
    (
        "a variant without an input",
        suite(scenario("a", step() | {"variants": [{"id": "v"}]})),
        "scenarios.0.steps.0.variants.0.input",
    ),
    ("a label that is no text", suite(assertions=[check(label=3)]), "assertions.0.label"),
    ("a path of 41 segments", suite(assertions=[check(path=["a"] * 41)]), "assertions.0.path"),
    ("a segment of 241 characters", suite(assertions=[check(path=["a" * 241])]), "assertions.0.path.0"),
    ("a segment below 0", suite(assertions=[check(path=["a", -1])]), "assertions.0.path.1"),
    ("a segment that is True", suite(assertions=[check(path=[True])]), "assertions.0.path.0"),
    ("a composite without children", suite(assertions=[every()]), "assertions.0.assertions"),
    (
        "a composite of 101",
        suite(assertions=[either(*(check(id=f"c{n}") for n in range(101)))]),
        "assertions.0.assertions",
    ),
    ("an operator below two composites", suite(assertions=[negated(every(check("equal", value=1)))]),
     "assertions.0.assertion.assertions.0.operator"),
    ("a name of an evaluator with a space", suite(assertions=[custom("a b")]), "assertions.0.evaluator"),
    ("a criterion without a kind", suite(assertions=[{"id": "a"}]), "assertions.0.kind"),
    ("an unknown kind", suite(assertions=[{"id": "a", "kind": "chek"}]), "assertions.0.kind"),
]  # fmt: skip

REPEATED: list[tuple[str, dict[str, Any], str]] = [
    ("scenarios", suite(scenario(), scenario()), "scenarios.1.id"),
    ("the suite's criteria", suite(assertions=[check(), check()]), "assertions.1.id"),
    ("steps", suite(scenario("a", step("s"), step("s"))), "scenarios.0.steps.1.id"),
    ("a scenario's criteria", suite(scenario(assertions=[check(), check()])), "scenarios.0.assertions.1.id"),
    ("variants", suite(scenario("a", step(variants=["v", "v"]))), "scenarios.0.steps.0.variants.1.id"),
    (
        "a step's criteria",
        suite(scenario("a", step(assertions=[check(), check()]))),
        "scenarios.0.steps.0.assertions.1.id",
    ),
    ("children", suite(assertions=[every(check(), check())]), "assertions.0.assertions.1.id"),
    ("deeper children", suite(assertions=[negated(every(check(), check()))]), "assertions.0.assertion.assertions.1.id"),
]

OF_VERSION_2 = [
    ("gt", check("gt", value=1), "operator"),
    ("lt", check("lt", value=1), "operator"),
    ("not_equals", check("not_equals", value=1), "operator"),
    ("one_of", check("one_of", value=[1]), "operator"),
    ("set_equals", check("set_equals", value=[1]), "operator"),
    ("matches_regex", check("matches_regex", value="a"), "operator"),
    ("count", check("count", value={"of": 1, "gte": 1}), "operator"),
    ("judge", JUDGED, "kind"),
    ("severity", check(severity="advisory"), "severity"),
]


@pytest.mark.parametrize(("document", "field"), [row[1:] for row in FIELDS], ids=[row[0] for row in FIELDS])
def test_a_wrong_form_is_told_at_its_field(document: dict[str, Any], field: str) -> None:
    assert [(problem.code, problem.field) for problem in problems(document)] == [("EVALUATION_SUITE_INVALID", field)]


@pytest.mark.parametrize(("document", "field"), [row[1:] for row in REPEATED], ids=[row[0] for row in REPEATED])
def test_an_id_that_stands_twice_among_its_siblings(document: dict[str, Any], field: str) -> None:
    (problem,) = problems(document)
    assert (problem.field, problem.message.split(" [")[0]) == (field, "stands twice among its siblings")


def test_an_id_may_stand_again_in_another_list() -> None:
    same = [check(id="same"), every(check(id="same"), id="other")]
    assert problems(suite(scenario("a", step("same", assertions=same), assertions=same), assertions=same)) == []


@pytest.mark.parametrize(("document", "key"), [row[1:] for row in OF_VERSION_2], ids=[row[0] for row in OF_VERSION_2])
def test_version_1_refuses_what_version_2_adds_and_names_it(document: dict[str, Any], key: str) -> None:
    (problem,) = problems(suite(assertions=[document]))
    assert (problem.field, problem.hint) == (f"assertions.0.{key}", "schemaVersion: 2 has it")
    assert problems(suite(assertions=[document], version=2)) == []


@pytest.mark.parametrize("version", [True, 1.0, "1", 3, None, 0])
def test_a_version_is_1_or_2(version: Any) -> None:
    assert [problem.field for problem in problems(suite() | {"schemaVersion": version})] == ["schemaVersion"]


def test_a_document_that_is_no_object() -> None:
    assert [problem.message for problem in problems([])] == ["must be an object"]


def test_everything_wrong_is_told_together_by_one_dialect_and_without_a_value() -> None:
    pay = step("pay", assertions=[check("equal", id="total", value="SECRET-1"), check(id="total")])
    document = suite(scenario("checkout", pay, writePolicy="SECRET-2"), scenario("checkout"), setps="SECRET-3")
    found = problems(document)
    assert [(problem.field, problem.message.partition(" [")[2], problem.hint) for problem in found] == [
        ("scenarios.0.writePolicy", "scenario checkout]", None),
        (
            "scenarios.0.steps.0.assertions.0.operator",
            "scenario checkout, step pay, assertion total]",
            "did you mean 'equals'?",
        ),
        ("setps", "", None),
        ("scenarios.1.id", "scenario checkout]", None),
        ("scenarios.0.steps.0.assertions.1.id", "scenario checkout, step pay, assertion total]", None),
    ]
    assert "SECRET" not in "\n".join(map(str, found))


def test_the_nearest_key_is_named() -> None:
    (problem,) = problems(suite(assertions=[check(lable="x")]))
    assert (problem.field, problem.hint) == ("assertions.0.lable", "did you mean 'label'?")


def test_severity_belongs_to_criteria_of_a_list() -> None:
    document = suite(assertions=[every(check(severity="advisory")), check(severity="advisory")], version=2)
    assert [problem.field for problem in problems(document)] == ["assertions.0.assertions.0.severity"]


def test_a_suite_is_detached_and_normalised() -> None:
    document = suite(scenario("a", step(assertions=[check("equals", value={"x": [1]})])), name="  Shop  ", version=2)
    before = copy.deepcopy(document)
    parsed = parse_suite(document)
    document["scenarios"][0]["steps"][0]["input"]["text"] = "changed"
    document["scenarios"][0]["steps"][0]["assertions"][0]["value"]["x"].append(2)
    assert parsed.scenarios[0].steps[0].input == {"text": "ask"}
    assert parsed.document == before | {"name": "Shop"}
    assert parsed.scenarios[0].document == before["scenarios"][0]
    assert parse_suite(parsed.document) == parsed


def test_what_version_2_says_is_kept() -> None:
    parsed = parse_suite(
        suite(assertions=[JUDGED, check("approx", value=1, tolerance=0.5, severity="advisory")], version=2)
    )
    judged, approximate = parsed.assertions
    assert isinstance(judged, JudgedAssertion) and isinstance(approximate, CheckAssertion)
    assert (judged.recipe, judged.criterion, judged.path, judged.minimum) == ("rubric", "Polite.", ("reply",), 0.5)
    assert (approximate.tolerance, approximate.severity) == (0.5, Severity.ADVISORY)


# --- bounds ----------------------------------------------------------------------------------------------------


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def empty_below(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = [value]
    return value


def test_depth_and_number_of_values_are_bounded() -> None:
    assert detached(empty_below(MAX_DEPTH)) == empty_below(MAX_DEPTH)
    assert detached(nested(MAX_DEPTH + 1)) == nested(MAX_DEPTH + 1)
    assert len(detached([0] * (MAX_VALUES - 1))) == MAX_VALUES - 1
    for value in (nested(MAX_DEPTH + 2), empty_below(MAX_DEPTH + 1), [0] * MAX_VALUES, nested(100_000)):
        with pytest.raises(BoundsExceeded) as raised:
            detached(value, own=True)
        assert raised.value.code == "EVALUATION_DATA_LIMIT"


def test_what_nobody_else_holds_is_not_copied_unless_something_of_it_has_to_become_json() -> None:
    own: dict[str, Any] = {"a": [1, "x", None, 2.5, True, {}]}
    assert detached(own, own=True) is own and detached(own) is not own
    for odd in ({"a": (1,)}, {"a": MappingProxyType({"b": 1})}, {"a": FrozenList([1])}):
        assert detached(odd, own=True) is not odd
        assert detached(odd, own=True) == json.loads(json.dumps(detached(odd)))
    with pytest.raises(NotJson):
        detached({"a": {1: 2}}, own=True)


def test_a_bound_of_a_suite_is_told_with_its_place() -> None:
    deep = suite(metadata={"deep": nested(200)})
    (problem,) = problems(deep)
    assert problem.code == "EVALUATION_DATA_LIMIT" and str(problem.field).startswith("metadata.deep.0")


def test_what_stands_twice_is_no_cycle() -> None:
    shared = {"a": [1]}
    copied = detached([shared, shared])
    copied[0]["a"].append(2)
    assert copied[1] == shared == {"a": [1]}


@pytest.mark.parametrize(
    "value",
    [{1}, b"x", {1: 2}, object(), float("nan"), float("inf")],
    ids=["set", "bytes", "key", "object", "nan", "inf"],
)
def test_what_json_has_no_word_for(value: Any) -> None:
    with pytest.raises(NotJson) as raised:
        detached({"at": [value]})
    assert raised.value.path == ("at", 0)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_a_copy_is_equal_and_shares_nothing_that_changes(value: Any) -> None:
    copied = detached(value)
    assert canonical_bytes(copied) == canonical_bytes(value)
    stack = [(value, copied)]
    while stack:
        one, other = stack.pop()
        assert type(one) is type(other)
        if isinstance(one, dict | list):
            assert one is not other
            stack.extend((one[key], other[key]) for key in (one if isinstance(one, dict) else range(len(one))))


@given(st.dictionaries(st.text(max_size=4), json_values, min_size=2, max_size=5), st.randoms())
def test_a_digest_does_not_depend_on_the_order_of_keys(value: dict[str, Any], random: Any) -> None:
    keys = list(value)
    random.shuffle(keys)
    assert digest({key: value[key] for key in keys}) == digest(value)


# --- the published schema --------------------------------------------------------------------------------------


def test_the_published_schema_is_the_generated_one() -> None:
    published = (REPO / "docs" / "suite.schema.json").read_text(encoding="utf-8")
    assert published == json.dumps(suite_schema(), indent=2) + "\n"


def test_the_schema_accepts_what_loads_and_tells_versions_apart() -> None:
    validator = jsonschema.Draft202012Validator(suite_schema())
    advisory = [check(severity="advisory"), every(check()), negated(custom("e")), JUDGED]
    assert list(validator.iter_errors(suite(assertions=advisory, version=2))) == []
    assert list(validator.iter_errors(suite(assertions=[check(), either(check())]))) == []
    for broken in (suite(assertions=advisory), suite(extra=1), suite(scenario(description=None))):
        assert list(validator.iter_errors(broken))


def test_a_refusal_is_one_error() -> None:
    with pytest.raises(DefinitionError) as raised:
        parse_suite(suite(extra=1, other=2))
    assert (raised.value.code, len(raised.value.problems)) == ("EVALUATION_SUITE_INVALID", 2)
