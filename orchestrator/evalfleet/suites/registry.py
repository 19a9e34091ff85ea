"""Evaluators by name: how a project declares them, and which of them a suite needs. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from evalfleet.errors import AuthoringError, DefinitionError, Problem
from evalfleet.model.suite import (
    CompositeAssertion,
    CustomAssertion,
    JudgedAssertion,
    NegatedAssertion,
    Scenario,
    Suite,
    SuiteAssertion,
)
from evalfleet.suites.locations import Path, ProblemAt, nearest, problem_at
from evalfleet.suites.schema import ID_PATTERN

NOT_FOUND = "EVALUATOR_NOT_FOUND"

_NAME = "__evalfleet_evaluator__"

F = TypeVar("F", bound=Callable[..., Any])


def evaluator(name: str) -> Callable[[F], F]:
    """Declare a function as the evaluator `name` of suites, in an `evaluators.py` beside them.

    It gets an EvaluationContext and the criterion's parameters, both frozen, and returns `{"passed": bool}` with
    `"evidence"`, a JSON object, if it likes; it may be async. Raises AuthoringError for a name that no suite can use.
    """
    if not isinstance(name, str) or not re.fullmatch(ID_PATTERN, name):  # pyright: ignore[reportUnnecessaryIsInstance]
        rule = "1 to 160 letters, digits and . _ : - that start with a letter or digit"
        raise AuthoringError(f'@evaluator("…") takes the name that suites use: {rule}')

    def declare(function: F) -> F:
        if not callable(function):
            raise AuthoringError(f"@evaluator({name!r}) stands before a function, not {type(function).__name__}")
        setattr(function, _NAME, name)
        return function

    return declare


def declared(values: Iterable[Any]) -> dict[str, list[Callable[..., Any]]]:
    """The evaluators among the values of a module, by name; more than one of a name is for the caller to refuse."""
    found: dict[str, list[Callable[..., Any]]] = {}
    for value in values:
        name = getattr(value, _NAME, None) if callable(value) and not isinstance(value, type) else None
        if isinstance(name, str) and value not in found.setdefault(name, []):
            found[name].append(value)
    return found


@dataclass(frozen=True, slots=True)
class Use:
    """One criterion that names an evaluator, by the path of its name in the document."""

    name: str
    path: Path


def calls_out(assertion: SuiteAssertion) -> bool:
    """Whether an evaluator or a judge has a say in a criterion."""
    if isinstance(assertion, CompositeAssertion):
        return any(map(calls_out, assertion.assertions))
    if isinstance(assertion, NegatedAssertion):
        return calls_out(assertion.assertion)
    return isinstance(assertion, CustomAssertion | JudgedAssertion)


def evaluator_names(assertions: Iterable[SuiteAssertion]) -> frozenset[str]:
    """The evaluators that criteria name, at any depth."""
    return frozenset(use.name for use in _uses(assertions, ()))


def scenario_evaluators(scenario: Scenario) -> frozenset[str]:
    """The evaluators that a scenario's criteria name, wherever they stand."""
    if not scenario_calls_out(scenario):
        return frozenset()
    return frozenset(use.name for use in _of_scenario(scenario, ()))


def asks_judge(scenario: Scenario) -> bool:
    """Whether any criterion of a scenario is a judge's, wherever it stands."""
    if not scenario_calls_out(scenario):
        return False
    lists = [scenario.assertions, *(step.assertions for step in scenario.steps)]
    return any(isinstance(each, JudgedAssertion) for assertions in lists for each in _every(assertions))


def scenario_calls_out(scenario: Scenario) -> bool:
    """Whether an evaluator or a judge has a say in any criterion of a scenario."""
    if any(map(calls_out, scenario.assertions)):
        return True
    return any(calls_out(each) for step in scenario.steps for each in step.assertions)


def _every(assertions: Iterable[SuiteAssertion]) -> Iterator[SuiteAssertion]:
    """The criteria and all that are inside of others."""
    for assertion in assertions:
        yield assertion
        if isinstance(assertion, CompositeAssertion):
            yield from _every(assertion.assertions)
        elif isinstance(assertion, NegatedAssertion):
            yield from _every([assertion.assertion])


def preflight(
    suite: Suite, selected: Collection[str], known: Collection[str], place: ProblemAt = problem_at
) -> tuple[Problem, ...]:
    """Warnings about evaluators that scenarios outside of the selection name and nobody provides.

    `selected` holds the ids of scenarios. Raises DefinitionError, EVALUATOR_NOT_FOUND, naming each place of the suite's
    own criteria and of selected scenarios' whose evaluator is not `known`.
    """
    needed = list(_uses(suite.assertions, ("assertions",)))
    spared: list[Use] = []
    for index, scenario in enumerate(suite.scenarios):
        (needed if scenario.id in selected else spared).extend(_of_scenario(scenario, ("scenarios", index)))
    if missing := _missing(needed, known, place):
        raise DefinitionError(NOT_FOUND, missing)
    return _missing(spared, known, place)


def _missing(uses: Sequence[Use], known: Collection[str], place: ProblemAt) -> tuple[Problem, ...]:
    return tuple(
        place(
            NOT_FOUND,
            f"nobody provides the evaluator {use.name!r}",
            use.path,
            hint=nearest(use.name, known) or 'declare it by @evaluator("…") in an evaluators.py beside the suite',
        )
        for use in uses
        if use.name not in known
    )


def _of_scenario(scenario: Scenario, path: Path) -> Iterator[Use]:
    yield from _uses(scenario.assertions, (*path, "assertions"))
    for index, step in enumerate(scenario.steps):
        yield from _uses(step.assertions, (*path, "steps", index, "assertions"))


def _uses(assertions: Iterable[SuiteAssertion], path: Path) -> Iterator[Use]:
    for index, assertion in enumerate(assertions):
        yield from _use(assertion, (*path, index))


def _use(assertion: SuiteAssertion, path: Path) -> Iterator[Use]:
    if isinstance(assertion, CustomAssertion):
        yield Use(assertion.evaluator, (*path, "evaluator"))
    elif isinstance(assertion, CompositeAssertion):
        yield from _uses(assertion.assertions, (*path, "assertions"))
    elif isinstance(assertion, NegatedAssertion):
        yield from _use(assertion.assertion, (*path, "assertion"))
