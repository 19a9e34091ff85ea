"""Calls what a host registered: its evaluators, and the judge. What goes wrong there is a code, never a text. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from evalfleet.assertions.match import on_broken
from evalfleet.errors import EvalfleetError
from evalfleet.model.suite import JudgedAssertion
from evalfleet.suites.bounded_json import detached
from evalfleet.suites.context import EvaluationContext, Evaluator, Evaluators, Judgement
from evalfleet.suites.registry import NOT_FOUND

FAILED = "EVALUATOR_FAILED"
INVALID = "EVALUATOR_RESULT_INVALID"
UNJUDGED = "JUDGE_UNAVAILABLE"

#: Why a judge's criterion inside of another one has no answer yet.
NOT_ASKED = "judge:not-asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back. `passed` is False with an error; `evidence` is a detached JSON object."""

    passed: bool = False
    error_code: str | None = None
    reason: str | None = None
    evidence: Mapping[str, Any] | None = None


async def call_evaluator(
    evaluators: Evaluators, name: str, context: EvaluationContext, parameters: Mapping[str, Any]
) -> Answer:
    """Call the evaluator of that name; whatever it raises is told to the attempt's diagnostics alone."""
    try:
        function = evaluators.functions.get(name)  # which may import it
        if not callable(function):
            return Answer(error_code=NOT_FOUND)
        return _read(await _called(evaluators, function, context, parameters))
    except Exception as error:  # noqa: BLE001 - an evaluator may raise anything; its text stays out of reports
        on_broken.get()(error)
        return Answer(error_code=FAILED)


async def ask_judge(
    evaluators: Evaluators, assertion: JudgedAssertion, material: Any, context: EvaluationContext
) -> Answer:
    """Ask the judge; without a judge, or without a score, the criterion can't be judged."""
    if evaluators.judge is None:
        return Answer(error_code=UNJUDGED, reason="judge:not-declared")
    return ruled(assertion.minimum, await evaluators.judge(assertion, material, context))


def ruled(minimum: float, said: Judgement) -> Answer:
    """What a judge's word means for a criterion with this minimum."""
    if said.score is None:
        return Answer(error_code=UNJUDGED, reason=said.reason, evidence=said.evidence)
    evidence = {"score": said.score, **(said.evidence or {})}
    return Answer(passed=said.score >= minimum, reason=said.reason, evidence=evidence)


async def _called(
    evaluators: Evaluators, function: Evaluator, context: EvaluationContext, parameters: Mapping[str, Any]
) -> Any:
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return await function(context, parameters)
    said = await evaluators.run_blocking(lambda: function(context, parameters))
    return await said if inspect.isawaitable(said) else said


class _Unreadable(EvalfleetError):
    """The evaluator gave no object with the key `passed`."""


def _read(said: Any) -> Answer:
    if not isinstance(said, Mapping):
        raise _Unreadable
    result = cast("Mapping[str, Any]", said)
    passed, evidence = result.get("passed"), result.get("evidence")
    if not isinstance(passed, bool):
        return Answer(error_code=INVALID)
    if evidence is not None and not isinstance(evidence, Mapping):
        raise _Unreadable("evidence must be a JSON object")
    return Answer(passed=passed, evidence=None if evidence is None else detached(evidence))
