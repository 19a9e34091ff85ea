"""`orchestrate down`: end what `up` keeps running."""

from __future__ import annotations

import click

from evalfleet.api.warm import take_down
from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.clock import SystemClock
from evalfleet.settings import Settings


@click.command()
@click.option("--force", is_flag=True, help="Also while runs are going on it; they can be resumed.")
@options.json_option
@pass_application
def command(application: Application, force: bool) -> None:
    """End the Ray that `orchestrate up` started, and no other; the embedded record store goes with its last client."""
    ray = application.run(take_down(Settings.from_environment(), SystemClock(), force=force))
    if application.json:
        application.value({"pid": None if ray is None else ray.pid, "ended": ray is not None})
    else:
        application.lines(["nothing is up" if ray is None else f"Ray is down: process {ray.pid} has ended"])
