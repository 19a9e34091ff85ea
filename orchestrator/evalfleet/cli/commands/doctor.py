"""`orchestrate doctor`: whether this machine can run."""

from __future__ import annotations

from dataclasses import asdict

import click

from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.cli.checks import Check, Health, checks
from evalfleet.reports.exit_code import ExitCode
from evalfleet.reports.visible import visible_line
from evalfleet.settings import Settings

_MARKS = {Health.GOOD: "✓", Health.WARNING: "!", Health.BAD: "✗"}


@click.command()
@options.json_option
@pass_application
def command(application: Application) -> ExitCode:
    """Look at everything that a run needs on this machine. Exits 4 when something would make runs fail."""
    return application.run(_doctor(application))


async def _doctor(application: Application) -> ExitCode:
    worst = ExitCode.ACCEPTED
    async for check in checks(Settings.from_environment()):
        if check.health is Health.BAD:
            worst = ExitCode.INFRASTRUCTURE
        if application.json:
            application.value(asdict(check))
        else:
            application.lines(_lines(check))
    return worst


def _lines(check: Check) -> list[str]:
    line = f"{_MARKS[check.health]} {check.name}: {visible_line(check.found)}"
    return [line] if check.advice is None else [line, f"    {check.advice}"]
