"""Judges and their calls as lines: who judges and how well, the ruling with its reason, what a call took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evalfleet.model.judge import JudgeCall
from evalfleet.reports.figures import UNKNOWN, counted, money, percent, seconds
from evalfleet.reports.layout import block
from evalfleet.reports.visible import cut, visible, visible_line


def judge_line(judge: Mapping[str, Any]) -> str:
    """A judge as a run records it: what it is, and how far it agrees with people, or that nobody knows."""
    evals = counted(judge["evals"], "eval")
    if judge["model"] is None:
        return f"no judge is named: what {evals} ask a judge will be unavailable (judge-model-unresolved)"
    votes = "" if judge["votes"] == 1 else f", {judge['reducer']} of {judge['votes']} votes"
    head = f"judge {judge['model']}{votes}, asked by {evals}"
    if judge["uncalibrated"] is not None:
        return f"{head}: uncalibrated judge, {judge['uncalibrated']}"
    known = [f"{name} {_agreement(found)}" for name, found in judge["recipes"].items()]
    return f"{head}: agrees with people on {'; '.join(known)}"


def _agreement(found: Mapping[str, Any]) -> str:
    kappa = UNKNOWN if found["kappa"] is None else f"{found['kappa']:.2f}"
    return f"{percent(found['accuracy'])} (kappa {kappa}, {counted(found['examples'], 'example')})"


def judge_lines(calls: Sequence[JudgeCall], limit: int | None) -> Iterator[str]:
    """A line for each call, and below it the judge's rationale or what went wrong."""
    yield "judge calls"
    for call in calls:
        yield f"  {' · '.join(_facts(call))}"
        told = call.message if call.ruling is None else call.ruling.rationale
        if told:
            yield from block("      ", visible(cut(told, limit)))


def _facts(call: JudgeCall) -> Iterator[str]:
    ruling = call.ruling
    yield f"assertion {call.assertion + 1}" + (f", vote {call.vote + 1}" if call.vote else "")
    yield f"{visible_line(call.recipe)} v{call.version}"
    yield visible_line(call.model)
    if ruling is None:
        yield visible_line(call.code or "no ruling")
    else:
        yield f"{ruling.score:g}" + (f" ({visible_line(ruling.label)})" if ruling.label is not None else "")
        if ruling.repairs:
            yield f"forgiven: {visible_line(', '.join(ruling.repairs))}"
    if call.cached:
        yield "cached"
        return
    yield seconds(call.latency)
    if call.tries > 1:
        yield f"{call.tries} tries"
    yield money(call.cost_usd)
