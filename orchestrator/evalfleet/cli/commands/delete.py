"""`orchestrate delete`: delete a run."""

from __future__ import annotations

import sys

import click

from evalfleet.api.options import DeleteOptions
from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application


@click.command()
@options.run_argument
@click.option("--with-dependants", is_flag=True, help="Delete the runs that carry results from it, too.")
@click.option("--copy-evidence", is_flag=True, help="Copy what other runs carry from it into them first.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@options.json_option
@pass_application
def command(application: Application, run: str, with_dependants: bool, copy_evidence: bool, yes: bool) -> None:
    """Delete RUN with all its evidence. A run that is going is cancelled first."""
    if not yes:
        if application.json or not sys.stdin.isatty():
            raise click.ClickException("deleting can't be undone: say --yes")
        click.confirm(f"Delete run {run} with all its evidence?", abort=True, err=True)
    chosen = DeleteOptions(with_dependants=with_dependants, copy_evidence=copy_evidence)
    deleted = application.run(application.api.delete(run, chosen))
    if application.json:
        application.value({"run": deleted, "deleted": True})
    else:
        application.lines([f"run {deleted} is deleted"])
