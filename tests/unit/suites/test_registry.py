"""Evaluators: how they are declared and found, and which a suite needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalfleet import evaluator
from evalfleet.errors import AuthoringError, DefinitionError
from evalfleet.planning.discover import make_importable
from evalfleet.planning.evaluator_files import evaluators_beside
from evalfleet.suites.parse import parse_suite
from evalfleet.suites.registry import calls_out, declared, evaluator_names, preflight
from tests.unit.suites.documents import check, criteria, custom, either, every, negated, scenario, step, suite

DECLARES = """
from evalfleet import evaluator

@evaluator("{name}")
def judge_it(context, parameters):
    return {{"passed": {value}}}
"""


@pytest.fixture
def evals(tmp_path: Path) -> Path:
    (tmp_path / "evals" / "shop" / "deep").mkdir(parents=True)
    (tmp_path / "evals" / "other").mkdir()
    return tmp_path / "evals"


def write(folder: Path, text: str) -> Path:
    file = folder / "evaluators.py"
    file.write_text(text, encoding="utf-8")
    return file


def declares(name: str, value: bool = True) -> str:
    return DECLARES.format(name=name, value=value)


@pytest.mark.parametrize("name", ["", "a b", ".a", "a" * 161, None, print])
def test_a_name_is_one_that_suites_can_use(name: Any) -> None:
    with pytest.raises(AuthoringError):
        evaluator(name)


def test_a_decorator_stands_before_a_function() -> None:
    with pytest.raises(AuthoringError, match="stands before a function"):
        evaluator("name")("text")  # pyright: ignore[reportArgumentType]


def test_a_declared_function_stays_what_it_is() -> None:
    @evaluator("total:is.right")
    def total(_: Any, __: Any) -> int:
        return 7

    assert total(None, None) == 7
    assert declared([total, total, print, 3, type]) == {"total:is.right": [total]}


CALLING = [
    ("a check", check(), False),
    ("checks inside of others", every(check(), negated(either(check(), id="or"), id="not")), False),
    ("an evaluator", custom("a"), True),
    ("an evaluator inside of others", every(check(), negated(either(check(), custom("a"), id="or"), id="not")), True),
    (
        "a judge",
        {"id": "j", "kind": "judge", "recipe": "rubric", "criterion": "?", "path": ["reply"], "minimum": 0.5},
        True,
    ),
]


@pytest.mark.parametrize(("criterion", "calls"), [row[1:] for row in CALLING], ids=[row[0] for row in CALLING])
def test_which_criteria_call_what_is_not_ours(criterion: dict[str, Any], calls: bool) -> None:
    assert [calls_out(each) for each in criteria(criterion)] == [calls]


def test_names_are_found_at_any_depth() -> None:
    found = evaluator_names(
        criteria(custom("a"), negated(every(check(), custom("b"))), either(custom("a", id="again"), id="or"))
    )
    assert found == {"a", "b"}


def test_evaluators_lie_beside_the_suite_and_above_it(evals: Path) -> None:
    write(evals, declares("everywhere"))
    write(evals / "shop", declares("near", value=False))
    write(evals / "other", declares("elsewhere"))
    found = evaluators_beside(evals / "shop" / "deep" / "x.suite.yaml", evals)
    assert {name for name in ("everywhere", "near", "elsewhere") if name in found} == {"everywhere", "near"}
    assert found["near"](None, None) == {"passed": False}
    assert found.get("nobody") is None


def test_two_of_one_name_are_refused(evals: Path) -> None:
    write(evals, declares("same"))
    file = write(evals / "shop", declares("same"))
    with pytest.raises(DefinitionError, match="two evaluators are called 'same'") as raised:
        evaluators_beside(evals / "shop" / "x.suite.yaml", evals)
    assert [(problem.code, problem.file) for problem in raised.value.problems] == [("DUPLICATE_EVALUATOR", str(file))]


def test_two_of_one_name_in_one_file_are_refused(evals: Path) -> None:
    write(evals, declares("same") + declares("same").replace("judge_it", "other"))
    with pytest.raises(DefinitionError, match="in this file"):
        evaluators_beside(evals / "x.suite.yaml", evals)


def test_one_that_is_imported_from_above_is_one(evals: Path) -> None:
    make_importable(evals.parent)
    (evals.parent / "shared_check_of_shop.py").write_text(declares("shared"), encoding="utf-8")
    for folder in (evals, evals / "shop"):
        write(folder, "from shared_check_of_shop import judge_it")
    found = evaluators_beside(evals / "shop" / "x.suite.yaml", evals)
    assert found["shared"](None, None) == {"passed": True}


def test_a_file_that_can_not_be_imported_is_told_with_its_line(evals: Path) -> None:
    file = write(evals, "x = 1\n1 / 0\n")
    with pytest.raises(DefinitionError) as raised:
        evaluators_beside(evals / "x.suite.yaml", evals)
    (problem,) = raised.value.problems
    assert (problem.code, problem.file, problem.line) == ("IMPORT_FAILED", str(file), 2)


SHOP = parse_suite(
    suite(
        scenario("a", step("s", assertions=[negated(custom("by-turn"))]), assertions=[custom("at-the-end")]),
        scenario("b", step("s", assertions=[every(check(), custom("in-other"))])),
        assertions=[either(custom("in-suite"))],
    )
)


def test_what_the_suite_and_selected_scenarios_name_must_exist() -> None:
    with pytest.raises(DefinitionError) as raised:
        preflight(SHOP, {"a"}, {"in-suit", "quite-other"})
    assert raised.value.code == "EVALUATOR_NOT_FOUND"
    assert [(problem.field, problem.hint) for problem in raised.value.problems] == [
        ("assertions.0.assertions.0.evaluator", "did you mean 'in-suit'?"),
        ("scenarios.0.assertions.0.evaluator", 'declare it by @evaluator("…") in an evaluators.py beside the suite'),
        (
            "scenarios.0.steps.0.assertions.0.assertion.evaluator",
            'declare it by @evaluator("…") in an evaluators.py beside the suite',
        ),
    ]


def test_edge_11_what_others_name_is_only_a_warning() -> None:
    known = {"in-suite", "at-the-end", "by-turn"}
    assert [problem.field for problem in preflight(SHOP, {"a"}, known)] == [
        "scenarios.1.steps.0.assertions.0.assertions.1.evaluator"
    ]
    assert preflight(SHOP, {"a", "b"}, {*known, "in-other"}) == ()
