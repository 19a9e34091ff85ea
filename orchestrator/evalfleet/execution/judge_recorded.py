"""Judging what an earlier attempt recorded: its open questions are asked, and nothing of it runs again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from evalfleet.execution.job import AttemptControl, AttemptJob, AttemptServices
from evalfleet.execution.judging import EVALUATOR_ERROR, Judged
from evalfleet.execution.seal import concluded
from evalfleet.execution.state import AttemptState
from evalfleet.grading.fold import judge_row
from evalfleet.grading.judge_prompts import Question
from evalfleet.model.assertion import AssertionResult, AssertionRow, Result
from evalfleet.model.record import AttemptEvidence


async def judge_recorded(
    job: AttemptJob, services: AttemptServices, recorded: AttemptEvidence, questions: Mapping[int, Question]
) -> AttemptEvidence:
    """The evidence of `recorded` under the number of `job`, with its open questions answered, and its judgement."""
    state = AttemptState(job, services)
    state.turns = list(recorded.turns)
    state.skip_reason = recorded.summary.skip_reason
    state.judge_calls += recorded.judge_calls
    for text in recorded.diagnostics:
        state.note(text)
    rows = [
        row if (question := questions.get(row.index)) is None else await _answered(row, question, state)
        for row in recorded.assertions
    ]
    control = AttemptControl()
    control.started_at = recorded.summary.started_at
    return concluded(state, control, tuple(rows), recorded.summary.duration)


async def _answered(row: AssertionRow, question: Question, state: AttemptState) -> AssertionRow:
    judging = state.services.judging
    try:
        if judging is None:
            raise RuntimeError("nothing to ask a judge with")
        outcome = await judging.judge(Judged(question), row.index, state)
    except Exception as error:  # noqa: BLE001 - our own mistake is this assertion's error and no other's
        state.note_error(error)
        outcome = AssertionResult(result=Result.ERRORED, reason=f"{EVALUATOR_ERROR}:{type(error).__name__}")
    holds, earned, _ = judge_row(state.job.definition.style, row.name, outcome, row.policy)
    return replace(row, outcome=outcome, holds=holds, earned=earned)
