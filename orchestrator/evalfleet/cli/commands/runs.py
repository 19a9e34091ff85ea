"""`orchestrate runs`: list runs."""

from __future__ import annotations

import click

from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.model.report import RunInfo
from evalfleet.reports.figures import count, instant
from evalfleet.reports.json_report import run_value
from evalfleet.reports.tables import columns
from evalfleet.reports.visible import visible_line
from evalfleet.reports.wording import elapsed

HEADERS = ("run", "name", "status", "cases", "created (UTC)", "took")


@click.command()
@click.option("--all", "every_kind", is_flag=True, help="Also runs of `orchestrate try`.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@options.json_option
@pass_application
def command(application: Application, every_kind: bool, limit: int) -> None:
    """List runs, newest first."""
    runs = application.run(application.api.runs(every_kind=every_kind, limit=limit))
    if application.json:
        for run in runs:
            application.value(run_value(run))
    elif runs:
        application.lines(columns(HEADERS, [_row(run) for run in runs]))
    else:
        application.note("no runs yet: orchestrate submit EXPERIMENT starts one")


def _row(run: RunInfo) -> tuple[str, ...]:
    status = "interrupted" if run.interrupted else run.status.value
    return (run.id, visible_line(run.name), status, count(run.total), instant(run.created_at), elapsed(run) or "")
