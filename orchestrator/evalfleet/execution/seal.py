"""The end of an attempt: its rows, its judgement, and everything it left behind as plain data."""

from __future__ import annotations

import math
from typing import Any

from evalfleet.assertions.contradictions import contradictions
from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.execution.conversation import total_usage
from evalfleet.execution.job import AttemptControl
from evalfleet.execution.ledger import Ledger
from evalfleet.execution.state import AttemptState
from evalfleet.grading.fold import fold
from evalfleet.model.assertion import AssertionRow
from evalfleet.model.case import AttemptSummary, Case
from evalfleet.model.judge import JudgeCall
from evalfleet.model.record import AttemptEvidence
from evalfleet.model.turn import TurnRecord
from evalfleet.model.verdict import Judgement, Outcome, Verdict
from evalfleet.redact import MESSAGE_LIMIT, shorten
from evalfleet.redacted_values import redacted

#: The code of a diagnostic about an adapter that claims more than its turns show.
CONTRADICTED = "COVERAGE_CONTRADICTED"

#: Characters of the last reply that listings show.
REPLY_LIMIT = 240


def seal(ledger: Ledger, control: AttemptControl, duration: float) -> AttemptEvidence:
    """Judge what was recorded and close the attempt for good."""
    return concluded(ledger.state, control, ledger.rows(), duration)


def recording(ledger: Ledger, control: AttemptControl) -> AttemptEvidence:
    """What is known of an attempt before its judge is asked; what the judge is to answer is unavailable in it."""
    state = ledger.state
    duration = max(0.0, state.services.clock.wall() - (control.started_at or 0.0))
    rows, turns = ledger.rows(), tuple(sorted(state.turns, key=_sequence))
    summary = _summary(state, control, rows, turns, duration, False)
    return _kept(state, summary, turns, rows, state.diagnostics())


def concluded(
    state: AttemptState, control: AttemptControl, rows: tuple[AssertionRow, ...], duration: float
) -> AttemptEvidence:
    """The attempt with its judgement; nothing is added to it any more."""
    turns = tuple(sorted(state.turns, key=_sequence)) if len(state.turns) > 1 else tuple(state.turns)
    contradicted = contradictions(turns)
    for channel, what in contradicted:
        state.note(f"{CONTRADICTED} {channel}: the adapter declares it complete, but {what}")
    summary = _summary(state, control, rows, turns, duration, bool(contradicted))
    diagnostics = state.diagnostics()
    state.seal()
    return _kept(state, summary, turns, rows, diagnostics)


def _kept(
    state: AttemptState,
    summary: AttemptSummary,
    turns: tuple[TurnRecord, ...],
    rows: tuple[AssertionRow, ...],
    diagnostics: tuple[str, ...],
) -> AttemptEvidence:
    """Everything as it is kept: judged already, and from here on without secrets."""
    evidence = AttemptEvidence(
        summary=summary,
        turns=turns,
        assertions=rows,
        diagnostics=diagnostics,
        judge_calls=tuple(sorted(state.judge_calls, key=_draw)),
        attribution=state.attribution,
        attachments=dict(state.attachments),
        begun_by=state.job.begun_by,
    )
    return redacted(evidence, state.secrets.redactor)


def verdict_so_far(state: AttemptState, rows: tuple[AssertionRow, ...]) -> Verdict:
    """What the attempt comes to if nothing more happens to it."""
    return _judged(state, rows)[1].verdict


def never_ran(attempt: int, case: Case, failure: AttemptFailure, at: float) -> AttemptEvidence:
    """The evidence of an attempt that could not even begin; `at` is in seconds since the epoch."""
    judgement = fold(case.style, failure, ())
    summary = AttemptSummary(
        attempt=attempt,
        case=case.ordinal,
        outcome=_outcome(failure),
        verdict=judgement.verdict,
        kind=failure.kind,
        code=failure.code,
        message=shorten(str(failure), MESSAGE_LIMIT),
        score_state=None if judgement.score is None else judgement.score.state,
        started_at=at,
    )
    return AttemptEvidence(summary=summary, turns=(), assertions=())


def _summary(
    state: AttemptState,
    control: AttemptControl,
    rows: tuple[AssertionRow, ...],
    turns: tuple[TurnRecord, ...],
    duration: float,
    contradicted: bool,
) -> AttemptSummary:
    job = state.job
    outcome, judgement, extra = _judged(state, rows)
    if waited := state.waited:
        extra = {**extra, "waited": waited}
    usage = total_usage(turns)
    return AttemptSummary(
        attempt=job.attempt,
        case=job.case.ordinal,
        outcome=outcome,
        verdict=judgement.verdict,
        kind=judgement.kind,
        code=judgement.code,
        message=None if judgement.message is None else state.secrets.redactor.safe(judgement.message),
        score_state=None if judgement.score is None else judgement.score.state,
        earned=None if judgement.score is None else judgement.score.earned,
        skip_reason=state.skip_reason,
        usage=usage,
        estimated_usd=_estimated(state, turns),
        started_at=control.started_at or 0.0,
        duration=duration,
        turns=len(turns),
        events=sum(len(turn.events) for turn in turns),
        assertions=len(rows),
        reply=turns[-1].reply[:REPLY_LIMIT] if turns else None,
        retry_after=state.retry_after,
        contradicted=contradicted,
        acceptance_unknown=outcome is not Outcome.COMPLETED and state.may_have_written,
        sandbox=None if state.stay is None else state.stay.use,
        extra=extra,
    )


def _estimated(state: AttemptState, turns: tuple[TurnRecord, ...]) -> float | None:
    """What the turns cost by the price list; None when that of one is not known, since the sum is not either."""
    costs = [state.estimate(turn.usage) for turn in turns]
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if known and len(known) == len(costs) else None


def _judged(state: AttemptState, rows: tuple[AssertionRow, ...]) -> tuple[Outcome, Judgement, dict[str, Any]]:
    """The outcome and the judgement; after a failed cleanup errored, with what they would have been beside it."""
    outcome, judgement = _folded(state, state.failure, rows)
    if state.cleanup_failure is None:
        return outcome, judgement, {}
    before = judgement.verdict.value if outcome is Outcome.COMPLETED else outcome.value
    if state.failure is None:
        outcome, judgement = _folded(state, state.cleanup_failure, rows)
    return outcome, judgement, {"outcome_before_cleanup": before}


def _folded(
    state: AttemptState, failure: AttemptFailure | None, rows: tuple[AssertionRow, ...]
) -> tuple[Outcome, Judgement]:
    definition = state.job.definition
    judgement = fold(
        definition.style,
        failure,
        rows,
        state.skip_reason,
        definition.allow_no_assertions,
        state.secrets.redactor.text,
    )
    return _outcome(failure), judgement


def _outcome(failure: AttemptFailure | None) -> Outcome:
    if failure is None:
        return Outcome.COMPLETED
    return Outcome.CANCELLED if failure.kind is FailureKind.CANCELLED else Outcome.ERRORED


def _draw(call: JudgeCall) -> tuple[int, int]:
    return call.assertion, call.vote


def _sequence(turn: TurnRecord) -> int:
    return turn.sequence
