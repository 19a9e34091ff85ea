"""`evaluate_assertions`: criteria against an observation, without a suite or a run."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from evalfleet import evaluate_assertions
from evalfleet.errors import DefinitionError
from tests.unit.suites.documents import check, custom


def cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = [value]
    return value


REFUSALS: list[tuple[str, Any, Any, str, str | None]] = [
    ("no list", {"id": "a"}, {}, "EVALUATION_ASSERTIONS_INVALID", None),
    ("a wrong criterion", [check("equal", value=1)], {}, "EVALUATION_ASSERTIONS_INVALID", "0.operator"),
    ("an id twice", [check(), check()], {}, "EVALUATION_ASSERTIONS_INVALID", "1.id"),
    ("criteria that contain themselves", [cyclic()], {}, "EVALUATION_DATA_CYCLE", "0.self.0"),
    ("an observation that is a list", [check()], [1], "EVALUATION_OBSERVATION_INVALID", None),
    ("an observation that is None", [check()], None, "EVALUATION_OBSERVATION_INVALID", None),
    ("an observation that is no JSON", [check()], {"a": {1}}, "EVALUATION_OBSERVATION_INVALID", "a"),
    ("an observation with NaN", [check()], {"a": [float("nan")]}, "EVALUATION_OBSERVATION_INVALID", "a.0"),
    ("an observation that contains itself", [check()], cyclic(), "EVALUATION_DATA_CYCLE", "self.0"),
    ("an observation of a million values", [check()], {"a": [0] * 1_000_000}, "EVALUATION_DATA_LIMIT", "a.499998"),
]


@pytest.mark.parametrize(
    ("assertions", "observation", "code", "field"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS]
)
async def test_what_is_refused(assertions: Any, observation: Any, code: str, field: str | None) -> None:
    with pytest.raises(DefinitionError) as raised:
        await evaluate_assertions(assertions, observation)
    assert [(problem.code, problem.field) for problem in raised.value.problems] == [(code, field)]


async def test_criteria_of_version_2_with_evaluators_in_threads() -> None:
    where: list[threading.Thread] = []

    def looks(context: Any, parameters: Any) -> Any:
        where.append(threading.current_thread())
        return {"passed": context.observation["total"] > parameters["least"]}

    outcomes = await evaluate_assertions(
        [check("gt", ["total"], value=3), custom("looks", least=3), custom("gone", id="gone")],
        {"total": 4},
        {"looks": looks},
    )
    assert [(each.passed, each.error_code) for each in outcomes] == [
        (True, None),
        (True, None),
        (False, "EVALUATOR_NOT_FOUND"),
    ]
    assert where != [threading.current_thread()]


async def test_what_the_caller_has_stays_his() -> None:
    observation = {"a": [1]}
    (outcome,) = await evaluate_assertions([check("equals", ["a"], value=[1])], observation)
    observation["a"].append(2)
    assert outcome.actual == [1]
