"""`orchestrate init`: write a project that runs as it is."""

from __future__ import annotations

from pathlib import Path

import click

from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.cli.starter_project import FILES
from evalfleet.errors import ConfigurationError


@click.command()
@click.argument("directory", default=".", type=click.Path(file_okay=False, path_type=Path))
@options.json_option
@pass_application
def command(application: Application, directory: Path) -> None:
    """Write an agent, an eval and an experiment into DIRECTORY. Nothing that is there is overwritten."""
    present = [name for name in FILES if (directory / name).exists()]
    if present:
        raise ConfigurationError(f"{directory / present[0]} is there already: choose another directory, or move it")
    for name, text in FILES.items():
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    if application.json:
        application.value({"directory": str(directory), "files": list(FILES)})
        return
    experiment = directory / "experiment.yaml"
    application.lines(
        [
            *(f"wrote {directory / name}" for name in FILES),
            "",
            f"see one case:   orchestrate try {experiment}",
            f"run all of it:  orchestrate submit {experiment}",
        ]
    )
