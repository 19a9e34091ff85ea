"""The verdict and the score of an attempt, folded from recorded facts alone: folding again gives the same answer."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.grading.explain import Clean, explain, title
from evalfleet.model.assertion import AssertionPolicy, AssertionResult, AssertionRow, Result
from evalfleet.model.verdict import Judgement, Score, ScoreState, Style, Verdict

#: The name of the row that a failed plain `assert` leaves; it gates in both styles.
ASSERT = "assert"

NO_ASSERTIONS = "NO_ASSERTIONS"
PASS_MEASUREMENT_THRESHOLD_MISSING = "PASS_MEASUREMENT_THRESHOLD_MISSING"
GATE_MINIMUM_MISSING = "GATE_MINIMUM_MISSING"
PASS_SCORE_REFUSED = "PASS_SCORE_REFUSED"
SCORE_OUT_OF_RANGE = "SCORE_OUT_OF_RANGE"
ASSERTION_UNAVAILABLE = "ASSERTION_UNAVAILABLE"
ASSERTION_ERRORED = "ASSERTION_ERRORED"

_KNOWN = (Result.MATCHED, Result.MISMATCHED)

#: How reasons begin, and whom they blame.
_BLAMED = (
    ("judge", FailureKind.JUDGE),
    ("evaluator", FailureKind.GRADER),
    ("not-recorded", FailureKind.GRADER),
    ("not-evaluated", FailureKind.GRADER),
    ("diff", FailureKind.SANDBOX),
    ("sandbox", FailureKind.SANDBOX),
)


class RowJudgement(NamedTuple):
    """What one row means: whether it holds (None: not known), what it earned, whether it decides the verdict."""

    holds: bool | None
    earned: float | None
    gate: bool


@dataclass(frozen=True, slots=True)
class _Blame:
    """Why an attempt forms no verdict."""

    kind: FailureKind
    code: str
    message: str


_OVERFLOW = _Blame(FailureKind.AUTHORING, SCORE_OUT_OF_RANGE, "the score is too large to be a number")


def judge_row(style: Style, name: str, result: AssertionResult, policy: AssertionPolicy) -> RowJudgement:
    """Apply a row's policy to its result.

    A Boolean holds when matched. A measurement holds at or above its threshold; without one, nothing is known.
    `earned` is None when nothing is scored, or when what was scored is unknown.
    """
    measurement = result.measurement
    by_style = style is Style.PASS and policy.gate is None and policy.at_least is None and measurement is None
    gate = policy.gate is True or name == ASSERT or by_style
    if result.result not in _KNOWN or not _is_formed(result):
        return RowJudgement(None, None, gate)
    points = policy.points if _is_weight(policy.points) else None
    if measurement is None:
        holds = result.result is Result.MATCHED
        return RowJudgement(holds, None if points is None else points if holds else 0.0, gate)
    threshold = policy.at_least if policy.gate_min is None else policy.gate_min
    holds = None if threshold is None else measurement >= threshold
    return RowJudgement(holds, None if points is None else measurement * points, gate)


def fold(
    style: Style,
    failure: AttemptFailure | None,
    rows: Sequence[AssertionRow],
    skip_reason: str | None = None,
    allow_no_assertions: bool = False,
    clean: Clean = str,
) -> Judgement:
    """The judgement of an attempt, in this order: errored, failed, skipped, passed.

    `failure` is how the execution ended without an answer; `skip_reason` what `t.skip` was given. An
    errored judgement blames the failure, else the first decisive row. `clean` takes out of a message what may not
    be shown.
    """
    judged = [(row, judge_row(style, row.name, row.outcome, row.policy)) for row in rows]
    blame = _blame(style, failure, judged, needs_rows=not allow_no_assertions and skip_reason is None)
    score: Score | None = None
    if style is Style.SCORE:
        score = _score(judged, cut_short=failure is not None or skip_reason is not None)
        if score is None:
            score, blame = Score(ScoreState.UNAVAILABLE, None), blame or _OVERFLOW
    if blame is not None:
        return Judgement(verdict=Verdict.ERRORED, score=score, kind=blame.kind, code=blame.code, message=blame.message)
    failed = next((row for row, judgement in judged if judgement.gate and judgement.holds is False), None)
    if failed is not None:
        return Judgement(verdict=Verdict.FAILED, score=score, message=explain(failed, clean))
    if skip_reason is not None:
        return Judgement(verdict=Verdict.SKIPPED, score=score, message=skip_reason)
    return Judgement(verdict=Verdict.PASSED, score=score)


_Judged: TypeAlias = tuple[AssertionRow, RowJudgement]


def _blame(
    style: Style, failure: AttemptFailure | None, judged: Iterable[_Judged], *, needs_rows: bool
) -> _Blame | None:
    """The first thing that keeps the attempt from forming a verdict."""
    if failure is not None:
        return _Blame(failure.kind, failure.code, str(failure))
    empty = True
    for row, judgement in judged:
        empty = False
        fault = _authoring_fault(style, row) or _row_fault(style, row, judgement)
        if fault is not None:
            return fault
    if empty and needs_rows and style is Style.PASS:
        message = "the eval registered no assertion; say allow_no_assertions=True if that is meant"
        return _Blame(FailureKind.AUTHORING, NO_ASSERTIONS, message)
    return None


def _authoring_fault(style: Style, row: AssertionRow) -> _Blame | None:
    """What the author configured and no eval of this style may have."""
    policy = row.policy
    if style is Style.PASS and policy.points is not None:
        message = f"{title(row)}: .score() belongs to a score eval"
        return _Blame(FailureKind.AUTHORING, PASS_SCORE_REFUSED, message)
    if policy.points is not None and not _is_weight(policy.points):
        message = f"{title(row)}: .score() needs a finite number of at least 0"
        return _Blame(FailureKind.AUTHORING, SCORE_OUT_OF_RANGE, message)
    if row.outcome.measurement is None:
        return None
    if policy.gate is True and policy.gate_min is None:
        message = f"{title(row)}: a measurement gates with .gate(minimum)"
        return _Blame(FailureKind.AUTHORING, GATE_MINIMUM_MISSING, message)
    told = policy.optional or policy.gate_min is not None or policy.at_least is not None
    if style is Style.PASS and not told:
        message = f"{title(row)}: a measurement needs .gate(minimum), .at_least(minimum) or .optional()"
        return _Blame(FailureKind.AUTHORING, PASS_MEASUREMENT_THRESHOLD_MISSING, message)
    return None


def _row_fault(style: Style, row: AssertionRow, judgement: RowJudgement) -> _Blame | None:
    """Whether a row without an answer keeps the attempt from one.

    In a score eval one that neither scores nor gates does not: what is only recorded can't decide.
    """
    result = row.outcome.result if _is_formed(row.outcome) else Result.ERRORED
    if result in _KNOWN or row.policy.optional:
        return None
    if style is Style.SCORE and not judgement.gate and row.policy.points is None:
        return None
    if result is Result.ERRORED:
        reason = row.outcome.reason or "evaluator-error:measurement-out-of-range"
        return _Blame(_blamed(reason, FailureKind.GRADER), ASSERTION_ERRORED, f"{title(row)}: {reason}")
    reason = row.outcome.reason or "coverage:unknown"
    return _Blame(_blamed(reason, FailureKind.ADAPTER), ASSERTION_UNAVAILABLE, f"{title(row)}: {reason}")


def _blamed(reason: str, otherwise: FailureKind) -> FailureKind:
    """Who a reason blames by how it begins; evidence that is missing is its bringer's fault."""
    return next((kind for beginning, kind in _BLAMED if reason.startswith(beginning)), otherwise)


def _score(judged: Iterable[_Judged], *, cut_short: bool) -> Score | None:
    """The sum of what is known, complete when nothing is unknown; None when it is no finite number.

    An optional row stays out of the verdict, but what it might have earned is still unknown.
    """
    scored = [judgement.earned for row, judgement in judged if row.policy.points is not None]
    known = [earned for earned in scored if earned is not None]
    try:
        earned = math.fsum(known)
    except (OverflowError, ValueError):  # an overflow between finite numbers, or an infinity on both sides
        return None
    if not math.isfinite(earned):
        return None
    if not cut_short and len(known) == len(scored):
        return Score(ScoreState.COMPLETE, earned)
    return Score(ScoreState.PARTIAL, earned) if known else Score(ScoreState.UNAVAILABLE, None)


def _is_formed(result: AssertionResult) -> bool:
    """Whether the measurement is one, or there is none: a number outside [0, 1] is an error, never clamped."""
    measurement: Any = result.measurement
    return measurement is None or (isinstance(measurement, (int, float)) and 0 <= measurement <= 1)


def _is_weight(points: Any) -> bool:
    """Whether points are a finite number of at least 0 that a float can hold."""
    is_number = isinstance(points, (int, float)) and not isinstance(points, bool)
    return is_number and 0 <= points <= sys.float_info.max
