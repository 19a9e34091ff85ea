"""`orchestrate pack`: Task packs, checked before anything runs and replayed afterwards."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalfleet.api.listeners import Listeners
from evalfleet.api.options import PackRun
from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.cli.outcome import conclude, telling_how_to_resume
from evalfleet.cli.pack_lines import rate_lines
from evalfleet.cli.progress import ProgressDisplay
from evalfleet.reports.exit_code import ExitCode
from evalfleet.reports.figures import counted
from evalfleet.reports.visible import visible_line

if TYPE_CHECKING:  # what replays needs the database's driver, which no command should wait for
    from evalfleet.api.packs import Reapplied


@click.group("pack")
def command() -> None:
    """Task packs: evals on a case store, with a trace, a responder and graders.

    A pack runs as every eval does, by `try` and `submit`, and is graded again by `rescore`; `pack run` does without an
    experiment file.
    """


_project_option = click.option(
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="Where to look for it.",
)


@command.command("lint")
@_project_option
@options.json_option
@pass_application
def lint_command(application: Application, project: Path) -> ExitCode:
    """Say what is wrong with the packs of the project here or above: snapshots, policies, gold and scripts.

    Exits with 1 when something is.
    """
    found = application.api.lint_packs(project)
    faults = [(pack.id, fault) for pack in found for fault in pack.faults]
    if application.json:
        for name, fault in faults:
            application.value({"pack": name, **asdict(fault)})
    else:
        application.lines(visible_line(f"{name}: {fault}") for name, fault in faults)
    rows = sum(pack.assignments for pack in found)
    application.note(f"{counted(len(found), 'pack')}, {counted(rows, 'assignment')}, {counted(len(faults), 'fault')}")
    return ExitCode.NOT_ACCEPTED if faults else ExitCode.ACCEPTED


@command.command("run")
@click.argument("packs", nargs=-1, metavar="[PREFIX]...")
@click.option(
    "--agent",
    required=True,
    metavar="MODULE:NAME",
    help="An agent in Python, or an arm's settings as a JSON object, with its adapter.",
)
@click.option("--model", metavar="MODEL", help="The model that the agent is told to use.")
@click.option(
    "--repetitions", type=click.IntRange(min=1), default=1, metavar="N", help="How often each assignment is run."
)
@_project_option
@options.json_option
@pass_application
def run_command(application: Application, project: Path, **asked: Any) -> ExitCode:
    """Run packs of a project against an agent, in this process and without an experiment file.

    With PREFIX only the packs and assignments whose ids start with it. Prints what `submit` and `pack report` do.
    """
    return application.run(_run(application, project, PackRun(**asked)))


async def _run(application: Application, project: Path, asked: PackRun) -> ExitCode:
    with telling_how_to_resume(application) as created, ProgressDisplay(hidden=application.json) as display:
        listeners = Listeners(progress=display.update, created=created)
        run = await application.api.run_packs(project, asked, listeners)
    async with run:
        code = await conclude(application, run)
    await _print_rates(application, run.id)
    return code


@command.command("report")
@options.run_argument
@options.json_option
@pass_application
def report_command(application: Application, run: str) -> ExitCode:
    """Say how often each arm of RUN got its packs wrong, and in which way.

    What a model said as a user is not deterministic, and marked so.
    """
    application.run(_print_rates(application, run))
    return ExitCode.ACCEPTED


async def _print_rates(application: Application, run: str) -> None:
    for found in await application.api.rate_packs(run):
        if application.json:
            rates = found.rates.document()
            application.value({"event": "rates", "pack": found.pack, "arm": found.arm, **rates})
        else:
            application.lines(rate_lines(found))


@command.command("replay")
@options.run_argument
@click.argument("prefix", required=False)
@options.json_option
@pass_application
def replay_command(application: Application, run: str, prefix: str | None) -> ExitCode:
    """Repeat what the attempts of RUN wrote, on their snapshots and without their agents.

    With PREFIX only the cases whose ids start with it. Each call must end as it is recorded to have ended and leave
    the same state; exits with 1 when one does not, naming the first such step.
    """
    return application.run(_replay(application, run, prefix))


async def _replay(application: Application, run: str, prefix: str | None) -> ExitCode:
    diverged = count = 0
    async for each in application.api.reapply_run(run, prefix):
        count += 1
        diverged += each.divergence is not None
        if application.json:
            application.value(asdict(each))
        elif each.divergence is not None:
            application.lines([visible_line(f"{_named(each)}: {each.divergence}")])
    application.note(f"{counted(count, 'attempt')} repeated, {diverged} diverged")
    return ExitCode.NOT_ACCEPTED if diverged else ExitCode.ACCEPTED


def _named(each: Reapplied) -> str:
    return f"case {each.case} {each.arm}/{each.eval_id}"
