"""`orchestrate submit`: run an experiment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from evalfleet.api.listeners import Listeners
from evalfleet.api.options import SubmitOptions
from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.cli.costly import cost_choice
from evalfleet.cli.detached import submit_detached
from evalfleet.cli.outcome import conclude, telling_how_to_resume
from evalfleet.cli.progress import ProgressDisplay
from evalfleet.cli.unfinished import UnfinishedChoice
from evalfleet.cli.warmth import why_not_joined
from evalfleet.errors import DefinitionError
from evalfleet.model.verdict import RunStatus
from evalfleet.reports.backend_lines import default_backend_line
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
@options.status_option(
    "--retry", among=options.REOPENED, help="With --resume-unfinished: also run its settled cases of this status again."
)
@click.option("--wait/--detach", "wait", default=True, help="Wait for the end, or return once the run is on its way.")
@click.option(
    "--affected-by", metavar="RUN", help="Only the evals of RUN's failed and errored cases, all of them anew."
)
@click.option("--then-suite", is_flag=True, help="With --affected-by: when all of those pass, run all others.")
@click.option("--allow-empty", is_flag=True, help="A selection without cases is no error.")
@click.option("--inline", is_flag=True, help="Run in this process, without Ray.")
@click.option("--yes", "confirmed", is_flag=True, help="Begin whatever the run may cost: see budget.confirm_usd.")
@click.option("--idempotency-key", metavar="KEY", help="A repeated request with this key returns the first one's run.")
@options.address_option
@options.workers_option
@options.lanes_option
@options.json_option
@pass_application
def command(
    application: Application,
    experiment: Path,
    prefixes: tuple[str, ...],
    wait: bool,
    then_suite: bool,
    **chosen: Any,
) -> ExitCode:
    """Run EXPERIMENT, or only its evals whose ids start with a PREFIX.

    Prints the run's id first; with --json a line for each event of the run, and the summary as the last one. The exit
    code says whether the run was accepted.
    """
    options = SubmitOptions(**chosen)
    if then_suite and options.affected_by is None:
        raise click.UsageError("--then-suite goes with --affected-by RUN")
    if not wait:
        return application.run(submit_detached(application, experiment, prefixes, options))
    return application.run(_submit(application, experiment, prefixes, options, then_suite))


async def _submit(
    application: Application, experiment: Path, prefixes: tuple[str, ...], chosen: SubmitOptions, then_suite: bool
) -> ExitCode:
    code, all_passed = await _run(application, experiment, prefixes, chosen)
    if not then_suite:
        return code
    if not all_passed:
        application.note("the other evals were not run: not all that were affected pass")
        return code if code is not ExitCode.ACCEPTED else ExitCode.NOT_ACCEPTED
    key = None if chosen.idempotency_key is None else f"{chosen.idempotency_key}-then"
    others = replace(chosen, affected_by=None, apart_from=chosen.affected_by, idempotency_key=key)
    try:
        return (await _run(application, experiment, prefixes, others))[0]
    except DefinitionError as error:
        if {problem.code for problem in error.problems} != {"NO_CASES"}:
            raise
        application.note("there are no other evals")
        return code


async def _run(
    application: Application, experiment: Path, prefixes: tuple[str, ...], chosen: SubmitOptions
) -> tuple[ExitCode, bool]:
    """The exit code of a run, and whether it ended with all that counts passed."""
    unfinished = UnfinishedChoice(application, resume=chosen.resume_unfinished)
    unfinished.lines += why_not_joined(chosen.address, inline=chosen.inline)
    with (
        telling_how_to_resume(application, unfinished.lines) as created,
        ProgressDisplay(hidden=application.json) as display,
    ):
        listeners = Listeners(
            progress=display.update,
            created=created,
            unfinished=unfinished,
            observer=application.observer(),
            default_backend=lambda default: unfinished.lines.append(default_backend_line(default)),
            costly=cost_choice(application),
        )
        run = await application.api.submit(experiment, prefixes, chosen, listeners)
    async with run:
        code = await conclude(application, run)
        report = await run.report()
        return code, report.run.status is RunStatus.COMPLETED and not report.not_passed
