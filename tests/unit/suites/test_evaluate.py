"""Composites, evaluators and judges: what an answer is, and what only a code is."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from evalfleet.assertions.match import on_broken
from evalfleet.errors import AuthoringError
from evalfleet.execution.threads import AuthorThreads
from evalfleet.model.events import MISSING
from evalfleet.suites.context import EvaluationContext, Evaluators, Judgement
from evalfleet.suites.evaluate import evaluate, unevaluated
from evalfleet.suites.frozen_json import frozen_json
from evalfleet.suites.observation import Observation
from evalfleet.suites.outcome_json import outcome_value
from tests.unit.suites.documents import (
    Document,
    at_once,
    check,
    criteria,
    custom,
    either,
    every,
    judged,
    judged_alone,
    negated,
)

VALUE = {"a": 1}

YES = check(id="yes")
NO = check("absent", id="no")
BROKEN = custom("nobody", id="broken")

COMPOSITES: list[tuple[str, Document, bool, str | None]] = [
    ("all of what holds", every(YES, check(id="also")), True, None),
    ("all with one that fails", every(YES, NO), False, None),
    ("all with one that is broken", every(YES, BROKEN, NO), False, "EVALUATOR_NOT_FOUND"),
    ("any with one that holds", either(NO, YES), True, None),
    ("any of what fails", either(NO, check("absent", id="neither")), False, None),
    ("any with one that holds and one that is broken", either(YES, BROKEN), False, "EVALUATOR_NOT_FOUND"),
    ("not of what fails", negated(NO), True, None),
    ("not of what holds", negated(YES), False, None),
    ("not of what is broken", negated(BROKEN), False, "EVALUATOR_NOT_FOUND"),
    ("nested twice", negated(either(YES, every(BROKEN, id="inner"))), False, "EVALUATOR_NOT_FOUND"),
]


@pytest.mark.parametrize(
    ("document", "passed", "code"), [row[1:] for row in COMPOSITES], ids=[row[0] for row in COMPOSITES]
)
async def test_a_composite(document: Document, passed: bool, code: str | None) -> None:
    outcome = await judged_alone(document, VALUE)
    assert (outcome.passed, outcome.error_code) == (passed, code)


async def test_all_children_are_evaluated_in_order_and_kept() -> None:
    called: list[str] = []

    def note(_: Any, parameters: Any) -> Any:
        called.append(parameters["name"])
        return {"passed": parameters["name"] == "first"}

    names = ["first", "second", "third"]
    children = [custom("note", id=name, name=name) for name in names]
    for document in (either(*children), every(*children)):
        called.clear()
        outcome = await judged_alone(document, VALUE, functions={"note": note})
        assert called == [child.id for child in outcome.children] == names


# --- evaluators ------------------------------------------------------------------------------------------------


def raises(_: Any, __: Any) -> Any:
    raise AuthoringError("PRIVATE", "SOME_CODE")


async def raises_later(_: Any, __: Any) -> Any:
    raise RuntimeError("PRIVATE")


async def says_yes(_: Any, __: Any) -> Any:
    return {"passed": True, "evidence": {"checked": [1, 2]}}


class Callable_:
    async def __call__(self, _: Any, __: Any) -> Any:
        return {"passed": True}


class Unreadable(dict[str, Any]):
    def get(self, *_: Any) -> Any:
        raise RuntimeError("PRIVATE")


FAILURES: list[tuple[str, Any, str | None]] = [
    # what the evaluator does, the evaluator, the code
    ("is not registered", None, "EVALUATOR_NOT_FOUND"),
    ("can't be called", "text", "EVALUATOR_NOT_FOUND"),
    ("raises an error of ours", raises, "EVALUATOR_FAILED"),
    ("raises when it is awaited", raises_later, "EVALUATOR_FAILED"),
    ("takes too few arguments", lambda _: {"passed": True}, "EVALUATOR_FAILED"),
    ("returns None", lambda *_: None, "EVALUATOR_FAILED"),
    ("returns a bool", lambda *_: True, "EVALUATOR_FAILED"),
    ("returns what can't be read", lambda *_: Unreadable(passed=True), "EVALUATOR_FAILED"),
    ("says nothing of passed", lambda *_: {}, "EVALUATOR_RESULT_INVALID"),
    ("passes by 1", lambda *_: {"passed": 1}, "EVALUATOR_RESULT_INVALID"),
    ("passes by a text", lambda *_: {"passed": "yes"}, "EVALUATOR_RESULT_INVALID"),
    ("has evidence that is a list", lambda *_: {"passed": True, "evidence": [1]}, "EVALUATOR_FAILED"),
    ("has evidence that is no JSON", lambda *_: {"passed": True, "evidence": {"at": {1}}}, "EVALUATOR_FAILED"),
    ("has evidence that is NaN", lambda *_: {"passed": True, "evidence": {"at": float("nan")}}, "EVALUATOR_FAILED"),
    ("passes", lambda *_: {"passed": True}, None),
    ("passes later", says_yes, None),
    ("gives an awaitable without being async", lambda *at: says_yes(*at), None),
    ("is an object that is called", Callable_(), None),
]


@pytest.mark.parametrize(("function", "code"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES])
async def test_what_an_evaluator_can_do(function: Any, code: str | None) -> None:
    functions = {} if function is None else {"custom": function}
    outcome = await judged_alone(custom("custom"), VALUE, functions=functions)
    assert (outcome.passed, outcome.error_code) == (code is None, code)
    assert outcome.expected == {"evaluator": "custom", "parameters": {}}
    assert "PRIVATE" not in json.dumps(outcome_value(outcome))


async def test_what_an_evaluator_raised_is_told_to_the_diagnostics() -> None:
    told: list[Exception] = []
    token = on_broken.set(told.append)
    try:
        await judged([custom("a"), custom("b", id="other")], VALUE, {"a": raises, "b": raises_later})
    finally:
        on_broken.reset(token)
    assert [type(error) for error in told] == [AuthoringError, RuntimeError]


async def test_evidence_is_a_copy_and_parameters_are_frozen() -> None:
    evidence = {"seen": [1]}

    def keeps(_: Any, parameters: Any) -> Any:
        with pytest.raises(TypeError):
            parameters["limit"] = 2
        return {"passed": True, "evidence": evidence}

    outcome = await judged_alone(custom("keeps", limit=1), VALUE, functions={"keeps": keeps})
    evidence["seen"].append(2)
    assert outcome.evidence == {"seen": [1]}


async def test_a_synchronous_evaluator_runs_away_from_the_loop_and_an_async_one_on_it() -> None:
    where: dict[str, threading.Thread] = {}

    def blocks(_: Any, __: Any) -> Any:
        where["sync"] = threading.current_thread()
        return {"passed": True}

    async def awaits(_: Any, __: Any) -> Any:
        where["async"] = threading.current_thread()
        return {"passed": True}

    threads = AuthorThreads()
    try:
        await judged([custom("s"), custom("a", id="b")], VALUE, {"s": blocks, "a": awaits}, threads.run)
    finally:
        threads.close()
    assert where["async"] is threading.current_thread() is not where["sync"]


async def test_a_cancelled_evaluator_is_no_outcome() -> None:
    async def waits(_: Any, __: Any) -> Any:
        await asyncio.Event().wait()

    task = asyncio.create_task(judged_alone(custom("waits"), VALUE, functions={"waits": waits}))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- the context -----------------------------------------------------------------------------------------------


async def test_what_an_evaluator_sees() -> None:
    seen: list[EvaluationContext] = []

    def looks(context: EvaluationContext, _: Any) -> Any:
        seen.append(context)
        return {"passed": True}

    context = EvaluationContext(
        evidence=Observation(value={"reply": "hi"}),
        scope="turn",
        history=({"stepId": "before"},),
        scenario={"id": "talk"},
        step_id="ask",
        input={"text": "hello"},
        case_id="c" * 64,
        repetition=2,
        variants={"ask": "short"},
    )
    evaluators = Evaluators(functions={"looks": looks}, run_blocking=at_once)
    await evaluate(criteria(custom("looks")), context, evaluators)
    (got,) = seen
    assert not got.cancelled
    assert (got.observation, got.history, got.scope, got.step_id) == (
        {"reply": "hi"},
        [{"stepId": "before"}],
        "turn",
        "ask",
    )
    assert (got.scenario, got.input, got.case_id, got.repetition) == ({"id": "talk"}, {"text": "hello"}, "c" * 64, 2)
    assert (got.variants, got.cases) == ({"ask": "short"}, [])


CHANGES: list[tuple[str, Callable[[Any], Any]]] = [
    ("a field of the context", lambda context: setattr(context, "history", ())),
    ("a key of the observation", lambda context: context.observation.update(a=2)),
    ("a nested key", lambda context: context.observation["deep"]["list"][0].__setitem__("x", 2)),
    ("a list", lambda context: context.observation["deep"]["list"].append(1)),
    ("a list, sorted", lambda context: context.observation["deep"]["list"].sort()),
    ("the history", lambda context: context.history.clear()),
    ("a turn of the history", lambda context: context.history[0].pop("stepId")),
    ("the input", lambda context: context.input.clear()),
    ("the variants", lambda context: context.variants.__delitem__("ask")),
]


@pytest.mark.parametrize("change", [row[1] for row in CHANGES], ids=[row[0] for row in CHANGES])
async def test_26_an_attempt_to_change_evidence_fails_and_the_next_criterion_sees_the_original(change: Any) -> None:
    observation = {"a": 1, "deep": {"list": [{"x": 1}]}}
    before = copy.deepcopy(observation)
    documents = [custom("changes"), check("equals", [], value=before, id="after"), custom("looks", id="looks")]
    functions = {
        "changes": lambda context, _: change(context),
        "looks": lambda context, _: {"passed": context.observation == before and context.variants == {"ask": "short"}},
    }
    history: tuple[dict[str, Any], ...] = ({"stepId": "before"},)
    given: dict[str, Any] = {"history": history, "input": {"text": "hi"}, "variants": {"ask": "short"}}
    outcomes = await judged(documents, observation, functions, **given)
    assert [outcome.error_code for outcome in outcomes] == ["EVALUATOR_FAILED", None, None]
    assert all(outcome.passed for outcome in outcomes[1:])
    observation["deep"]["list"].append({"x": 2})  # what the caller has stays his, and can be changed
    history[0]["stepId"] = "other"


def test_frozen_json_is_json() -> None:
    value = {"a": [1, {"b": None}], "c": "text"}
    frozen = frozen_json(value)
    assert frozen == value and json.loads(json.dumps(frozen)) == value and frozen_json(frozen) is frozen
    thawed = copy.deepcopy(frozen)
    thawed["a"][1]["b"] = 1
    assert type(thawed) is dict and type(thawed["a"]) is list and frozen == value


def test_a_context_is_frozen_itself() -> None:
    context = EvaluationContext(evidence=Observation(value={}))
    with pytest.raises(FrozenInstanceError):
        context.repetition = 1  # pyright: ignore[reportAttributeAccessIssue]


async def test_what_is_reached_after_the_end_is_cancelled() -> None:
    ended = False

    def ends(_: Any, __: Any) -> Any:
        nonlocal ended
        ended = True
        return {"passed": True}

    documents = [custom("ends"), check(id="later"), every(check(), id="composite"), custom("ends", id="again")]
    outcomes = await judged(documents, VALUE, {"ends": ends}, cancellation=lambda: ended)
    assert [outcome.error_code for outcome in outcomes] == [None, *["EVALUATION_CANCELLED"] * 3]
    assert not any(outcome.passed for outcome in outcomes[1:])


def test_criteria_that_were_not_evaluated_keep_what_they_are() -> None:
    (outcome,) = unevaluated(criteria(check(label="x", severity="advisory")), "EVALUATION_TIMEOUT")
    said = (outcome.id, outcome.kind, outcome.label, outcome.severity, outcome.passed, outcome.error_code)
    assert said == ("c", "check", "x", "advisory", False, "EVALUATION_TIMEOUT")


# --- judges ----------------------------------------------------------------------------------------------------

JUDGE = {"id": "j", "kind": "judge", "recipe": "rubric", "criterion": "Polite.", "path": ["reply"], "minimum": 0.5}

JUDGEMENTS: list[tuple[str, Judgement, bool, str | None]] = [
    ("above", Judgement(0.6, "fine"), True, None),
    ("just", Judgement(0.5), True, None),
    ("below", Judgement(0.4), False, None),
    ("none", Judgement(None, "judge-call-failed"), False, "JUDGE_UNAVAILABLE"),
]


@pytest.mark.parametrize(
    ("judgement", "passed", "code"), [row[1:] for row in JUDGEMENTS], ids=[row[0] for row in JUDGEMENTS]
)
async def test_a_judge_s_score_is_held_against_the_minimum(
    judgement: Judgement, passed: bool, code: str | None
) -> None:
    asked: list[tuple[str, Any]] = []

    async def judge(assertion: Any, material: Any, _: Any) -> Judgement:
        asked.append((assertion.criterion, material))
        return judgement

    evaluators = Evaluators(functions={}, run_blocking=at_once, judge=judge)
    context = EvaluationContext(evidence=Observation(value={"reply": "hello"}))
    (outcome,) = await evaluate(criteria(JUDGE), context, evaluators)
    assert asked == [("Polite.", "hello")]
    assert (outcome.passed, outcome.error_code, outcome.reason) == (passed, code, judgement.reason)
    assert (outcome.evidence or {}).get("score") == judgement.score
    assert outcome.expected == {"recipe": "rubric", "criterion": "Polite.", "minimum": 0.5}


async def test_without_a_judge_nothing_is_judged_and_without_material_nobody_is_asked() -> None:
    outcome = await judged_alone(JUDGE, {"reply": "hello"})
    assert (outcome.error_code, outcome.reason) == ("JUDGE_UNAVAILABLE", "judge:not-declared")
    outcome = await judged_alone(JUDGE, {})
    assert (outcome.passed, outcome.error_code, outcome.actual) == (False, None, MISSING)


# --- results as JSON -------------------------------------------------------------------------------------------

SHOWN: list[tuple[Document, dict[str, Any]]] = [
    (
        check("equals", ["a"], value=None),
        {
            "passed": False,
            "operator": "equals",
            "path": ["a"],
            "actual": {"present": True, "value": 1},
            "expected": None,
        },
    ),
    (check("exists", ["b"]), {"passed": False, "operator": "exists", "path": ["b"], "actual": {"present": False}}),
]


@pytest.mark.parametrize(("document", "shown"), SHOWN)
async def test_a_result_tells_null_from_nothing(document: Document, shown: dict[str, Any]) -> None:
    value = outcome_value(await judged_alone(document, VALUE))
    assert value == {"id": "c", "kind": "check"} | shown


async def test_a_composite_s_result_holds_its_children() -> None:
    value = outcome_value(await judged_alone(either(NO, BROKEN), VALUE))
    assert (value["kind"], value["errorCode"], [child["id"] for child in value["children"]]) == (
        "any", "EVALUATOR_NOT_FOUND", ["no", "broken"],
    )  # fmt: skip
