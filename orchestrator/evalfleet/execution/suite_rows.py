"""What criteria of a suite came to, as rows of an attempt: of those that are known, and when a judge has answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evalfleet.model.assertion import AssertionResult, Result
from evalfleet.model.suite import SuiteOutcome
from evalfleet.suites.calling import ruled
from evalfleet.suites.context import Judgement
from evalfleet.suites.deferred import answered, waiting
from evalfleet.suites.evaluate import NOT_COVERED
from evalfleet.suites.outcome_json import outcome_value, read_outcome, wanted_value

#: The name of the row that a criterion of a suite leaves.
SUITE_ASSERTION = "suite"


def described(outcome: SuiteOutcome, step: str | None) -> dict[str, Any]:
    """A criterion as its row keeps it, with all that it came to; `step` is None for one of the whole scenario."""
    return {
        "criterion": SUITE_ASSERTION,
        "step": step,
        "expression": wanted_value(outcome),
        "result": outcome_value(outcome),
    }


def result_of(outcome: SuiteOutcome) -> AssertionResult:
    """The outcome among the assertions of any attempt; a child's expectation is what its criterion wanted."""
    return AssertionResult(
        result=_three_valued(outcome),
        reason=outcome.reason if outcome.reason is not None else outcome.error_code,
        expected=outcome.expected,
        actual=outcome.actual,
        children=tuple(replace(result_of(child), expected=wanted_value(child)) for child in outcome.children),
    )


def with_answers(
    criterion: Mapping[str, Any], said: Sequence[AssertionResult]
) -> tuple[AssertionResult, dict[str, Any]]:
    """What a row comes to by what a judge said of each waiting part of its criterion, and its criterion then."""
    before = read_outcome(criterion["result"])
    answers = [
        ruled(part.expected["minimum"], Judgement(found.measurement, found.reason))
        for part, found in zip(waiting(before), said, strict=True)
    ]
    outcome = answered(before, answers)
    return result_of(outcome), described(outcome, criterion["step"])


def _three_valued(outcome: SuiteOutcome) -> Result:
    if outcome.error_code == NOT_COVERED:
        return Result.UNAVAILABLE
    if outcome.error_code is not None:
        return Result.ERRORED
    return Result.MATCHED if outcome.passed else Result.MISMATCHED
