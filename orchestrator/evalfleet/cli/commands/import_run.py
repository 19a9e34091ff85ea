"""`orchestrate import`: read an exported run."""

from __future__ import annotations

from pathlib import Path

import click

from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@options.json_option
@pass_application
def command(application: Application, file: Path) -> None:
    """Read the run that `orchestrate export` wrote to FILE into this record store, all of it or nothing."""
    run = application.run(application.api.import_(file))
    if application.json:
        application.value({"run": run})
    else:
        application.lines([f"run {run} is here: orchestrate show {run}"])
