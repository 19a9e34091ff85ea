"""`orchestrate watch`: follow a run until it ends."""

from __future__ import annotations

import click

from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.cli.progress import ProgressDisplay
from evalfleet.reports.exit_code import ExitCode, exit_code
from evalfleet.reports.json_report import progress_value, report_value
from evalfleet.reports.text import render_text


@click.command()
@options.run_argument
@options.json_option
@pass_application
def command(application: Application, run: str) -> ExitCode:
    """Follow RUN until it ends. With --json one line for each change and the report as the last one.

    Ctrl-C ends the watching, not the run.
    """
    return application.run(_watch(application, run))


async def _watch(application: Application, run: str) -> ExitCode:
    with ProgressDisplay(hidden=application.json) as display:
        async for progress in application.api.watch(run):
            display.update(progress)
            if application.json:
                application.value({"event": "progress", **progress_value(progress)})
    async with await application.api.open_run(run) as handle:
        report = await handle.report()
    if application.json:
        application.value({"event": "report", **report_value(report)})
    else:
        application.lines(render_text(report))
    return exit_code(report.run.status, report.accepted.decision)
