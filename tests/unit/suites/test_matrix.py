"""Which cases a suite has, and in which order; what a selection means."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from evalfleet.errors import DefinitionError
from evalfleet.model.suite import Suite
from evalfleet.suites.matrix import SuiteSelection, case_id, combination_count, combinations, expand, select, turn_id
from evalfleet.suites.parse import parse_suite
from tests.unit.suites.documents import scenario, step, suite


def parsed(*scenarios: dict[str, Any]) -> Suite:
    return parse_suite(suite(*scenarios))


SHOP = parsed(
    scenario("browse", step("look", variants=["short", "long"]), tags=["smoke", "read"]),
    scenario("checkout", step("pay", variants=["card", "cash"]), step("ship", variants=["a", "b"]), tags=["smoke"]),
    scenario("return", step("ask"), tags=["slow"]),
)


def test_later_steps_vary_faster_and_repetitions_fastest() -> None:
    (_, checkout, _) = SHOP.scenarios
    cases = expand([checkout], 2, 100)
    assert [(case.variants["pay"], case.variants["ship"], case.repetition) for case in cases] == [
        ("card", "a", 0), ("card", "a", 1), ("card", "b", 0), ("card", "b", 1),
        ("cash", "a", 0), ("cash", "a", 1), ("cash", "b", 0), ("cash", "b", 1),
    ]  # fmt: skip
    assert [variants for variants in combinations(checkout)] == [case.variants for case in cases[::2]]
    assert combination_count(checkout) == 4


def test_a_variant_replaces_the_whole_input_and_the_baseline_is_no_case_of_its_own() -> None:
    talk = scenario("talk", step("ask") | {"input": {"text": "base", "more": 1}}, step("say", variants=["v"]))
    (case,) = expand(parsed(talk).scenarios, 1, 10)
    assert [dict(each.input) for each in case.steps] == [{"text": "base", "more": 1}, {"text": "v"}]
    assert case.variants == {"say": "v"} and not any(each.variants for each in case.steps)


def test_cases_stand_in_the_order_of_the_suite() -> None:
    cases = expand(SHOP.scenarios, 1, 100)
    ids = [case.scenario.id for case in cases]
    assert ids == ["browse"] * 2 + ["checkout"] * 4 + ["return"]


def test_a_case_is_named_by_what_it_is() -> None:
    assert case_id("a", {"s": "v", "t": "w"}, 1) == case_id("a", {"t": "w", "s": "v"}, 1)
    different = {case_id("a", {}, 0), case_id("a", {}, 1), case_id("b", {}, 0), case_id("a", {"s": "v"}, 0)}
    assert len(different) == 4
    canonical = b'{"repetition":0,"scenarioId":"talk","variants":{"ask":"short"}}'
    assert case_id("talk", {"ask": "short"}, 0) == hashlib.sha256(canonical).hexdigest()


@pytest.mark.parametrize(
    ("selection", "kept"),
    [
        (SuiteSelection(), ["browse", "checkout", "return"]),
        (SuiteSelection(scenario_ids=["return", "browse"]), ["browse", "return"]),
        (SuiteSelection(tags=["smoke"]), ["browse", "checkout"]),
        (SuiteSelection(tags=["read", "slow"]), ["browse", "return"]),
        (SuiteSelection(tags=["smoke"], exclude_tags=["read"]), ["checkout"]),
        (SuiteSelection(scenario_ids=["browse", "return"], tags=["smoke"]), ["browse"]),
        (SuiteSelection(exclude_tags=["smoke"]), ["return"]),
        (SuiteSelection(variants={"pay": ["card"]}), ["browse", "checkout", "return"]),
        (SuiteSelection(variants={"pay": []}), ["browse", "return"]),
    ],
)
def test_what_a_selection_keeps(selection: SuiteSelection, kept: list[str]) -> None:
    assert [each.id for each in select(SHOP, selection).scenarios] == kept


def test_a_selection_of_variants_leaves_the_others_out() -> None:
    kept = select(SHOP, SuiteSelection(scenario_ids=["checkout"], variants={"pay": ["cash"]})).scenarios
    assert list(combinations(kept[0])) == [{"pay": "cash", "ship": "a"}, {"pay": "cash", "ship": "b"}]


@pytest.mark.parametrize(
    ("selection", "code", "hint"),
    [
        (SuiteSelection(scenario_ids=["chekout"]), "EVALUATION_SCENARIO_NOT_FOUND", "did you mean 'checkout'?"),
        (SuiteSelection(variants={"pya": ["card"]}), "EVALUATION_VARIANT_NOT_FOUND", "did you mean 'pay'?"),
        (SuiteSelection(variants={"ask": ["card"]}), "EVALUATION_VARIANT_NOT_FOUND", None),
        (SuiteSelection(variants={"pay": ["crad"]}), "EVALUATION_VARIANT_NOT_FOUND", "did you mean 'card'?"),
        (SuiteSelection(tags=["smoke"], scenario_ids=["return"]), "EVALUATION_SELECTION_EMPTY", None),
        (SuiteSelection(tags=["smok"]), "EVALUATION_SELECTION_EMPTY", None),
    ],
)
def test_what_a_selection_can_not_mean(selection: SuiteSelection, code: str, hint: str | None) -> None:
    with pytest.raises(DefinitionError) as raised:
        select(SHOP, selection)
    assert [(problem.code, problem.hint) for problem in raised.value.problems] == [(code, hint)]


@pytest.mark.parametrize("selection", [SuiteSelection(scenario_ids=[]), SuiteSelection(tags=[])])
def test_30_an_empty_list_selects_nothing(selection: SuiteSelection) -> None:
    with pytest.raises(DefinitionError, match="EVALUATION_SELECTION_EMPTY"):
        select(SHOP, selection)


def test_edge_7_an_unknown_tag_is_a_warning() -> None:
    warnings = select(SHOP, SuiteSelection(tags=["smoke", "smokee"], exclude_tags=["never"])).warnings
    assert [(problem.code, problem.hint) for problem in warnings] == [
        ("UNKNOWN_TAG", "did you mean 'smoke'?"),
        ("UNKNOWN_TAG", None),
    ]


def test_15_variants_and_repetitions_in_order_with_distinct_cases_and_a_limit() -> None:
    talk = parsed(scenario("talk", step("ask", variants=["short", "long"]))).scenarios
    cases = expand(talk, 2, 4)
    assert [case.steps[0].input["text"] for case in cases] == ["short", "short", "long", "long"]
    assert len({case.id for case in cases}) == 4
    with pytest.raises(DefinitionError, match="EVALUATION_CASE_LIMIT"):
        expand(talk, 2, 3)


def test_a_bomb_is_refused_before_it_is_built() -> None:
    names = [f"v{number}" for number in range(100)]
    steps = [step(f"s{number}", variants=names) for number in range(40)]
    with pytest.raises(DefinitionError) as raised:
        expand(parsed(scenario("bomb", *steps), scenario("small")).scenarios, 3, 1000)
    (problem,) = raised.value.problems
    factors = " × ".join(["100"] * 6)
    assert problem.message == f"more than 1000 cases: bomb {factors} × …, small 1, each 3 times"


def test_25_a_turn_is_named_within_its_bounds_however_long_its_step_s_id_is() -> None:
    name = turn_id("run:" + "c" * 64, "s" * 160)
    assert name.startswith("eval.") and len(name) == 69
    assert name == turn_id("run:" + "c" * 64, "s" * 160) != turn_id("run:" + "c" * 64, "s" * 159)
