"""`orchestrate compare`: hold one side against another, pair by pair."""

from __future__ import annotations

import click

from evalfleet.api.options import SideChoice
from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.reports.compared import markdown_comparisons, render_comparisons
from evalfleet.reports.comparison_value import comparisons_value
from evalfleet.reports.exit_code import ExitCode, gate_code


@click.command()
@click.argument("first", metavar="RUN[:ARM]")
@click.argument("second", metavar="[RUN[:ARM]]", required=False)
@click.option("--all", "every_flip", is_flag=True, help="List every case that came out differently.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown"]),
    default="text",
    show_default=True,
    help="How people read it.",
)
@click.option("--gate", is_flag=True, help="Exit with 1 when the second side is worse, with 5 when that can't be told.")
@options.json_option
@pass_application
def command(
    application: Application, first: str, second: str | None, every_flip: bool, form: str, gate: bool
) -> ExitCode:
    """Hold the second side against the first, or all arms of one run against each other.

    Cases are paired by content, wherever they stand in a run. A run without an arm stands for all its arms.
    """
    if gate and second is None:
        raise click.UsageError("--gate needs a second side: nothing says which arm of one run is the older")
    against = None if second is None else SideChoice.parsed(second)
    found = application.run(application.api.compare(SideChoice.parsed(first), against))
    if application.json:
        application.value(comparisons_value(found))
    elif form == "markdown":
        click.echo(markdown_comparisons(found, every_flip=every_flip), nl=False)
    else:
        application.lines(render_comparisons(found, every_flip=every_flip))
    return gate_code(each.finding for each in found) if gate else ExitCode.ACCEPTED
