"""`orchestrate submit`: run an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from evalfleet.api.options import SubmitOptions
from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.cli.detached import submit_detached
from evalfleet.cli.outcome import conclude, telling_how_to_resume
from evalfleet.cli.progress import ProgressDisplay
from evalfleet.cli.unfinished import UnfinishedChoice
from evalfleet.cli.warmth import why_not_joined
from evalfleet.reports.exit_code import ExitCode


@click.command()
@options.experiment_argument
@options.prefixes_argument
@options.set_option
@options.arm_option
@options.keep_sandbox_option
@click.option("--reuse", is_flag=True, help="Carry results of unchanged cases from earlier runs.")
@click.option(
    "--resume-unfinished",
    is_flag=True,
    help="Go on with a run of the same definitions that never ended.",
)
@click.option("--wait/--detach", "wait", default=True, help="Wait for the end, or return once the run is on its way.")
@click.option("--allow-empty", is_flag=True, help="A selection without cases is no error.")
@click.option("--inline", is_flag=True, help="Run in this process, without Ray.")
@click.option("--idempotency-key", metavar="KEY", help="A repeated request with this key returns the first one's run.")
@options.address_option
@options.workers_option
@options.lanes_option
@options.json_option
@pass_application
def command(
    application: Application, experiment: Path, prefixes: tuple[str, ...], wait: bool, **chosen: Any
) -> ExitCode:
    """Run EXPERIMENT, or only its evals whose ids start with a PREFIX.

    Prints the run's id first. The exit code says whether the run was accepted.
    """
    work = _submit if wait else submit_detached
    return application.run(work(application, experiment, prefixes, SubmitOptions(**chosen)))


async def _submit(
    application: Application, experiment: Path, prefixes: tuple[str, ...], chosen: SubmitOptions
) -> ExitCode:
    unfinished = UnfinishedChoice(application, resume=chosen.resume_unfinished)
    unfinished.lines += why_not_joined(chosen.address, inline=chosen.inline)
    with (
        telling_how_to_resume(application, unfinished.lines) as created,
        ProgressDisplay(hidden=application.json) as display,
    ):
        run = await application.api.submit(experiment, prefixes, chosen, display.update, created, unfinished)
    async with run:
        return await conclude(application, run)
