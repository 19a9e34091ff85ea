"""Rows of the reader's statements as the values of `model.report`. PURE."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from evalfleet.errors import FailureKind
from evalfleet.model.comparison import Origin, SideCase
from evalfleet.model.grading import Grading
from evalfleet.model.report import AttemptView, CaseView, RunInfo
from evalfleet.model.usage import Usage
from evalfleet.model.verdict import CaseStatus, Outcome, RunKind, RunStatus, ScoreState, Settlement, Style, Verdict


def run_info(row: Sequence[Any]) -> RunInfo:
    identifier, kind, name, project, status, total, created_at, started_at, finished_at, beat = row[:10]
    holder, host, pid, stop_reason, derived_from, digest, experiment, lock, interrupted, grading = row[10:20]
    return RunInfo(
        id=identifier,
        kind=RunKind(kind),
        name=name,
        project=project,
        status=RunStatus(status),
        total=total,
        created_at=created_at,
        started_at=started_at,
        finished_at=finished_at,
        beat=beat,
        holder=None if holder is None else {"id": holder, "host": host, "pid": pid},
        interrupted=interrupted,
        stop_reason=stop_reason,
        derived_from=derived_from,
        digest=digest,
        experiment=json.loads(experiment),
        lock=json.loads(lock),
        grading=grading,
    )


def grading_view(row: Sequence[Any]) -> Grading:
    number, at, who, why, evaluation, sources = row
    return Grading(number=number, at=at, who=who, why=why, evaluation=evaluation, sources=json.loads(sources))


def case_view(row: Sequence[Any]) -> CaseView:
    ordinal, arm, eval_id, style, repetition, status, how, verdict, kind, code, message = row[:11]
    state, earned, attempt, attempts, duration, reply, tags, variants, from_run, from_attempt = row[11:21]
    from_grading, estimated = row[21:23]
    usage = _usage(row[23:31])
    return CaseView(
        ordinal=ordinal,
        arm=arm,
        eval_id=eval_id,
        style=Style(style),
        repetition=repetition,
        status=CaseStatus(status),
        settlement=None if how is None else Settlement(how),
        verdict=None if verdict is None else Verdict(verdict),
        kind=None if kind is None else FailureKind(kind),
        code=code,
        message=message,
        score_state=None if state is None else ScoreState(state),
        earned=earned,
        attempt=attempt,
        attempts=attempts,
        duration=duration,
        usage=usage,
        cost_usd=_cost(usage, estimated),
        reply=reply,
        tags=() if tags is None else tuple(tags),
        variants={} if variants is None else json.loads(variants),
        carried_from=None if from_run is None else (from_run, from_attempt),
        carried_grading=from_grading or 0,
    )


def side_case(run: str, row: Sequence[Any]) -> SideCase:
    """A case of a run for a comparison; one that is not settled is pending."""
    ordinal, eval_id, definition, digest, variants, repetition, style, how, verdict, kind = row[:10]
    state, earned, *made = row[10:16]
    status = CaseStatus.PENDING
    if how is not None:
        status = CaseStatus(verdict if how in ("attempt", "carried") else how)
    return SideCase(
        ordinal=ordinal,
        eval_id=eval_id,
        definition=definition,
        row=digest,
        variants=variants,
        repetition=repetition,
        style=Style(style),
        status=status,
        kind=None if kind is None else FailureKind(kind),
        score_state=None if state is None else ScoreState(state),
        earned=earned,
        origin=_origin(run, *made),
    )


def _origin(
    run: str, attempt: int | None, from_run: str | None, from_attempt: int | None, copied: str | None
) -> Origin | None:
    if copied is not None:
        return "", copied
    if from_run is not None and from_attempt is not None:
        return from_run, from_attempt
    return None if attempt is None else (run, attempt)


def attempt_view(row: Sequence[Any]) -> AttemptView:
    attempt, ordinal, number, outcome, settles, worker, started_at, duration, verdict, kind = row[:10]
    code, message, reply, sanitised, estimated = row[10:15]
    usage = _usage(row[15:23])
    return AttemptView(
        attempt=attempt,
        case=ordinal,
        number=number,
        outcome=Outcome(outcome),
        settles=settles,
        worker=worker,
        started_at=started_at,
        duration=duration,
        verdict=None if verdict is None else Verdict(verdict),
        kind=None if kind is None else FailureKind(kind),
        code=code,
        message=message,
        usage=usage,
        cost_usd=_cost(usage, estimated),
        reply=reply,
        text_sanitised=sanitised,
    )


def _usage(columns: Sequence[Any]) -> Usage | None:
    if columns.count(None) == len(columns):
        return None
    given, output, cache_read, cache_write, reasoning, requests, cost, unknown_calls = columns
    return Usage(
        input_tokens=given,
        output_tokens=output,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        reasoning_tokens=reasoning,
        requests=requests,
        cost_usd=cost,
        unknown_calls=unknown_calls or 0,
    )


def _cost(usage: Usage | None, estimated: float | None) -> float | None:
    """What an attempt cost as far as it is known: observed, else estimated."""
    return estimated if usage is None or usage.cost_usd is None else usage.cost_usd
