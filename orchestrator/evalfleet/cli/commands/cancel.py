"""`orchestrate cancel`: stop a run."""

from __future__ import annotations

import click

from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application


@click.command()
@options.run_argument
@options.json_option
@pass_application
def command(application: Application, run: str) -> None:
    """Stop RUN. Attempts under way end as cancelled, what is settled stays, and `resume` goes on with the rest."""
    found, going = application.run(application.api.cancel(run))
    if application.json:
        application.value({"run": found, "cancel_requested": going})
    elif going:
        application.lines([f"run {found} is asked to stop: orchestrate status {found}"])
    else:
        application.lines([f"run {found} has ended already"])
