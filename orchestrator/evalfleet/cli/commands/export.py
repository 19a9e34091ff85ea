"""`orchestrate export`: write a run into one file."""

from __future__ import annotations

from pathlib import Path

import click

from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application


@click.command()
@options.run_argument
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The file. Default: RUN-ID.evalfleet."
)
@options.json_option
@pass_application
def command(application: Application, run: str, output: Path | None) -> None:
    """Write RUN with all its evidence into one file that verifies itself; `orchestrate import` reads it.

    Works while the run is going, too: what is settled by then is in the file.
    """
    exported, path = application.run(application.api.export(run, output))
    if application.json:
        application.value({"run": exported, "file": str(path), "bytes": path.stat().st_size})
    else:
        application.lines([f"wrote run {exported} to {path}"])
