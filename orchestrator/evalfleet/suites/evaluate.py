"""Criteria against evidence: every one of a list is evaluated, and so is every child of a composite. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from evalfleet.model.events import MISSING
from evalfleet.model.suite import (
    CheckAssertion,
    CompositeAssertion,
    CustomAssertion,
    JudgedAssertion,
    NegatedAssertion,
    SuiteAssertion,
    SuiteOutcome,
    SuitePath,
)
from evalfleet.suites import operators
from evalfleet.suites.calling import ask_judge, call_evaluator
from evalfleet.suites.context import EvaluationContext, Evaluators
from evalfleet.suites.frozen_json import frozen_json
from evalfleet.suites.paths import look
from evalfleet.suites.registry import calls_out, evaluator_names

CANCELLED = "EVALUATION_CANCELLED"
NOT_COVERED = "EVIDENCE_NOT_COVERED"


async def evaluate(
    assertions: Sequence[SuiteAssertion], context: EvaluationContext, evaluators: Evaluators
) -> tuple[SuiteOutcome, ...]:
    """The outcome of each criterion, in order.

    An error of any child is its parent's, whatever the others say. Once the context is cancelled, whatever is reached
    is EVALUATION_CANCELLED. Never raises for what an evaluator does.
    """
    shown = context.frozen() if any(map(calls_out, assertions)) and evaluator_names(assertions) else context
    return await _Evaluation(context, shown, evaluators).each(assertions)


def unevaluated(assertions: Iterable[SuiteAssertion], error_code: str) -> tuple[SuiteOutcome, ...]:
    """The outcomes of criteria that were not evaluated, for one reason."""
    return tuple(_outcome(assertion, passed=False, error_code=error_code) for assertion in assertions)


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """One list on its way. `shown` is the context that evaluators get."""

    context: EvaluationContext
    shown: EvaluationContext
    evaluators: Evaluators

    async def each(self, assertions: Iterable[SuiteAssertion]) -> tuple[SuiteOutcome, ...]:
        return tuple([await self.one(assertion) for assertion in assertions])

    async def one(self, assertion: SuiteAssertion) -> SuiteOutcome:
        if self.context.cancelled:
            return _outcome(assertion, passed=False, error_code=CANCELLED)
        match assertion:
            case CheckAssertion():
                return self.check(assertion)
            case CompositeAssertion():
                return _composite(assertion, await self.each(assertion.assertions))
            case NegatedAssertion():
                return _composite(assertion, await self.each([assertion.assertion]))
            case CustomAssertion():
                return await self.custom(assertion)
            case JudgedAssertion():
                return await self.judged(assertion)
            case _:
                raise TypeError(f"{type(assertion).__name__} is no criterion")

    def check(self, check: CheckAssertion) -> SuiteOutcome:
        actual = look(self.context.observation, check.path)
        held = operators.holds(check, actual)
        gap = self.context.evidence.gap(check.path)
        if gap is not None and operators.stays(check, actual, held):
            gap = None
        return SuiteOutcome(
            id=check.id,
            kind="check",
            label=check.label,
            severity=check.severity,
            looked=True,
            path=check.path,
            operator=check.operator,
            expected=check.value,
            actual=actual,
            passed=held and gap is None,
            error_code=None if gap is None else NOT_COVERED,
            reason=gap,
        )

    async def custom(self, assertion: CustomAssertion) -> SuiteOutcome:
        parameters = frozen_json(assertion.parameters)
        answer = await call_evaluator(self.evaluators, assertion.evaluator, self.shown, parameters)
        expected = {"evaluator": assertion.evaluator, "parameters": assertion.parameters}
        return _outcome(
            assertion,
            passed=answer.passed,
            expected=expected,
            error_code=answer.error_code,
            evidence=answer.evidence,
        )

    async def judged(self, assertion: JudgedAssertion) -> SuiteOutcome:
        expected = {"recipe": assertion.recipe, "criterion": assertion.criterion, "minimum": assertion.minimum}
        seen = self.seen(assertion.path) | {"expected": expected}
        if seen["actual"] is MISSING:
            gap = self.context.evidence.gap(assertion.path)
            return _outcome(assertion, passed=False, error_code=gap and NOT_COVERED, reason=gap, **seen)
        answer = await ask_judge(self.evaluators, assertion, seen["actual"], self.context)
        return _outcome(
            assertion,
            passed=answer.passed,
            error_code=answer.error_code,
            reason=answer.reason,
            evidence=answer.evidence,
            **seen,
        )

    def seen(self, path: SuitePath) -> dict[str, Any]:
        return {"looked": True, "path": path, "actual": look(self.context.observation, path)}


def _composite(assertion: CompositeAssertion | NegatedAssertion, children: tuple[SuiteOutcome, ...]) -> SuiteOutcome:
    return _outcome(assertion, **folded(_kind(assertion), children), children=children)


def folded(kind: str, children: Sequence[SuiteOutcome]) -> dict[str, Any]:
    """Whether a composite is met by its children, or their first error."""
    broken = next((child for child in children if child.error_code is not None), None)
    if broken is not None:
        return {"passed": False, "error_code": broken.error_code, "reason": broken.reason}
    held = [child.passed for child in children]
    passed = not held[0] if kind == "not" else all(held) if kind == "all" else any(held)
    return {"passed": passed, "error_code": None, "reason": None}


def _outcome(assertion: SuiteAssertion, *, passed: bool, **found: Any) -> SuiteOutcome:
    """A result that carries what its criterion says of itself."""
    said: dict[str, Any] = {"id": assertion.id, "label": assertion.label, "severity": assertion.severity}
    return SuiteOutcome(**said, kind=_kind(assertion), passed=passed, **found)


def _kind(assertion: SuiteAssertion) -> str:
    if isinstance(assertion, CompositeAssertion):
        return assertion.kind
    return _KINDS[type(assertion)]


_KINDS: dict[type[SuiteAssertion], str] = {
    CheckAssertion: "check",
    NegatedAssertion: "not",
    CustomAssertion: "custom",
    JudgedAssertion: "judge",
}
