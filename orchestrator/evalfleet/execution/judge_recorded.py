"""Judging what an earlier attempt recorded: its open questions are asked, and nothing of it runs again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from evalfleet.execution.job import AttemptControl, AttemptJob, AttemptServices
from evalfleet.execution.judging import Judged, answered
from evalfleet.execution.seal import concluded
from evalfleet.execution.state import AttemptState
from evalfleet.execution.suite_rows import SUITE_ASSERTION, with_answers
from evalfleet.grading.fold import judge_row
from evalfleet.grading.judge_prompts import Question
from evalfleet.model.assertion import AssertionRow
from evalfleet.model.record import AttemptEvidence


async def judge_recorded(
    job: AttemptJob, services: AttemptServices, recorded: AttemptEvidence, questions: Mapping[int, Sequence[Question]]
) -> AttemptEvidence:
    """The evidence of `recorded` under the number of `job`, with its open questions answered, and its judgement."""
    state = AttemptState(job, services)
    state.turns = list(recorded.turns)
    state.skip_reason = recorded.summary.skip_reason
    state.judge_calls += recorded.judge_calls
    for text in recorded.diagnostics:
        state.note(text)
    rows = [
        row if (asked := questions.get(row.index)) is None else await _answered(row, asked, state)
        for row in recorded.assertions
    ]
    state.end_calls()
    control = AttemptControl()
    control.started_at = recorded.summary.started_at
    found = concluded(state, control, tuple(rows), recorded.summary.duration)
    summary = replace(found.summary, sandbox=recorded.summary.sandbox)
    return replace(found, summary=summary, attribution=recorded.attribution, attachments=recorded.attachments)


async def _answered(row: AssertionRow, asked: Sequence[Question], state: AttemptState) -> AssertionRow:
    said = [await answered(Judged(question), row.index, state) for question in asked]
    outcome, criterion = with_answers(row.criterion, said) if row.name == SUITE_ASSERTION else (said[0], row.criterion)
    holds, earned, _ = judge_row(state.job.definition.style, row.name, outcome, row.policy)
    return replace(row, criterion=criterion, outcome=outcome, holds=holds, earned=earned)
