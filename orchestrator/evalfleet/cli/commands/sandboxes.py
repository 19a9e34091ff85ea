"""`orchestrate sandboxes`: which sandboxes there are, and whose; remove those that are nobody's."""

from __future__ import annotations

from dataclasses import asdict

import click

from evalfleet.api.options import ReapOptions
from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.cli.listing import sandbox_lines
from evalfleet.clock import SystemClock
from evalfleet.model.sandbox import Standing
from evalfleet.reports.figures import counted
from evalfleet.reports.visible import visible_line


@click.command()
@click.option("--orphans", is_flag=True, help="List only those whose owner is proven dead or done.")
@click.option("--reap", is_flag=True, help="Remove the orphans.")
@click.option("--kept", is_flag=True, help="With --reap: those that were kept for somebody to look at, too.")
@click.option("--force", is_flag=True, help="With --reap: those of whose owner nothing can be known from here, too.")
@options.json_option
@pass_application
def command(application: Application, orphans: bool, reap: bool, kept: bool, force: bool) -> None:
    """List the sandboxes that there are, of all runs and backends; --reap removes those that are nobody's any more.

    Only those of this record store and state folder are shown and touched.
    """
    if (kept or force) and not reap:
        raise click.UsageError("--kept and --force say what --reap removes")
    if reap:
        _reap(application, ReapOptions(kept=kept, force=force))
    else:
        _list(application, orphans)


def _reap(application: Application, chosen: ReapOptions) -> None:
    removed = application.run(application.api.reap_sandboxes(chosen))
    if application.json:
        application.value({"removed": [asdict(view) for view in removed]})
        return
    application.lines(sandbox_lines(removed, SystemClock().wall()))
    application.lines([f"{counted(len(removed), 'sandbox', 'sandboxes')} removed"])


def _list(application: Application, orphans: bool) -> None:
    found = application.run(application.api.sandboxes())
    views = [view for view in found.views if view.standing is Standing.ORPHAN or not orphans]
    if application.json:
        shown = [asdict(view) for view in views]
        application.value({"sandboxes": shown, "faults": dict(found.faults), "foreign": found.foreign})
        return
    application.lines(sandbox_lines(views, SystemClock().wall()) or ["there are none"])
    for name, fault in found.faults.items():
        application.note(f"nothing is known of sandboxes of {name}, which does not work here: {visible_line(fault)}")
    if found.foreign:
        foreign = counted(found.foreign, "sandbox", "sandboxes")
        application.note(f"left alone: {foreign} of other record stores")
