"""Criteria against an observation, without a suite, a run or an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from evalfleet.errors import DefinitionError, Problem
from evalfleet.model.suite import SuiteOutcome
from evalfleet.suites.bounded_json import BoundsExceeded, NotJson, detached
from evalfleet.suites.context import EvaluationContext, Evaluator, Evaluators
from evalfleet.suites.evaluate import evaluate
from evalfleet.suites.locations import problem_at
from evalfleet.suites.observation import Observation
from evalfleet.suites.parse import parse_assertions

OBSERVATION_INVALID = "EVALUATION_OBSERVATION_INVALID"


async def evaluate_assertions(
    assertions: Sequence[Mapping[str, Any]],
    observation: Mapping[str, Any],
    evaluators: Mapping[str, Evaluator] | None = None,
) -> tuple[SuiteOutcome, ...]:
    """The outcomes of criteria, written as in a suite of version 2, on a JSON object of which everything is known.

    Synchronous evaluators run in threads. Raises DefinitionError: EVALUATION_ASSERTIONS_INVALID,
    EVALUATION_OBSERVATION_INVALID, EVALUATION_DATA_LIMIT or EVALUATION_DATA_CYCLE.
    """
    parsed = parse_assertions(assertions)
    context = EvaluationContext(evidence=Observation(value=_object(observation)))
    return await evaluate(parsed, context, Evaluators(functions=evaluators or {}, run_blocking=asyncio.to_thread))


def _object(observation: Any) -> dict[str, Any]:
    try:
        copy = detached(observation)
    except BoundsExceeded as error:
        raise DefinitionError(error.code, [problem_at(error.code, str(error), error.path)]) from None
    except NotJson as error:
        problem = problem_at(OBSERVATION_INVALID, str(error), error.path)
        raise DefinitionError(OBSERVATION_INVALID, [problem]) from None
    if not isinstance(copy, dict):
        raise DefinitionError(OBSERVATION_INVALID, [Problem(OBSERVATION_INVALID, "an observation is a JSON object")])
    return copy  # pyright: ignore[reportUnknownVariableType]
