"""`orchestrate rescore`: judge a run's recorded attempts again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from evalfleet.api.options import RescoreOptions
from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.reports.exit_code import ExitCode, exit_code
from evalfleet.reports.graded import rescored_lines, rescored_value
from evalfleet.reports.json_report import report_value
from evalfleet.reports.text import render_text


@click.command()
@options.run_argument
@click.option(
    "--evals",
    type=click.Path(exists=True, path_type=Path),
    help="The project whose evals judge, when it is not the run's own as it is now.",
)
@click.option(
    "--only-unavailable",
    is_flag=True,
    help="Only attempts that a judge, a grader or missing evidence kept from a verdict; the others keep theirs.",
)
@click.option("--reason", default="", help="Why, for the record.")
@options.json_option
@pass_application
def command(application: Application, run: str, **chosen: Any) -> ExitCode:
    """Judge the recorded attempts of RUN again by its evals as they are now; no agent is called.

    That becomes the run's current grading, which every command reads. Earlier ones are kept: `show` and `report` take
    --grading.
    """
    return application.run(_rescore(application, run, RescoreOptions(**chosen)))


async def _rescore(application: Application, run: str, chosen: RescoreOptions) -> ExitCode:
    handle, rescored = await application.api.rescore(run, chosen)
    async with handle:
        report = await handle.report()
    if application.json:
        application.value({**rescored_value(rescored), "report": report_value(report)})
    else:
        application.lines([*rescored_lines(rescored), "", *render_text(report)])
    return exit_code(report.run.status, report.accepted.decision)
