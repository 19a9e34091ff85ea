"""A suite's document to a Suite: bounds first, then shape and names, and everything wrong together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NoReturn, cast

from pydantic import BaseModel, ValidationError

from evalfleet.errors import DefinitionError, Problem
from evalfleet.model.events import MISSING
from evalfleet.model.suite import (
    CheckAssertion,
    CompositeAssertion,
    CustomAssertion,
    JudgedAssertion,
    NegatedAssertion,
    Scenario,
    Severity,
    Step,
    Suite,
    SuiteAssertion,
    Variant,
)
from evalfleet.suites import faults, schema
from evalfleet.suites.bounded_json import BoundsExceeded, NotJson, detached
from evalfleet.suites.faults import Fault
from evalfleet.suites.locations import ProblemAt, child, problem_at, within

SUITE_INVALID = "EVALUATION_SUITE_INVALID"
ASSERTIONS_INVALID = "EVALUATION_ASSERTIONS_INVALID"


def parse_suite(value: Any, place: ProblemAt = problem_at, *, own: bool = False) -> Suite:
    """The suite that a document means, detached from it unless it is the suite's `own`: then nobody else holds it.

    `place` makes a Problem of a path in the document. Raises DefinitionError with all problems: of code
    EVALUATION_DATA_LIMIT, EVALUATION_DATA_CYCLE or EVALUATION_SUITE_INVALID.
    """
    document = _bounded(value, SUITE_INVALID, place, own=own)
    found = list(faults.version_faults(document))
    version = 1 if not found and child(document, "schemaVersion") == 1 else 2
    model = schema.Suite1 if version == 1 else schema.Suite2
    parsed: schema.Suite1 | schema.Suite2 | None = None
    try:
        parsed = model.model_validate(document)
    except ValidationError as error:
        said = {fault.path for fault in found}
        shapes = faults.schema_faults(error, document, version)
        found += [fault for fault in shapes if fault.path not in said]
    found += faults.uniqueness_faults(document)
    if parsed is None or found:
        _refuse(SUITE_INVALID, document, found, place)
    return _suite(parsed)


def parse_assertions(value: Any) -> tuple[SuiteAssertion, ...]:
    """A list of criteria that stands alone, of version 2. Raises DefinitionError: EVALUATION_ASSERTIONS_INVALID."""
    document = _bounded(value, ASSERTIONS_INVALID, problem_at)
    found: list[Fault] = []
    parsed: list[Any] = []
    try:
        parsed = schema.ASSERTIONS.validate_python(document)
    except ValidationError as error:
        found += faults.schema_faults(error, document, 2)
    found += faults.assertion_faults(document)
    if found:
        _refuse(ASSERTIONS_INVALID, document, found, problem_at)
    return _assertions(parsed)


def _bounded(value: Any, code: str, place: ProblemAt, *, own: bool = False) -> Any:
    try:
        return detached(value, own=own)
    except BoundsExceeded as error:
        raise DefinitionError(error.code, [place(error.code, str(error), error.path)]) from None
    except NotJson as error:
        raise DefinitionError(code, [place(code, str(error), error.path)]) from None


def _refuse(code: str, document: Any, found: Iterable[Fault], place: ProblemAt) -> NoReturn:
    raise DefinitionError(code, list(_problems(code, document, found, place)))


def _problems(code: str, document: Any, found: Iterable[Fault], place: ProblemAt) -> Iterator[Problem]:
    for fault in found:
        message = fault.message + within(document, fault.path)
        yield place(code, message, fault.path, hint=fault.hint, at_key=fault.at_key)


# --- models to values ------------------------------------------------------------------------------------------


def _suite(parsed: schema.Suite1 | schema.Suite2) -> Suite:
    document: dict[str, Any] = {"schemaVersion": parsed.schema_version, **_written(parsed)}
    scenarios: list[schema.Scenario1] | list[schema.Scenario2] = parsed.scenarios
    pairs = zip(scenarios, document["scenarios"], strict=True)
    return Suite(
        schema_version=parsed.schema_version,
        id=parsed.id,
        name=parsed.name,
        metadata=parsed.metadata,
        scenarios=tuple([_scenario(scenario, its) for scenario, its in pairs]),
        assertions=_assertions(parsed.assertions),
        document=document,
    )


def _written(model: BaseModel) -> dict[str, Any]:
    """A model in the names of the file, without what was left out. (`model_dump` takes five times as long.)"""
    said, values = model.model_fields_set, model.__dict__
    return {alias: _writing(values[name]) for name, alias in _keys(type(model)) if name in said}


def _writing(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _written(value)
    if type(value) is list:
        return [_writing(item) for item in cast("list[Any]", value)]
    return value


@cache
def _keys(model: type[BaseModel]) -> tuple[tuple[str, str], ...]:
    """The fields of a model in their order, each with its key."""
    return tuple((name, str(field.alias or name)) for name, field in model.model_fields.items())


def _scenario(parsed: schema.Scenario1 | schema.Scenario2, document: dict[str, Any]) -> Scenario:
    return Scenario(
        id=parsed.id,
        name=parsed.name,
        description=parsed.description,
        tags=tuple(parsed.tags),
        external=parsed.write_policy == "external",
        skip_reason=parsed.skip_reason,
        metadata=parsed.metadata,
        steps=tuple(map(_step, parsed.steps)),
        assertions=_assertions(parsed.assertions),
        document=document,
    )


def _step(parsed: schema.Step1 | schema.Step2) -> Step:
    return Step(
        id=parsed.id,
        input=parsed.input,
        assertions=_assertions(parsed.assertions),
        variants=tuple(Variant(id=variant.id, input=variant.input) for variant in parsed.variants or ()),
    )


def _assertions(parsed: Iterable[Any]) -> tuple[SuiteAssertion, ...]:
    return tuple(map(_assertion, parsed))


def _assertion(parsed: Any) -> SuiteAssertion:
    severity = Severity.ADVISORY if getattr(parsed, "severity", None) == "advisory" else Severity.REQUIRED
    shared: dict[str, Any] = {"id": parsed.id, "label": parsed.label, "severity": severity}
    match parsed.kind:
        case "check":
            return CheckAssertion(
                **shared,
                path=tuple(parsed.path),
                operator=parsed.operator,
                value=parsed.value if "value" in parsed.model_fields_set else MISSING,
                tolerance=getattr(parsed, "tolerance", None),
            )
        case "all" | "any":
            return CompositeAssertion(**shared, kind=parsed.kind, assertions=_assertions(parsed.assertions))
        case "not":
            return NegatedAssertion(**shared, assertion=_assertion(parsed.assertion))
        case "custom":
            return CustomAssertion(**shared, evaluator=parsed.evaluator, parameters=parsed.parameters)
        case "judge":
            return JudgedAssertion(
                **shared,
                recipe=parsed.recipe,
                criterion=parsed.criterion,
                path=tuple(parsed.path),
                minimum=parsed.minimum,
            )
        case _:
            raise TypeError(f"{type(parsed).__name__} is no criterion")
