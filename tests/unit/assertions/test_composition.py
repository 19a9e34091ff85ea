"""and, or and not are Kleene's, every part is evaluated, and nothing launders an error."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalfleet.assertions.match import (
    Evaluation,
    Match,
    all_of,
    any_of,
    evaluate_match,
    evaluate_now,
    kleene_and,
    kleene_not,
    kleene_or,
    negate,
)
from evalfleet.assertions.matchers import define_score_match, includes, json_match, satisfies, similarity
from evalfleet.assertions.tools import tool_match
from evalfleet.errors import AttemptFailure, AuthoringError, FailureKind
from evalfleet.model.assertion import AssertionResult, Result

T, F, U, E = Result.MATCHED, Result.MISMATCHED, Result.UNAVAILABLE, Result.ERRORED
LETTERS = {"T": T, "F": F, "U": U, "E": E}
results = st.sampled_from([T, F, U])


@dataclass(frozen=True, slots=True)
class Fixed(Match):
    """A matcher with a given answer."""

    result: Result

    def describe(self) -> Any:
        return {"match": "fixed", "result": self.result.value}

    def judge(self, value: Any) -> Evaluation:
        reason = {U: "coverage:events=partial (x)", E: "evaluator-error:KeyError"}.get(self.result)
        return AssertionResult(result=self.result, reason=reason)


@pytest.mark.parametrize(
    ("left", "right", "both", "either"),
    [
        "TTTT", "TFFT", "FTFT", "FFFF",
        "TUUT", "UTUT", "FUFU", "UFFU", "UUUU",
        "TEEE", "FEEE", "UEEE", "ETEE", "EFEE", "EUEE", "EEEE",
    ],
)  # fmt: skip
def test_the_kleene_table(left: str, right: str, both: str, either: str) -> None:
    pair = (Fixed(LETTERS[left]), Fixed(LETTERS[right]))
    assert evaluate_now(all_of(*pair), "v").result is LETTERS[both]
    assert evaluate_now(any_of(*pair), "v").result is LETTERS[either]


@pytest.mark.parametrize(("given_", "flipped"), ["TF", "FT", "UU", "EE"])
def test_not(given_: str, flipped: str) -> None:
    assert evaluate_now(negate(Fixed(LETTERS[given_])), "v").result is LETTERS[flipped]


@settings(deadline=None)
@given(a=results, b=results, c=results)
def test_kleene_laws(a: Result, b: Result, c: Result) -> None:
    for law in (kleene_and, kleene_or):
        assert law([a, b]) is law([b, a])
        assert law([law([a, b]), c]) is law([a, law([b, c])]) is law([a, b, c])
        assert law([a, a]) is a
    assert kleene_not(kleene_not(a)) is a
    assert kleene_not(kleene_and([a, b])) is kleene_or([kleene_not(a), kleene_not(b)])
    assert kleene_and([a, kleene_or([b, c])]) is kleene_or([kleene_and([a, b]), kleene_and([a, c])])
    assert kleene_and([a, kleene_or([a, b])]) is a


@settings(deadline=None)
@given(st.lists(st.sampled_from([T, F, U, E]), min_size=1))
def test_knowing_more_never_contradicts(parts: list[Result]) -> None:
    """Replacing what is unavailable by an answer keeps every definite result."""
    for answer in (T, F):
        known = [answer if part is U else part for part in parts]
        for law in (kleene_and, kleene_or):
            assert law(parts) in (law(known), U)


def test_every_part_is_evaluated_and_kept() -> None:
    asked: list[str] = []

    def asking(name: str, answer: bool) -> Match:
        return satisfies(name, lambda _: asked.append(name) is None and answer)

    found = evaluate_now(all_of(asking("a", False), any_of(asking("b", True), asking("c", True))), 0)
    assert asked == ["a", "b", "c"]
    assert [child.result for child in found.children] == [F, T]
    assert [child.result for child in found.children[1].children] == [T, T]


def test_the_deciding_parts_reason_is_the_reason() -> None:
    assert evaluate_now(Fixed(T) & Fixed(U), 0).reason == "coverage:events=partial (x)"
    assert evaluate_now(Fixed(U) | Fixed(E), 0).reason == "evaluator-error:KeyError"
    assert evaluate_now(Fixed(T) & Fixed(F), 0).reason is None


def test_operators_compose() -> None:
    match = (includes("a") & ~includes("b")) | includes("c")
    assert [evaluate_now(match, text).result for text in ("a", "ab", "abc")] == [T, F, T]
    assert match.describe() == {
        "match": "any_of",
        "parts": [
            {
                "match": "all_of",
                "parts": [includes("a").describe(), {"match": "negate", "parts": [includes("b").describe()]}],
            },
            includes("c").describe(),
        ],
    }


async def test_async_parts_are_waited_for() -> None:
    async def long(text: str) -> bool:
        return len(text) > 3

    match = ~(satisfies("long", long) & includes("x")) | includes("never")
    assert (await evaluate_match(match, "xxxx")).result is F
    assert (await evaluate_match(match, "x")).result is T
    assert len((await evaluate_match(match, "x")).children) == 2


@pytest.mark.parametrize(
    "build",
    [
        lambda: all_of(),
        lambda: any_of(),
        lambda: all_of("sunny"),
        lambda: negate(similarity("x")),
        lambda: any_of(includes("a"), define_score_match("s", lambda _: 1.0)),
        lambda: json_match({"a": similarity("x")}),
        lambda: tool_match("a", input=similarity("x")),
    ],
)
def test_only_boolean_matchers_compose(build: Any) -> None:
    with pytest.raises(AuthoringError):
        build()


def test_an_async_predicate_is_refused_where_nothing_can_wait() -> None:
    async def slow(_: Any) -> bool:
        return True

    for build in (
        lambda: json_match({"a": satisfies("slow", slow)}),
        lambda: tool_match("a", input=satisfies("s", slow)),
    ):
        with pytest.raises(AuthoringError, match="can't await"):
            build()


async def test_a_hidden_coroutine_that_waits_is_an_evaluator_error_and_is_closed() -> None:
    closed: list[str] = []

    async def slow(_: Any) -> bool:
        try:
            await asyncio.sleep(10)
        finally:
            closed.append("yes")
        return True

    found = evaluate_now(json_match({"a": satisfies("slow", lambda value: slow(value))}), {"a": 1})
    assert (found.result, closed) == (E, ["yes"])


def test_a_hidden_coroutine_that_does_not_wait_has_its_answer() -> None:
    async def quick(value: Any) -> bool:
        return value == 1

    match = json_match({"a": satisfies("quick", lambda value: quick(value))})
    assert [evaluate_now(match, {"a": value}).result for value in (1, 2)] == [T, F]


async def test_a_failure_that_is_already_attributed_keeps_its_blame() -> None:
    def dead(_: Any) -> bool:
        raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_LOST", "gone")

    async def dead_later(value: Any) -> bool:
        return dead(value)

    for predicate in (dead, dead_later):
        with pytest.raises(AttemptFailure):
            await evaluate_match(satisfies("alive", predicate), 0)


@pytest.mark.parametrize(("left", "right"), list(product([T, F, U], repeat=2)))
def test_a_gap_never_turns_one_answer_into_the_other(left: Result, right: Result) -> None:
    for match in (Fixed(left) & Fixed(right), Fixed(left) | ~Fixed(right)):
        before = evaluate_now(match, "v")
        assert match.under_gap(before, "gap").result in (before.result, U)
