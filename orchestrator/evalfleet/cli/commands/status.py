"""`orchestrate status`: how a run is doing."""

from __future__ import annotations

import click

from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.cli.progress import progress_line
from evalfleet.errors import ConfigurationError
from evalfleet.model.verdict import RunStatus
from evalfleet.reports.json_report import progress_value, report_value
from evalfleet.reports.text import render_text


@click.command()
@click.argument("run", required=False)
@options.json_option
@pass_application
def command(application: Application, run: str | None) -> None:
    """How RUN is doing, or the newest run. Reads the record store, so it works from any machine."""
    application.run(_status(application, run))


async def _status(application: Application, run: str | None) -> None:
    async with await application.api.open_run(run or await _newest(application)) as handle:
        report = await handle.report()
        progress = await handle.progress()
    live = progress if report.run.status is RunStatus.RUNNING and not report.run.interrupted else None
    if application.json:
        application.value({**report_value(report), "progress": None if live is None else progress_value(live)})
        return
    application.lines(render_text(report))
    if live is not None:
        application.lines([progress_line(live)])


async def _newest(application: Application) -> str:
    runs = await application.api.runs(limit=1)
    if not runs:
        raise ConfigurationError("there is no run yet (orchestrate submit EXPERIMENT starts one)")
    return runs[0].id
