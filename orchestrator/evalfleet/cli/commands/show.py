"""`orchestrate show`: a run's cases, or one of them with its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from evalfleet.api.options import CaseFilter
from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.cli.cases import find_case
from evalfleet.cli.listing import attempt_lines, case_lines
from evalfleet.cli.surface import RunHandle
from evalfleet.model.report import CaseView
from evalfleet.model.sandbox import DEFAULT_BACKEND
from evalfleet.model.verdict import CaseStatus
from evalfleet.reports.backend_lines import default_backend_line, default_backend_of
from evalfleet.reports.divergence import first_divergence
from evalfleet.reports.divergence_lines import divergence_lines, divergence_value
from evalfleet.reports.evidence_value import detail_value
from evalfleet.reports.json_report import attempt_value, case_value
from evalfleet.reports.span_lines import lost_lines, span_lines, spans_value
from evalfleet.reports.transcript import TEXT_LIMIT, TranscriptParts, render_case, render_transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """The options as parsed."""

    arm: str | None
    statuses: tuple[CaseStatus, ...]
    prefix: str | None
    tag: str | None
    limit: int | None
    number: int | None
    grading: int | None
    turns: bool
    tools: bool
    assertions: bool
    judge: bool
    diff: bool
    spans: bool
    diagnostics: bool
    full: bool
    text: bool
    first_divergence: bool

    @property
    def which(self) -> CaseFilter:
        return CaseFilter(arm=self.arm, statuses=self.statuses, prefix=self.prefix, tag=self.tag, limit=self.limit)

    @property
    def parts(self) -> TranscriptParts:
        """Naming a part shows only the named ones."""
        every = not (self.turns or self.tools or self.assertions or self.judge or self.diff)
        return TranscriptParts(
            turns=every or self.turns,
            tools=every or self.tools,
            assertions=every or self.assertions,
            judge=every or self.judge,
            changes=every,
            diff=self.diff,
            diagnostics=self.diagnostics,
            limit=None if self.full else TEXT_LIMIT,
        )


@click.command()
@options.run_argument
@click.argument("case", required=False)
@click.option("--arm", metavar="ARM", help="Only cases of this arm.")
@options.status_option("--status", "statuses", among=tuple(CaseStatus), help="Only of this status; may be repeated.")
@click.option("--prefix", help="Only cases whose eval id starts so.")
@click.option("--tag", help="Only cases with this tag.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many cases.")
@click.option("--attempt", "number", type=click.IntRange(min=1), help="This attempt, not the one that settles.")
@options.grading_option
@click.option("--turns", is_flag=True, help="Only what was said.")
@click.option("--tools", is_flag=True, help="Only the tool calls.")
@click.option("--assertions", is_flag=True, help="Only the assertions.")
@click.option("--judge", is_flag=True, help="Only what a judge was asked and what it ruled.")
@click.option("--diff", is_flag=True, help="Only what changed in the sandbox's workdir, by whom, line by line.")
@click.option("--spans", is_flag=True, help="Of one CASE: the OpenTelemetry spans that its agent sent, as a tree.")
@click.option(
    "--diagnostics", is_flag=True, help="Tracebacks, the author's log lines and what a sandbox did not enforce, too."
)
@click.option(
    "--first-divergence",
    is_flag=True,
    help="Of one CASE: the first criterion that is not met, and what is recorded from its input to the response.",
)
@click.option("--full", is_flag=True, help="Cut no text.")
@click.option("--text", is_flag=True, help="Put what agents wrote into a JSON listing, too.")
@options.json_option
@pass_application
def command(application: Application, run: str, case: str | None, **chosen: Any) -> None:
    """List the cases of RUN, or show one CASE with its conversation, tool calls, changes, assertions and judge calls.

    CASE is a number from the list, or the beginning of an eval id.
    """
    application.run(_show(application, run, case, _Chosen(**chosen)))


async def _show(application: Application, run: str, case: str | None, chosen: _Chosen) -> None:
    for name, wanted in (("--first-divergence", chosen.first_divergence), ("--spans", chosen.spans)):
        if wanted and case is None:
            raise click.UsageError(f"{name} is of one case: name it")
    async with await application.api.open_run(run, chosen.grading) as handle:
        if case is None:
            await _list(application, handle, chosen)
        else:
            await _one(application, handle, await find_case(handle, case, chosen.which), chosen)


async def _list(application: Application, run: RunHandle, chosen: _Chosen) -> None:
    cases = run.cases(chosen.which)
    if application.json:
        async for case in cases:
            application.value(case_value(case, text=chosen.text))
        return
    async for line in case_lines(cases):
        application.lines([line])
    application.lines(await _default_backend(run))


async def _default_backend(run: RunHandle) -> list[str]:
    """Which backend was chosen for sandboxes that name none, and why; nothing in a run without such."""
    default = default_backend_of(await run.info())
    return [] if default is None else [default_backend_line(default)]


async def _spans(application: Application, run: RunHandle, case: CaseView, number: int | None) -> None:
    found, counts = await run.waterfall(case.ordinal, number), await run.span_counts()
    lost = {"late": counts.late, "dropped": dict(counts.dropped), "refused_bodies": dict(counts.refused)}
    if application.json:
        application.value({"case": case_value(case), **spans_value(found), "not_kept_of_run": lost})
        return
    application.lines(span_lines(found))
    application.lines(lost_lines(counts.late, counts.dropped, counts.refused))


async def _one(application: Application, run: RunHandle, case: CaseView, chosen: _Chosen) -> None:
    if chosen.spans:
        return await _spans(application, run, case, chosen.number)
    attempts = await run.attempts(case.ordinal)
    detail = await run.attempt(case.ordinal, chosen.number) if case.has_evidence else None
    if chosen.first_divergence and detail is not None:
        found = first_divergence(case, detail)
        if application.json:
            application.value({"case": case_value(case, text=True), "divergence": divergence_value(found)})
        else:
            application.lines(divergence_lines(case, found, chosen.parts.limit))
        return
    if application.json:
        shown = None if detail is None else detail_value(detail)
        listed = [attempt_value(view) for view in attempts]
        default = default_backend_of(await run.info())
        backend = {} if default is None else {DEFAULT_BACKEND: default.as_json()}
        application.value({"case": case_value(case, text=True), "attempts": listed, "attempt": shown, **backend})
        return
    if detail is None:
        application.lines(render_case(case))
        return
    application.lines(render_transcript(case, detail, chosen.parts))
    if detail.sandbox is not None:
        application.lines(await _default_backend(run))
    if len(attempts) > 1:
        application.lines(["", *attempt_lines(attempts)])
