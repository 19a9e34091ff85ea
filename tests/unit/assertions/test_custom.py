"""Matchers of an author's own: odd answers are evaluator errors and never a mismatch or a 0."""

from __future__ import annotations

import math
from typing import Any

import pytest

from evalfleet.assertions.match import evaluate_match, on_broken
from evalfleet.assertions.matchers import define_match, define_score_match, satisfies
from evalfleet.errors import AuthoringError
from evalfleet.model.assertion import Result


def raises(_: Any) -> Any:
    raise KeyError("secret value")


@pytest.mark.parametrize(
    ("answer", "result", "reason"),
    [
        (True, "matched", None),
        (False, "mismatched", None),
        (1, "errored", "evaluator-error:non-boolean (int)"),
        (0, "errored", "evaluator-error:non-boolean (int)"),
        (None, "errored", "evaluator-error:non-boolean (NoneType)"),
        ("yes", "errored", "evaluator-error:non-boolean (str)"),
    ],
)
async def test_a_predicate_answers_true_or_false(answer: Any, result: str, reason: str | None) -> None:
    async def later(_: Any) -> Any:
        return answer

    for match in (satisfies("p", lambda _: answer), satisfies("p", later), define_match("p", lambda _: answer)):
        found = await evaluate_match(match, "value")
        assert (found.result.value, found.reason) == (result, reason)


@pytest.mark.parametrize(
    ("answer", "result", "measurement", "reason"),
    [
        (0.5, "matched", 0.5, None),
        (0, "matched", 0.0, None),
        (1, "matched", 1.0, None),
        (True, "matched", 1.0, None),
        (False, "matched", 0.0, None),
        (None, "unavailable", None, "evaluator:unscored"),
        (math.nan, "errored", None, "evaluator-error:non-finite"),
        (math.inf, "errored", None, "evaluator-error:non-finite"),
        ("0.7", "errored", None, "evaluator-error:not-a-number (str)"),
        (7, "errored", None, "evaluator-error:out-of-range"),
        (-0.1, "errored", None, "evaluator-error:out-of-range"),
        (10**400, "errored", None, "evaluator-error:out-of-range"),
        ({}, "errored", None, "evaluator-error:not-a-number (dict)"),
    ],
)
async def test_odd_scores(answer: Any, result: str, measurement: float | None, reason: str | None) -> None:
    async def later(_: Any) -> Any:
        return answer

    for match in (define_score_match("s", lambda _: answer), define_score_match("s", later)):
        found = await evaluate_match(match, "value")
        assert (found.result.value, found.measurement, found.reason) == (result, measurement, reason)


async def test_what_raises_is_an_evaluator_error_that_shows_no_exception_text() -> None:
    async def later(value: Any) -> Any:
        return raises(value)

    for match in (satisfies("p", raises), satisfies("p", later), define_score_match("s", raises)):
        found = await evaluate_match(match, 1)
        assert (found.result, found.reason) == (Result.ERRORED, "evaluator-error:KeyError")
        assert "secret" not in repr(found)


async def test_diagnostics_may_learn_what_broke() -> None:
    async def later(value: Any) -> Any:
        return raises(value)

    told: list[Exception] = []
    token = on_broken.set(told.append)
    for match in (satisfies("p", raises), satisfies("p", later) | satisfies("q", raises)):
        await evaluate_match(match, 1)
    on_broken.reset(token)
    assert [type(error) for error in told] == [KeyError, KeyError, KeyError]


async def test_a_non_finite_answer_is_shown_as_such() -> None:
    found = await evaluate_match(define_score_match("s", lambda _: math.nan), "value")
    assert found.actual == {"$number": "nan"}


@pytest.mark.parametrize(
    "build",
    [
        lambda: satisfies("", lambda _: True),
        lambda: satisfies("p", True),
        lambda: define_match(" ", lambda _: True),
        lambda: define_score_match("s", 0.5),
    ],
)
def test_misuse_is_an_authoring_error(build: Any) -> None:
    with pytest.raises(AuthoringError):
        build()
