"""Cases and attempts as lines, streamed: a run of a million cases is listed without being held."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from evalfleet.model.report import AttemptView, CaseView
from evalfleet.model.sandbox import SandboxView
from evalfleet.reports.figures import UNKNOWN, money, seconds
from evalfleet.reports.tables import columns
from evalfleet.reports.visible import cut, visible_line
from evalfleet.reports.wording import case_name, case_result

#: Columns are aligned over this many cases at a time.
PAGE = 500
MESSAGE_LIMIT = 80
CASE_HEADERS = ("case", "arm", "eval", "result", "score", "took", "cost", "attempts", "why")
SANDBOX_HEADERS = ("backend", "id", "run", "case", "eval", "age", "standing", "why")
ATTEMPT_HEADERS = ("attempt", "outcome", "verdict", "took", "cost", "why")


async def case_lines(cases: AsyncIterator[CaseView]) -> AsyncIterator[str]:
    """The cases, aligned page by page."""
    page: list[tuple[str, ...]] = []
    async for case in cases:
        page.append(_case_row(case))
        if len(page) == PAGE:
            for line in columns(CASE_HEADERS, page):
                yield line
            page.clear()
    if page:
        for line in columns(CASE_HEADERS, page):
            yield line


def attempt_lines(attempts: Sequence[AttemptView]) -> list[str]:
    """The attempts of one case; a star marks the one that settled it."""
    return columns(ATTEMPT_HEADERS, [_attempt_row(view) for view in attempts])


def sandbox_lines(views: Sequence[SandboxView], now: float) -> list[str]:
    """The sandboxes, and how each stands; `now` is in seconds since the epoch."""
    return columns(SANDBOX_HEADERS, [_sandbox_row(view, now) for view in views]) if views else []


def _sandbox_row(view: SandboxView, now: float) -> tuple[str, ...]:
    return (
        view.backend,
        visible_line(view.id),
        visible_line(view.run or view.owner.partition("/")[0]),
        "" if view.case is None else str(view.case),
        visible_line(cut(view.eval_id or "", MESSAGE_LIMIT)),
        seconds(max(0.0, now - view.created_at)),
        view.standing.value,
        visible_line(view.why),
    )


def _case_row(case: CaseView) -> tuple[str, ...]:
    score = UNKNOWN if case.earned is None else f"{case.earned:g}"
    return (
        str(case.ordinal),
        visible_line(case.arm),
        visible_line(case_name(case)),
        case_result(case),
        "" if case.score_state is None else f"{score} {case.score_state.value}",
        seconds(case.duration),
        money(case.cost_usd),
        str(case.attempts),
        visible_line(cut(case.message or "", MESSAGE_LIMIT)),
    )


def _attempt_row(view: AttemptView) -> tuple[str, ...]:
    blame = " ".join(part for part in (view.kind.value if view.kind else None, view.code, view.message) if part)
    return (
        f"{view.number}{' *' if view.settles else ''}",
        view.outcome.value,
        view.verdict.value if view.verdict else "",
        seconds(view.duration),
        money(view.cost_usd),
        visible_line(cut(blame, MESSAGE_LIMIT)),
    )
