"""What of the suites an experiment means, and names that nothing bears."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from evalfleet.model.definition import EvalDefinition
from evalfleet.model.experiment import Selection
from evalfleet.model.suite import DeclaredScenario
from evalfleet.planning.expand import ArmIdentity, expand
from evalfleet.planning.select import Narrowing, Selector
from evalfleet.planning.selected import scan
from evalfleet.planning.suite_selection import select_scenarios
from evalfleet.suites.matrix import combinations
from evalfleet.suites.parse import parse_suite

VARIANTS = [{"id": name, "input": {"text": name}} for name in ("short", "long")]


def scenario(identifier: str, *steps: Mapping[str, Any]) -> dict[str, Any]:
    named = [{"id": f"step{at}", "input": {}, **step} for at, step in enumerate(steps)]
    return {"id": identifier, "name": identifier, "writePolicy": "read_only", "steps": named}


SCENARIOS = [scenario("buy", {"variants": VARIANTS}, {"variants": VARIANTS}), scenario("pay", {}), scenario("ask", {})]
SUITE = parse_suite({"schemaVersion": 1, "id": "shop", "name": "Shop", "scenarios": SCENARIOS})
EVALS = [
    EvalDefinition(id=f"shop/{each.id}", body=DeclaredScenario(suite=SUITE, scenario=each)) for each in SUITE.scenarios
]
WRITTEN = EvalDefinition(id="written", body=print)


def chosen(**selection: Any) -> list[tuple[str, int]]:
    kept, problems = select_scenarios([*EVALS, WRITTEN], Selection.model_validate_json(json.dumps(selection)))
    assert not problems
    found: list[tuple[str, int]] = []
    for each in kept:
        body = each.body
        found.append((each.id, len(list(combinations(body.scenario))) if isinstance(body, DeclaredScenario) else 0))
    return found


@pytest.mark.parametrize(
    ("selection", "kept"),
    [
        ({}, [("shop/buy", 4), ("shop/pay", 1), ("shop/ask", 1), ("written", 0)]),
        ({"scenario_ids": ["ask", "buy"]}, [("shop/buy", 4), ("shop/ask", 1)]),
        ({"variants": {"step0": ["long"]}}, [("shop/buy", 2), ("shop/pay", 1), ("shop/ask", 1), ("written", 0)]),
        ({"variants": {"step0": ["long"], "step1": []}}, [("shop/pay", 1), ("shop/ask", 1), ("written", 0)]),
        ({"scenario_ids": ["buy"], "variants": {"step0": ["long"], "step1": ["short"]}}, [("shop/buy", 1)]),
    ],
)
def test_what_stays(selection: Mapping[str, Any], kept: list[tuple[str, int]]) -> None:
    assert chosen(**selection) == kept


def planned(seed: int, definitions: Sequence[EvalDefinition] = EVALS) -> list[tuple[str, tuple[str, ...], int]]:
    """The cases of two repetitions in planned order: scenario, variants, repetition."""
    selector = Selector(Selection(seed=seed), Narrowing())
    found = scan(definitions, selector, Path(), allow_empty=False, kept_bytes=1 << 20).evals
    cases = expand([ArmIdentity("mine", None)], found, 2)
    return [(case.eval_id, tuple(case.variants.values()), case.repetition) for case in cases]


def test_the_seed_orders_the_cases_of_a_suite_and_not_its_document() -> None:
    """So that a limit, of evals or of failures, leaves a part that nobody chose."""
    first = planned(7)
    assert len(first) == 12 and first != planned(8) and sorted(first) == sorted(planned(8))
    assert [(*case, 1) for *case, repetition in first if repetition == 0] == first[6:], "one repetition after the other"
    assert planned(7, EVALS[::-1]) == first


@pytest.mark.parametrize(
    ("selection", "code", "field", "hint"),
    [
        ({"scenario_ids": ["buy", "buyy"]}, "EVALUATION_SCENARIO_NOT_FOUND", "evals.scenario_ids.1", "'buy'"),
        ({"variants": {"step2": ["long"]}}, "EVALUATION_VARIANT_NOT_FOUND", "evals.variants.step2", "'step"),
        (
            {"variants": {"step1": ["short", "lonk"]}},
            "EVALUATION_VARIANT_NOT_FOUND",
            "evals.variants.step1.1",
            "'long'",
        ),
    ],
)
def test_30_what_can_not_be_meant_is_told_with_its_field_and_the_nearest_name(
    selection: Mapping[str, Any], code: str, field: str, hint: str
) -> None:
    _, (problem,) = select_scenarios(EVALS, Selection.model_validate_json(json.dumps(selection)))
    assert (problem.code, problem.field) == (code, field)
    assert hint in (problem.hint or "")
