"""`orchestrate sandbox`: one of the sandboxes that there are, by its id or its eval."""

from __future__ import annotations

from dataclasses import asdict

import click

from evalfleet import processes
from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.reports.visible import visible_line


@click.group("sandbox")
def command() -> None:
    """One sandbox, named by the beginning of its id or of its eval's; `orchestrate sandboxes` lists them.

    `submit --keep-sandbox` leaves those of failed attempts in place.
    """


@command.command()
@click.argument("target")
@options.json_option
@pass_application
def enter(application: Application, target: str) -> None:
    """Open a shell in the sandbox TARGET, with its own environment; with --json say the command that would."""
    argv = application.run(application.api.sandbox_shell(target))
    if application.json:
        application.value({"argv": list(argv)})
    else:
        processes.become(argv)


@command.command()
@click.argument("target")
@options.json_option
@pass_application
def stop(application: Application, target: str) -> None:
    """Remove the sandbox TARGET, whose attempt has ended."""
    removed = application.run(application.api.stop_sandbox(target))
    if application.json:
        application.value({"removed": [asdict(removed)]})
    else:
        application.lines([f"sandbox {visible_line(removed.id)} is removed"])
