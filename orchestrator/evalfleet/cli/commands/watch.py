"""`orchestrate watch`: follow a run until it ends."""

from __future__ import annotations

import click

from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.cli.event_lines import EventLines
from evalfleet.cli.progress import ProgressDisplay
from evalfleet.model.run_events import BEGINNING
from evalfleet.reports.exit_code import ExitCode, exit_code
from evalfleet.reports.json_report import report_value
from evalfleet.reports.text import render_text


@click.command()
@options.run_argument
@click.option("--after", metavar="CURSOR", help="With --json: only the events after the one with this cursor.")
@options.json_option
@pass_application
def command(application: Application, run: str, after: str | None) -> ExitCode:
    """Follow RUN until it ends. With --json one line for each event of the run and the report as the last one.

    Ctrl-C ends the watching, not the run.
    """
    return application.run(_watch(application, run, after))


async def _watch(application: Application, run: str, after: str | None) -> ExitCode:
    if application.json:
        write = EventLines()
        async for event in application.api.events(run, after=after or BEGINNING):
            write([event])
    else:
        with ProgressDisplay() as display:
            async for progress in application.api.watch(run):
                display.update(progress)
    async with await application.api.open_run(run) as handle:
        report = await handle.report()
    if application.json:
        application.value({"event": "report", **report_value(report)})
    else:
        application.lines(render_text(report))
    return exit_code(report.run.status, report.accepted.decision)
