"""The terminal summary of a run, as lines."""

from __future__ import annotations

from collections.abc import Sequence

from evalfleet.model.report import CaseView
from evalfleet.reports import wording
from evalfleet.reports.budget_line import budget_lines
from evalfleet.reports.figures import count, counted
from evalfleet.reports.judge_lines import judge_line
from evalfleet.reports.model import ReportModel
from evalfleet.reports.tables import columns
from evalfleet.reports.visible import cut, visible_line

MESSAGE_LIMIT = 160
NOTABLE_LIMIT = 20


def render_text(report: ReportModel) -> list[str]:
    """The whole summary: what ran, the arms with their figures, notes, and the first cases that did not pass."""
    return [
        *_head(report),
        "",
        *columns(
            wording.ARM_COLUMNS,
            [wording.arm_cells(arm.counts, arm.headline, visible_line(arm.counts.arm)) for arm in report.arms],
        ),
        *_arm_lines(report),
        *(f"  {visible_line(judge_line(judge))}" for judge in report.judges),
        *(f"  {visible_line(line)}" for line in budget_lines(report.budget)),
        *_notable(report),
        "",
        *_verdict(report),
    ]


def _head(report: ReportModel) -> list[str]:
    run = report.run
    took = wording.elapsed(run)
    parts = [f"run {run.id}", visible_line(run.name), wording.run_state(run), counted(report.planned, "case"), took]
    return [" · ".join(part for part in parts if part), f"  {wording.class_counts(report.totals)}"]


def _arm_lines(report: ReportModel) -> list[str]:
    alone = len(report.arms) == 1
    return [
        f"  {visible_line(arm.counts.arm)}: {line}"
        for arm in report.arms
        for line in wording.arm_lines(arm, alone=alone)
    ]


def _notable(report: ReportModel) -> list[str]:
    shown = report.notable[:NOTABLE_LIMIT]
    if not shown:
        return []
    rows = [_case_row(case) for case in shown]
    lines = ["", *columns(("case", "arm", "eval", "result", "why"), rows)]
    if report.not_passed > len(shown):
        lines.append(f"  … {count(report.not_passed - len(shown))} more: orchestrate show {report.run.id}")
    return lines


def _case_row(case: CaseView) -> Sequence[str]:
    return (
        str(case.ordinal),
        visible_line(case.arm),
        visible_line(wording.case_name(case)),
        wording.case_result(case),
        visible_line(cut(case.message or "", MESSAGE_LIMIT)),
    )


def _verdict(report: ReportModel) -> list[str]:
    word = wording.acceptance(report.accepted)
    reasons = report.accepted.reasons
    if len(reasons) == 1:
        return [f"{word}: {visible_line(reasons[0])}"]
    return [f"{word}:" if reasons else word, *(f"  {visible_line(reason)}" for reason in reasons)]
