"""`orchestrate up`: keep a Ray and the record store running."""

from __future__ import annotations

import click

from evalfleet.api.warm import bring_up
from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.clock import SystemClock
from evalfleet.reports.figures import counted
from evalfleet.settings import Settings

_STANDBY = "evalfleet.cli.standby"


@click.command()
@options.json_option
@pass_application
def command(application: Application) -> None:
    """Keep a Ray, the record store and a process for the next run up on this machine.

    `submit` and `resume` use them and start in no time.

    Agents find their secrets in the environment that `up` was called with.
    """
    ray, started = application.run(bring_up(Settings.from_environment(), SystemClock(), _STANDBY))
    if application.json:
        application.value({"pid": ray.pid, "address": ray.address, "cpus": ray.cpus, "started": started})
        return
    application.lines(
        [
            f"Ray is up{'' if started else ' already'}: {counted(ray.cpus, 'CPU')}, process {ray.pid}",
            "submit and resume join it; orchestrate down ends it",
        ]
    )
