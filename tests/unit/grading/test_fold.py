"""Semantics §3: what a row means, the verdict in its order, the score in its three states."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.grading.fold import (
    ASSERTION_ERRORED,
    ASSERTION_UNAVAILABLE,
    NO_ASSERTIONS,
    PASS_MEASUREMENT_THRESHOLD_MISSING,
    SCORE_OUT_OF_RANGE,
    fold,
    judge_row,
)
from evalfleet.model.assertion import AssertionPolicy, AssertionResult, AssertionRow, Result
from evalfleet.model.verdict import Judgement, Score, ScoreState, Style, Verdict

PASS, SCORE = Style.PASS, Style.SCORE
COVERAGE = "coverage:actions=partial (lossy)"


def outcome(result: Any, reason: str | None = None) -> AssertionResult:
    """`result` is T, F, U, E or a measurement."""
    letters = {"T": Result.MATCHED, "F": Result.MISMATCHED, "U": Result.UNAVAILABLE, "E": Result.ERRORED}
    if isinstance(result, str):
        reason = reason or {"U": COVERAGE, "E": "evaluator-error:KeyError"}.get(result)
        return AssertionResult(result=letters[result], reason=reason)
    return AssertionResult(result=Result.MATCHED, measurement=result)


def row(result: Any, *, name: str = "check", reason: str | None = None, **policy: Any) -> AssertionRow:
    return AssertionRow(
        index=0,
        name=name,
        scope="value",
        criterion=None,
        policy=AssertionPolicy(**policy),
        outcome=outcome(result, reason),
    )


FAILURE = AttemptFailure(FailureKind.PROVIDER, "RATE_LIMITED", "429 for too long")


@pytest.mark.parametrize(
    ("style", "result", "policy", "holds", "earned", "gate"),
    [
        # Boolean: enters the verdict in pass-style, recorded only in score-style
        (PASS, "T", {}, True, None, True),
        (PASS, "F", {}, False, None, True),
        (PASS, "U", {}, None, None, True),
        (PASS, "E", {}, None, None, True),
        (PASS, "F", {"optional": True}, False, None, True),
        (SCORE, "T", {}, True, None, False),
        (SCORE, "F", {}, False, None, False),
        (SCORE, "F", {"gate": True}, False, None, True),
        # measurement: only with .gate(min); at_least is recorded without effect
        (PASS, 0.5, {"gate": True, "gate_min": 0.5}, True, None, True),
        (PASS, 0.4, {"gate": True, "gate_min": 0.5}, False, None, True),
        (PASS, 0.5, {"at_least": 0.6}, False, None, False),
        (PASS, "U", {"at_least": 0.6}, None, None, False),
        (PASS, 0.5, {"optional": True}, None, None, False),
        (SCORE, 0.5, {}, None, None, False),
        (SCORE, 0.5, {"gate": True, "gate_min": 0.6}, False, None, True),
        # .score(points): Boolean points or 0; measurement m × points; unavailable unknown, never 0
        (SCORE, "T", {"points": 3}, True, 3, False),
        (SCORE, "F", {"points": 3}, False, 0, False),
        (SCORE, "U", {"points": 3}, None, None, False),
        (SCORE, "E", {"points": 3}, None, None, False),
        (SCORE, 0.25, {"points": 4}, None, 1, False),
        (SCORE, 0.0, {"points": 4}, None, 0, False),
        (SCORE, "T", {"points": 0}, True, 0, False),
        (SCORE, 0.4, {"points": 10, "gate": True, "gate_min": 0.5}, False, 4, True),
        # numbers that are no measurement are never clamped and never 0
        (SCORE, math.nan, {"points": 1}, None, None, False),
        (SCORE, 1.5, {"points": 1, "gate": True, "gate_min": 0.5}, None, None, True),
        (SCORE, -0.1, {"points": 1}, None, None, False),
        (SCORE, True, {"points": 2}, None, 2, False),
    ],
)
def test_what_a_row_means(
    style: Style, result: Any, policy: dict[str, Any], holds: bool | None, earned: float | None, gate: bool
) -> None:
    assert judge_row(style, "check", outcome(result), AssertionPolicy(**policy)) == (holds, earned, gate)


@pytest.mark.parametrize("style", [PASS, SCORE])
def test_a_plain_assert_is_a_gate_in_both_styles(style: Style) -> None:
    assert judge_row(style, "assert", outcome("F"), AssertionPolicy()).gate
    assert fold(style, None, [row("F", name="assert")]).verdict is Verdict.FAILED


GATED = {"gate": True}


@pytest.mark.parametrize(
    ("style", "failure", "rows", "skip", "verdict"),
    [
        # execution errored → errored, whatever else
        (PASS, FAILURE, [row("T")], None, "errored"),
        (PASS, FAILURE, [row("F")], "reason", "errored"),
        (SCORE, FAILURE, [], None, "errored"),
        # a non-optional unavailable or errored assertion → errored, even beside a failed gate or a skip
        (PASS, None, [row("T"), row("U")], None, "errored"),
        (PASS, None, [row("F"), row("U")], None, "errored"),
        (PASS, None, [row("E")], "reason", "errored"),
        (PASS, None, [row("U", optional=True)], None, "passed"),
        (PASS, None, [row("E", optional=True)], None, "passed"),
        (PASS, None, [row("U", at_least=0.5)], None, "errored"),
        # a failed gate → failed, even beside a skip
        (PASS, None, [row("T"), row("F")], None, "failed"),
        (PASS, None, [row("F")], "reason", "failed"),
        (PASS, None, [row("F", optional=True)], None, "failed"),
        (PASS, None, [row(0.4, gate=True, gate_min=0.5)], None, "failed"),
        (PASS, None, [row(0.4, at_least=0.5)], None, "passed"),
        # t.skip → skipped
        (PASS, None, [row("T")], "reason", "skipped"),
        (PASS, None, [], "reason", "skipped"),
        (SCORE, None, [], "reason", "skipped"),
        # else passed
        (PASS, None, [row("T"), row(0.9, gate=True, gate_min=0.5)], None, "passed"),
        (SCORE, None, [], None, "passed"),
        # score-style: a Boolean is recorded only, a gate decides
        (SCORE, None, [row("F")], None, "passed"),
        (SCORE, None, [row("F", **GATED)], None, "failed"),
        (SCORE, None, [row("F", points=2)], None, "passed"),
        # score-style: a record-only assertion without an answer does not error, one that scores or gates does
        (SCORE, None, [row("U")], None, "passed"),
        (SCORE, None, [row("U", points=1)], None, "errored"),
        (SCORE, None, [row("U", **GATED)], None, "errored"),
        (SCORE, None, [row("U", points=1, optional=True)], None, "passed"),
        (SCORE, None, [row("E")], None, "passed"),
        (SCORE, None, [row("E", points=1)], None, "errored"),
        (SCORE, None, [row("E", **GATED)], None, "errored"),
        (SCORE, None, [row("E", points=1, optional=True)], None, "passed"),
        (SCORE, None, [row(math.nan)], None, "passed"),
        (SCORE, None, [row(math.nan, points=1)], None, "errored"),
    ],
)
def test_the_verdict_in_its_order(
    style: Style, failure: AttemptFailure | None, rows: list[AssertionRow], skip: str | None, verdict: str
) -> None:
    assert fold(style, failure, rows, skip).verdict.value == verdict


@pytest.mark.parametrize(
    ("failure", "rows", "skip", "state", "earned"),
    [
        # complete: 0 is a number
        (None, [], None, "complete", 0),
        (None, [row("F", points=3)], None, "complete", 0),
        (None, [row("T", points=3), row(0.5, points=4), row("U")], None, "complete", 5),
        # a failed gate keeps what was earned
        (None, [row("T", points=3), row("F", gate=True)], None, "complete", 3),
        (None, [row("T", points=3), row("F", name="assert")], None, "complete", 3),
        # partial: a known lower bound
        (None, [row("T", points=3), row("U", points=1)], None, "partial", 3),
        (None, [row("F", points=3), row("E", points=1)], None, "partial", 0),
        (None, [row("T", points=3), row("U", points=1, optional=True)], None, "partial", 3),
        (FAILURE, [row("T", points=3)], None, "partial", 3),
        (None, [row("T", points=3)], "reason", "partial", 3),
        # unavailable: nothing is known
        (None, [row("U", points=1)], None, "unavailable", None),
        (None, [row(math.inf, points=1)], None, "unavailable", None),
        (FAILURE, [], None, "unavailable", None),
        (None, [], "reason", "unavailable", None),
    ],
)
def test_the_score_in_its_states(
    failure: AttemptFailure | None, rows: list[AssertionRow], skip: str | None, state: str, earned: float | None
) -> None:
    assert fold(SCORE, failure, rows, skip).score == Score(ScoreState(state), earned)


def test_a_pass_eval_has_no_score() -> None:
    assert fold(PASS, None, [row("T")]).score is None


@pytest.mark.parametrize(
    ("style", "skip", "allowed", "verdict", "code"),
    [
        (PASS, None, False, Verdict.ERRORED, NO_ASSERTIONS),
        (PASS, None, True, Verdict.PASSED, None),
        (PASS, "reason", False, Verdict.SKIPPED, None),
        (SCORE, None, False, Verdict.PASSED, None),
    ],
)
def test_an_attempt_without_assertions(
    style: Style, skip: str | None, allowed: bool, verdict: Verdict, code: str | None
) -> None:
    found = fold(style, None, [], skip, allowed)
    assert (found.verdict, found.code) == (verdict, code)
    assert found.kind is (FailureKind.AUTHORING if code else None)


@pytest.mark.parametrize(
    ("rows", "kind", "code"),
    [
        ([row("U")], FailureKind.ADAPTER, ASSERTION_UNAVAILABLE),
        ([row("U", reason="evidence:orphan-finishes=1")], FailureKind.ADAPTER, ASSERTION_UNAVAILABLE),
        ([row("U", reason="judge-key-unresolved (JUDGE_KEY unset)")], FailureKind.JUDGE, ASSERTION_UNAVAILABLE),
        ([row("U", reason="evaluator:unscored")], FailureKind.GRADER, ASSERTION_UNAVAILABLE),
        ([row("U", reason="not-recorded")], FailureKind.GRADER, ASSERTION_UNAVAILABLE),
        ([row("U", reason="diff-elided: src/big.bin")], FailureKind.SANDBOX, ASSERTION_UNAVAILABLE),
        ([row("E")], FailureKind.GRADER, ASSERTION_ERRORED),
        ([row("E", reason="judge-evaluator-error")], FailureKind.JUDGE, ASSERTION_ERRORED),
        ([row(2.0, gate=True, gate_min=0.5)], FailureKind.GRADER, ASSERTION_ERRORED),
        # the first decisive one is to blame
        ([row("T"), row("U", optional=True), row("E"), row("U")], FailureKind.GRADER, ASSERTION_ERRORED),
        ([row("F"), row("U", reason="judge: 503"), row("E")], FailureKind.JUDGE, ASSERTION_UNAVAILABLE),
    ],
)
def test_the_blame_of_an_errored_verdict(rows: list[AssertionRow], kind: FailureKind, code: str) -> None:
    found = fold(PASS, None, rows)
    assert (found.verdict, found.kind, found.code) == (Verdict.ERRORED, kind, code)


def test_a_record_only_assertion_is_never_to_blame() -> None:
    found = fold(SCORE, None, [row("U"), row("U", reason="judge: 503", points=1)])
    assert found.kind is FailureKind.JUDGE


def test_the_execution_is_to_blame_before_any_assertion() -> None:
    assert fold(PASS, FAILURE, [row("E")]) == Judgement(
        verdict=Verdict.ERRORED, kind=FailureKind.PROVIDER, code="RATE_LIMITED", message="429 for too long"
    )


@pytest.mark.parametrize(
    ("style", "rows", "code"),
    [
        (PASS, [row(0.5)], PASS_MEASUREMENT_THRESHOLD_MISSING),
        (PASS, [row(0.5, gate=True)], "GATE_MINIMUM_MISSING"),
        (PASS, [row("T"), row("T", points=1)], "PASS_SCORE_REFUSED"),
        (SCORE, [row("T", points=-1)], SCORE_OUT_OF_RANGE),
        (SCORE, [row("T", points=math.nan)], SCORE_OUT_OF_RANGE),
        (SCORE, [row("T", points=float("1e400"))], SCORE_OUT_OF_RANGE),
        (SCORE, [row(0.5, points=10**400)], SCORE_OUT_OF_RANGE),
        (SCORE, [row("T", points=1.7e308), row("T", points=1.7e308)], SCORE_OUT_OF_RANGE),
        (SCORE, [row(0.5, gate=True, points=1)], "GATE_MINIMUM_MISSING"),
    ],
)
def test_what_an_author_may_not_configure(style: Style, rows: list[AssertionRow], code: str) -> None:
    found = fold(style, None, rows)
    assert (found.verdict, found.kind, found.code) == (Verdict.ERRORED, FailureKind.AUTHORING, code)


def test_the_message_names_the_deciding_assertion() -> None:
    named = AssertionRow(
        index=0,
        name="called_tool",
        scope="t",
        criterion={"criterion": "called_tool", "tool": {"name": "weather"}},
        policy=AssertionPolicy(),
        outcome=outcome("F"),
        label="asks the weather",
    )
    said = 'called_tool (asks the weather): expected {"name": "weather"}, got nothing'
    assert fold(PASS, None, [row("T"), named, row("F")]).message == said
    assert fold(PASS, None, [row("U")]).message == f"check: {COVERAGE}"
    assert fold(PASS, None, [row("T")], "no network here").message == "no network here"


results: st.SearchStrategy[Any] = st.sampled_from(["T", "F", "U", "E"]) | st.floats(0, 1)
rows_of_score = st.lists(
    st.builds(
        row,
        results,
        points=st.none() | st.floats(0, 1e6),
        optional=st.booleans(),
        gate=st.none() | st.just(True),
        gate_min=st.floats(0, 1),
    ),
    max_size=6,
)
rows_of_pass = st.lists(st.builds(row, results, optional=st.booleans(), at_least=st.floats(0, 1)), max_size=6)
styled = st.tuples(st.just(SCORE), rows_of_score) | st.tuples(st.just(PASS), rows_of_pass)


@settings(deadline=None)
@given(styled, st.randoms(), st.none() | st.just("skip"))
def test_order_decides_only_who_is_named(
    styled_rows: tuple[Style, list[AssertionRow]], random: Any, skip: str | None
) -> None:
    style, rows = styled_rows
    shuffled = list(rows)
    random.shuffle(shuffled)
    one, other = fold(style, None, rows, skip), fold(style, None, shuffled, skip)
    assert (one.verdict, one.score) == (other.verdict, other.score)


@settings(deadline=None)
@given(styled, st.none() | st.just("skip"), st.none() | st.just(FAILURE))
def test_what_every_judgement_is(
    styled_rows: tuple[Style, list[AssertionRow]], skip: str | None, failure: AttemptFailure | None
) -> None:
    style, rows = styled_rows
    found = fold(style, failure, rows, skip)
    assert (found.verdict is Verdict.ERRORED) is (found.kind is not None) is (found.code is not None)
    assert (found.score is None) is (style is PASS)
    if found.score is not None:
        assert (found.score.earned is None) is (found.score.state is ScoreState.UNAVAILABLE)
        assert found.score.earned is None or found.score.earned >= 0
    assert fold(style, failure, rows, skip) == found


@settings(deadline=None)
@given(rows_of_score)
def test_an_unknown_contribution_is_never_zero_and_known(rows: list[AssertionRow]) -> None:
    unknown = any(
        each.policy.points is not None and each.outcome.result.value in ("unavailable", "errored") for each in rows
    )
    score = fold(SCORE, None, rows).score
    assert score is not None
    assert (score.state is ScoreState.COMPLETE) is not unknown
