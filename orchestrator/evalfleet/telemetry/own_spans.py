"""An attempt as spans of evalfleet itself, made from what it left behind: whoever exports none pays for none. PURE.

The attempt's own span has the id that its agent's spans were told as their parent, so that a collector which has both
shows one trace. Names and attributes are those of OpenTelemetry's conventions for generative AI where there are any.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from evalfleet.model.assertion import AssertionRow
from evalfleet.model.case import AttemptSummary, Case
from evalfleet.model.judge import JudgeCall
from evalfleet.model.record import AttemptEvidence
from evalfleet.model.turn import TurnRecord
from evalfleet.model.usage import Usage
from evalfleet.telemetry.traces import root_span

Attributes = Mapping[str, str | int | float | bool]

#: Turns and judge calls of one attempt that are told, and results of assertions.
SPANS_LIMIT, RESULTS_LIMIT = 500, 100
#: Characters of an explanation.
_SHOWN = 500
_LABELS = {True: "pass", False: "fail", None: "unavailable"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """An event of a span, in seconds since the epoch."""

    name: str
    at: float
    attributes: Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSpan:
    """One span, its times in seconds since the epoch. `failure` is why it failed, None if it did not."""

    name: str
    id: str
    parent: str | None
    begins: float
    ends: float
    attributes: Attributes
    calls: bool = False
    failure: str | None = None
    notes: tuple[Note, ...] = field(default_factory=tuple[Note, ...])


def attempt_spans(run: str, case: Case, model: str | None, evidence: AttemptEvidence, trace: str) -> Iterator[OwnSpan]:
    """The attempt, its sandbox, its turns and what judges were asked."""
    summary = evidence.summary
    root = root_span(trace)
    ends = summary.started_at + summary.duration
    yield OwnSpan(
        name=f"attempt {case.eval_id}",
        id=root,
        parent=None,
        begins=summary.started_at,
        ends=ends,
        attributes={**about(run, case, summary), **_told_usage(summary.usage, summary.estimated_usd)},
        failure=_failure(summary),
        notes=tuple(_results(evidence, ends)),
    )
    if summary.sandbox is not None:
        yield OwnSpan(
            name=f"sandbox {summary.sandbox.backend}",
            id=_span(trace, "sandbox"),
            parent=root,
            begins=summary.started_at,
            ends=summary.started_at + summary.sandbox.making,
            attributes={
                "evalfleet.sandbox.backend": summary.sandbox.backend,
                "evalfleet.sandbox.starts": summary.sandbox.starts,
            },
        )
    for turn in evidence.turns[:SPANS_LIMIT]:
        yield _turn(case, model, turn, trace, root)
    for number, call in enumerate(evidence.judge_calls[:SPANS_LIMIT]):
        if not call.cached:
            yield _judge(call, number, trace, root)


def about(run: str, case: Case, summary: AttemptSummary) -> dict[str, str | int | float | bool]:
    """What every figure of an attempt is told with."""
    told: dict[str, str | int | float | bool] = {
        "evalfleet.run": run,
        "evalfleet.case": case.ordinal,
        "evalfleet.eval": case.eval_id,
        "evalfleet.arm": case.arm,
        "evalfleet.repetition": case.repetition,
        "evalfleet.attempt": summary.attempt,
        "evalfleet.outcome": summary.outcome.value,
        "evalfleet.verdict": summary.verdict.value,
    }
    if summary.kind is not None:
        told |= {"error.type": summary.code or summary.kind.value, "evalfleet.failure.kind": summary.kind.value}
    return told


def _turn(case: Case, model: str | None, turn: TurnRecord, trace: str, root: str) -> OwnSpan:
    asked = {"gen_ai.request.model": model} if model else {}
    return OwnSpan(
        name=f"invoke_agent {case.arm}",
        id=_span(trace, f"turn {turn.sequence}"),
        parent=root,
        begins=turn.started_at,
        ends=turn.started_at + turn.duration + turn.waited,
        calls=True,
        failure=turn.failure,
        attributes={
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": case.arm,
            "evalfleet.turn": turn.sequence,
            "evalfleet.session": turn.session,
            "evalfleet.turn.status": turn.status.value,
            **asked,
            **_told_usage(turn.usage, None),
        },
    )


def _judge(call: JudgeCall, number: int, trace: str, root: str) -> OwnSpan:
    return OwnSpan(
        name=f"chat {call.model}",
        id=_span(trace, f"judge {number}"),
        parent=root,
        begins=call.started_at,
        ends=call.started_at + call.latency,
        calls=True,
        failure=None if call.ruling is not None else f"{call.code}: {call.message}",
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": call.model,
            "evalfleet.judge.recipe": call.recipe,
            "evalfleet.assertion": call.assertion,
            **_told_usage(call.usage, call.cost_usd),
        },
    )


def _results(evidence: AttemptEvidence, at: float) -> Iterator[Note]:
    """The results of assertions, by the convention's event, and at last the verdict."""
    for row in evidence.assertions[:RESULTS_LIMIT]:
        yield Note(name="gen_ai.evaluation.result", at=at, attributes=_result(row))
    summary = evidence.summary
    verdict: dict[str, str | int | float | bool] = {
        "gen_ai.evaluation.name": "verdict",
        "gen_ai.evaluation.score.label": summary.verdict.value,
    }
    if summary.earned is not None:
        verdict["gen_ai.evaluation.score.value"] = summary.earned
    yield Note(name="gen_ai.evaluation.result", at=at, attributes=verdict)


def _result(row: AssertionRow) -> Attributes:
    told: dict[str, str | int | float | bool] = {
        "gen_ai.evaluation.name": row.label or row.key or row.name,
        "gen_ai.evaluation.score.label": _LABELS[row.holds],
    }
    measured = row.outcome.measurement
    if measured is not None:
        told["gen_ai.evaluation.score.value"] = float(measured)
    if row.outcome.reason:
        told["gen_ai.evaluation.explanation"] = row.outcome.reason[:_SHOWN]
    return told


def _told_usage(usage: Usage | None, usd: float | None) -> dict[str, int | float]:
    if usage is None:
        return {}
    cost = usage.cost_usd if usage.cost_usd is not None else usd
    found = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "evalfleet.cost_usd": cost,
    }
    return {name: value for name, value in found.items() if value is not None}


def _failure(summary: AttemptSummary) -> str | None:
    return None if summary.kind is None else f"{summary.code}: {summary.message}"


def _span(trace: str, what: str) -> str:
    """The id of a part of an attempt, the same whenever it is asked for."""
    digest = hashlib.sha256(f"{what} of {trace}".encode()).digest()[:8]
    return digest.hex() if any(digest) else "2" * 16
