"""Short ways to write down suites, criteria and what they look at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from evalfleet.errors import DefinitionError, Problem
from evalfleet.model.suite import SuiteAssertion, SuiteOutcome
from evalfleet.suites.context import EvaluationContext, Evaluators
from evalfleet.suites.evaluate import evaluate
from evalfleet.suites.observation import Observation
from evalfleet.suites.parse import parse_assertions, parse_suite

R = TypeVar("R")

Document = dict[str, Any]


def check(operator: str = "exists", path: Sequence[str | int] = ("a",), *, id: str = "c", **rest: Any) -> Document:
    return {"id": id, "kind": "check", "path": list(path), "operator": operator, **rest}


def every(*children: Document, id: str = "all") -> Document:
    return {"id": id, "kind": "all", "assertions": list(children)}


def either(*children: Document, id: str = "any") -> Document:
    return {"id": id, "kind": "any", "assertions": list(children)}


def negated(child: Document, id: str = "not") -> Document:
    return {"id": id, "kind": "not", "assertion": child}


def custom(evaluator: str, id: str = "custom", **parameters: Any) -> Document:
    return {"id": id, "kind": "custom", "evaluator": evaluator, "parameters": parameters}


def step(id: str = "ask", *, variants: Sequence[str] = (), **rest: Any) -> Document:
    document: Document = {"id": id, "input": {"text": id}, **rest}
    if variants:
        document["variants"] = [{"id": name, "input": {"text": name}} for name in variants]
    return document


def scenario(id: str = "talk", *steps: Document, **rest: Any) -> Document:
    return {"id": id, "name": id.title(), "writePolicy": "read_only", "steps": list(steps) or [step()], **rest}


def suite(*scenarios: Document, version: int = 1, **rest: Any) -> Document:
    document = {"schemaVersion": version, "id": "shop", "name": "Shop", "scenarios": list(scenarios) or [scenario()]}
    return document | rest


def criteria(*documents: Document) -> tuple[SuiteAssertion, ...]:
    return parse_assertions(list(documents))


def problems(document: Any) -> list[Problem]:
    """Everything wrong with a suite, none when it is one."""
    try:
        parse_suite(document)
    except DefinitionError as error:
        return list(error.problems)
    return []


async def at_once(call: Callable[[], R]) -> R:
    return call()


async def judged(
    documents: Sequence[Document],
    value: Mapping[str, Any] | Observation,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]] = at_once,
    **context: Any,
) -> tuple[SuiteOutcome, ...]:
    """The outcomes of criteria on a JSON object, or on an observation with its coverage."""
    evidence = value if isinstance(value, Observation) else Observation(value=value)
    evaluators = Evaluators(functions=functions or {}, run_blocking=run_blocking)
    return await evaluate(criteria(*documents), EvaluationContext(evidence=evidence, **context), evaluators)


async def judged_alone(document: Document, value: Mapping[str, Any] | Observation, **rest: Any) -> SuiteOutcome:
    (outcome,) = await judged([document], value, **rest)
    return outcome
