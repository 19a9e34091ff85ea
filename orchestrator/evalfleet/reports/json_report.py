"""The machine summary of a run and the rows of machine listings, as JSON values.

Text that an agent wrote is left out unless asked for; attempt ids are text, since they exceed 2^53; there is no NaN.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from evalfleet.model.report import ArmCounts, AttemptView, CaseView, RunInfo, RunProgress
from evalfleet.model.usage import Usage
from evalfleet.reports.classes import class_of
from evalfleet.reports.headline import Headline, PassHeadline
from evalfleet.reports.model import ArmReport, ReportModel
from evalfleet.reports.ranking import is_ranked
from evalfleet.reports.repetitions import PerEval
from evalfleet.reports.statistics import Interval

SCHEMA_VERSION = 1


def report_value(report: ReportModel) -> dict[str, Any]:
    """The summary: run, acceptance, totals by class, and each arm with its headline and counters."""
    return {
        "schema_version": SCHEMA_VERSION,
        "run": run_value(report.run),
        "accepted": report.accepted.decision,
        "reasons": list(report.accepted.reasons),
        "planned": report.planned,
        "totals": {each.value: number for each, number in report.totals.items()},
        "arms": [_arm(arm) for arm in report.arms],
        "judges": [dict(judge) for judge in report.judges],
        "budget": dict(report.budget),
    }


def run_value(run: RunInfo) -> dict[str, Any]:
    """One run as listed."""
    return {
        "id": run.id,
        "kind": run.kind.value,
        "name": run.name,
        "project": run.project,
        "status": run.status.value,
        "interrupted": run.interrupted,
        "stop_reason": run.stop_reason,
        "total": run.total,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "derived_from": run.derived_from,
        "digest": run.digest,
        "grading": run.grading,
    }


def case_value(case: CaseView, *, text: bool = False) -> dict[str, Any]:
    """One case as listed; `text` adds what the agent or a failure said."""
    value = {
        "case": case.ordinal,
        "arm": case.arm,
        "eval": case.eval_id,
        "variants": dict(case.variants),
        "repetition": case.repetition,
        "style": case.style.value,
        "tags": list(case.tags),
        "status": case.status.value,
        "class": class_of(case).value,
        "settlement": _name(case.settlement),
        "verdict": _name(case.verdict),
        "kind": _name(case.kind),
        "code": case.code,
        "score": _score(case),
        "attempts": case.attempts,
        "attempt": None if case.attempt is None else str(case.attempt),
        "duration": case.duration,
        "usage": usage_value(case.usage),
        "cost_usd": case.cost_usd,
        "carried_from": None
        if case.carried_from is None
        else {
            "run": case.carried_from[0],
            "attempt": str(case.carried_from[1]),
            "grading": case.carried_grading,
        },
    }
    return {**value, "message": case.message, "reply": case.reply} if text else value


def attempt_value(view: AttemptView, *, text: bool = False) -> dict[str, Any]:
    """One attempt's facts without its evidence."""
    value = {
        "attempt": str(view.attempt),
        "case": view.case,
        "number": view.number,
        "outcome": view.outcome.value,
        "settles": view.settles,
        "worker": view.worker,
        "started_at": view.started_at,
        "duration": view.duration,
        "verdict": _name(view.verdict),
        "kind": _name(view.kind),
        "code": view.code,
        "usage": usage_value(view.usage),
        "cost_usd": view.cost_usd,
    }
    return {**value, "message": view.message, "reply": view.reply} if text else value


def usage_value(usage: Usage | None) -> dict[str, Any] | None:
    """Token buckets by name, None where nobody reported one."""
    if usage is None:
        return None
    return {name: getattr(usage, name) for name in Usage.__slots__}


def progress_value(progress: RunProgress) -> dict[str, Any]:
    """The live counters of a run."""
    return {
        "at": progress.at,
        "total": progress.total,
        "settled": progress.settled,
        "passed": progress.passed,
        "failed": progress.failed,
        "errored": progress.errored,
        "running": progress.running,
        "rate": progress.rate,
        "cost_usd": progress.cost_usd,
        "judge_usd": progress.judge_usd,
        "unknown_judge_cost": progress.unknown_judge_cost,
        "failures_by_kind": dict(progress.failures_by_kind),
        "paused": dict(progress.paused),
        "budget": dict(progress.budget),
    }


def _arm(arm: ArmReport) -> dict[str, Any]:
    counts = arm.counts
    return {
        "arm": counts.arm,
        "style": counts.style.value,
        "planned": counts.planned,
        "classes": {each.value: number for each, number in arm.classes.items()},
        "headline": _headline(arm.headline),
        "reliability": arm.reliability,
        "per_eval": None if arm.per_eval is None else _per_eval(arm.per_eval),
        "notes": list(arm.notes),
        **_counters(counts),
    }


def _counters(counts: ArmCounts) -> dict[str, Any]:
    return {
        "carried": counts.carried,
        "retried_verdict": counts.retried_verdict,
        "attempts": counts.attempts,
        "failures_by_kind": dict(counts.failures_by_kind),
        "input_tokens": counts.input_tokens,
        "output_tokens": counts.output_tokens,
        "unknown_usage": counts.unknown_usage,
        "contradicted": counts.contradicted,
        "cost_usd": counts.cost_usd,
        "unknown_cost": counts.unknown_cost,
        "seconds": dict(counts.seconds),
        "judge": None if counts.judge is None else asdict(counts.judge),
        "judge_again": None if counts.judge_again is None else asdict(counts.judge_again),
    }


def _headline(figures: Headline) -> dict[str, Any]:
    if isinstance(figures, PassHeadline):
        return {
            "measure": "pass_rate" if figures.within is None else "solved_within",
            **({} if figures.within is None else {"within": figures.within}),
            "passed": figures.passed,
            "answered": figures.answered,
            "missing": figures.missing,
            "total": figures.total,
            "rate": figures.rate,
            "coverage": figures.coverage,
            "bounds": _interval(figures.bounds),
            "wilson_95": _interval(figures.interval),
        }
    return {
        "measure": "mean_score",
        "mean": figures.mean,
        "complete": figures.complete,
        "total": figures.total,
        "floor": figures.floor,
    }


def _per_eval(figures: PerEval) -> dict[str, Any]:
    return {
        "evals": figures.evals,
        "answered_evals": figures.answered_evals,
        "repetitions": figures.repetitions,
        "answered": figures.answered,
        "mean_over": "evals with an answer",
        "mean": figures.mean,
        "standard_error": figures.standard_error,
        "k_drawn": "without replacement",
        "repeated": [
            {"k": each.k, "evals": each.evals, "pass_at_k": each.any_passes, "pass_hat_k": each.all_pass}
            for each in figures.repeated
        ],
        "notes": list(figures.notes),
    }


def _interval(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else {"low": interval.low, "high": interval.high}


def _score(case: CaseView) -> dict[str, Any] | None:
    state = case.score_state
    if state is None:
        return None
    return {"state": state.value, "earned": case.earned, "ranked": is_ranked(case.verdict, state)}


def _name(value: Any) -> str | None:
    return None if value is None else value.value
