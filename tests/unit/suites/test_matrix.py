"""Which cases a scenario has, in which order, and what cases and turns are called."""

from __future__ import annotations

import hashlib
from typing import Any

from evalfleet.model.suite import Suite
from evalfleet.suites.matrix import case_id, combination_count, combinations, turn_id
from evalfleet.suites.parse import parse_suite
from tests.unit.suites.documents import scenario, step, suite


def parsed(*scenarios: dict[str, Any]) -> Suite:
    return parse_suite(suite(*scenarios))


SHOP = parsed(
    scenario("browse", step("look", variants=["short", "long"]), tags=["smoke", "read"]),
    scenario("checkout", step("pay", variants=["card", "cash"]), step("ship", variants=["a", "b"]), tags=["smoke"]),
    scenario("return", step("ask"), tags=["slow"]),
)


def test_15_later_steps_vary_faster() -> None:
    (_, checkout, talk) = SHOP.scenarios
    assert list(combinations(checkout)) == [
        {"pay": "card", "ship": "a"}, {"pay": "card", "ship": "b"},
        {"pay": "cash", "ship": "a"}, {"pay": "cash", "ship": "b"},
    ]  # fmt: skip
    assert (combination_count(checkout), combination_count(talk), list(combinations(talk))) == (4, 1, [{}])


def test_a_bomb_is_counted_without_being_built() -> None:
    names = [f"v{number}" for number in range(100)]
    steps = [step(f"s{number}", variants=names) for number in range(40)]
    (bomb,) = parsed(scenario("bomb", *steps)).scenarios
    assert combination_count(bomb) == 100**40


def test_a_case_is_named_by_what_it_is() -> None:
    assert case_id("a", {"s": "v", "t": "w"}, 1) == case_id("a", {"t": "w", "s": "v"}, 1)
    different = {case_id("a", {}, 0), case_id("a", {}, 1), case_id("b", {}, 0), case_id("a", {"s": "v"}, 0)}
    assert len(different) == 4
    canonical = b'{"repetition":0,"scenarioId":"talk","variants":{"ask":"short"}}'
    assert case_id("talk", {"ask": "short"}, 0) == hashlib.sha256(canonical).hexdigest()


def test_25_a_turn_is_named_within_its_bounds_however_long_its_step_s_id_is() -> None:
    name = turn_id("run:" + "c" * 64, "s" * 160)
    assert name.startswith("eval.") and len(name) == 69
    assert name == turn_id("run:" + "c" * 64, "s" * 160) != turn_id("run:" + "c" * 64, "s" * 159)
