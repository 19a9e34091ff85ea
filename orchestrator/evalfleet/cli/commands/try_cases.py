"""`orchestrate try`: run a few cases inline and print what happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from evalfleet.api.listeners import Listeners
from evalfleet.api.options import CaseFilter, SubmitOptions
from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.cli.surface import RunHandle
from evalfleet.reports.backend_lines import default_backend_line
from evalfleet.reports.evidence_value import detail_value
from evalfleet.reports.exit_code import ExitCode, exit_code
from evalfleet.reports.json_report import case_value, report_value
from evalfleet.reports.text import render_text
from evalfleet.reports.transcript import TEXT_LIMIT, TranscriptParts, render_case, render_transcript


@click.command("try")
@options.experiment_argument
@options.prefixes_argument
@options.set_option
@options.arm_option
@options.keep_sandbox_option
@click.option("--full", is_flag=True, help="Cut no text.")
@options.json_option
@pass_application
def command(
    application: Application, experiment: Path, prefixes: tuple[str, ...], full: bool, **chosen: Any
) -> ExitCode:
    """Run cases of EXPERIMENT in this process, without Ray, so that breakpoints work.

    Prints each case's transcript with its assertions. The run is recorded, but hidden from `runs`.
    """
    parts = TranscriptParts(diagnostics=True, limit=None if full else TEXT_LIMIT)
    return application.run(_try(application, experiment, prefixes, SubmitOptions(inline=True, **chosen), parts))


async def _try(
    application: Application,
    experiment: Path,
    prefixes: tuple[str, ...],
    chosen: SubmitOptions,
    parts: TranscriptParts,
) -> ExitCode:
    listeners = Listeners(default_backend=lambda default: application.note(default_backend_line(default)))
    async with await application.api.try_(experiment, prefixes, chosen, listeners) as run:
        if application.json:
            await _print_values(application, run)
        else:
            await _print_transcripts(application, run, parts)
        report = await run.report()
    if application.json:
        application.value({"event": "report", **report_value(report)})
    else:
        application.lines(render_text(report))
    return exit_code(report.run.status, report.accepted.decision)


async def _print_values(application: Application, run: RunHandle) -> None:
    """One line a case, with the whole evidence: the one place where a program gets all of it unasked."""
    async for case, detail in run.records(CaseFilter()):
        shown = None if detail is None else detail_value(detail)
        application.value({"event": "case", "case": case_value(case, text=True), "attempt": shown})


async def _print_transcripts(application: Application, run: RunHandle, parts: TranscriptParts) -> None:
    async for case, detail in run.records(CaseFilter()):
        application.lines(render_case(case) if detail is None else render_transcript(case, detail, parts))
        application.lines([""])
