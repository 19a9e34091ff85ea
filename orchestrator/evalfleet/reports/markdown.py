"""A run's report as GitHub-flavoured Markdown, fit for a pull request.

Text that agents or data wrote only ever stands in code spans: there no HTML, link, mention or reference works.
"""

from __future__ import annotations

import re

from evalfleet.model.report import CaseView
from evalfleet.reports import wording
from evalfleet.reports.budget_line import budget_lines
from evalfleet.reports.figures import count, counted
from evalfleet.reports.judge_lines import judge_line
from evalfleet.reports.model import ReportModel
from evalfleet.reports.visible import cut, visible_line

MESSAGE_LIMIT = 300
NOTABLE_LIMIT = 30
_MARK = {True: "✅", False: "❌", None: "❔"}


def render_markdown(report: ReportModel) -> str:
    """The whole document, ending in one line break."""
    lines = [*_head(report), "", *_table(report), "", *_notes(report), *_notable(report)]
    return "\n".join(lines).rstrip("\n") + "\n"


def code(text: str) -> str:
    """`text` as one inline code span that nothing in it can end."""
    plain = visible_line(text) or " "
    longest = max((len(run) for run in re.findall("`+", plain)), default=0)
    fence = "`" * (longest + 1)
    inner = f" {plain} " if plain[0] in "` " or plain[-1] in "` " else plain
    return f"{fence}{inner}{fence}"


def table_code(text: str) -> str:
    """`code` for a table cell, where a bar ends the cell even inside a code span: shown as a broken bar."""
    return code(text.replace("|", "¦"))


def _head(report: ReportModel) -> list[str]:
    run = report.run
    took = wording.elapsed(run)
    parts = [f"run {code(run.id)}", wording.run_state(run), counted(report.planned, "case"), took]
    word = wording.acceptance(report.accepted)
    return [
        f"### {_MARK[report.accepted.decision]} {code(run.name)}: {word}",
        "",
        " · ".join(part for part in parts if part) + "  ",
        wording.class_counts(report.totals),
        "",
        *(f"- {code(reason)}" for reason in report.accepted.reasons),
    ]


def _table(report: ReportModel) -> list[str]:
    rows = [wording.arm_cells(arm.counts, arm.headline, table_code(arm.counts.arm)) for arm in report.arms]
    rule = ["---", *("---:" for _ in wording.ARM_COLUMNS[1:])]
    return ["| " + " | ".join(cells) + " |" for cells in (wording.ARM_COLUMNS, rule, *rows)]


def _notes(report: ReportModel) -> list[str]:
    alone = len(report.arms) == 1
    lines = [f"- {code(arm.counts.arm)}: {line}" for arm in report.arms for line in wording.arm_lines(arm, alone=alone)]
    lines += [f"- {code(judge_line(judge))}" for judge in report.judges]
    return lines + [f"- {code(line)}" for line in budget_lines(report.budget)]


def _notable(report: ReportModel) -> list[str]:
    shown = report.notable[:NOTABLE_LIMIT]
    if not shown:
        return []
    more = report.not_passed - len(shown)
    title = f"{counted(report.not_passed, 'case')} did not pass"
    return [
        "",
        f"<details><summary>{title}</summary>",
        "",
        *(_case_line(case) for case in shown),
        *([f"- … {count(more)} more"] if more > 0 else []),
        "",
        "</details>",
    ]


def _case_line(case: CaseView) -> str:
    why = f": {code(cut(case.message, MESSAGE_LIMIT))}" if case.message else ""
    return f"- {code(wording.case_name(case))} · {code(case.arm)} · {wording.case_result(case)}{why}"
