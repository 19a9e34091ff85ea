"""`orchestrate resume`: go on with a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from evalfleet.api.listeners import Listeners
from evalfleet.api.options import ResumeOptions
from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.cli.outcome import conclude
from evalfleet.cli.progress import ProgressDisplay
from evalfleet.cli.warmth import why_not_joined
from evalfleet.reports.backend_lines import default_backend_line
from evalfleet.reports.exit_code import ExitCode


@click.command()
@options.run_argument
@options.set_option
@options.status_option(
    "--retry", among=options.REOPENED, help="Run settled cases of this status again; may be repeated."
)
@click.option("--steal", is_flag=True, help="Take the run from a coordinator that still seems alive.")
@click.option(
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where the project lies, when it is not where the run was planned.",
)
@click.option("--inline", is_flag=True, help="Run in this process, without Ray.")
@options.keep_sandbox_option
@options.address_option
@options.workers_option
@options.lanes_option
@options.json_option
@pass_application
def command(application: Application, run: str, **chosen: Any) -> ExitCode:
    """Go on with RUN over what is not settled. A failed case that is retried keeps its first verdict in statistics."""
    return application.run(_resume(application, run, ResumeOptions(**chosen)))


async def _resume(application: Application, run: str, chosen: ResumeOptions) -> ExitCode:
    for line in why_not_joined(chosen.address, inline=chosen.inline):
        application.note(line)
    with ProgressDisplay(hidden=application.json) as display:
        listeners = Listeners(
            progress=display.update,
            observer=application.observer(),
            default_backend=lambda default: application.note(default_backend_line(default)),
        )
        handle = await application.api.resume(run, chosen, listeners)
    async with handle:
        return await conclude(application, handle)
