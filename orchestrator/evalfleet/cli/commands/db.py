"""`orchestrate db`: the record store itself."""

from __future__ import annotations

from dataclasses import asdict

import click

from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.reports.figures import counted
from evalfleet.settings import Settings
from evalfleet.store.connection import place
from evalfleet.store.opening import open_store
from evalfleet.store.schema import HEAD


@click.group("db")
def command() -> None:
    """The record store: its schema, its address and its garbage.

    EVALFLEET_DATABASE_URL names a Postgres server; without it an embedded one runs while a command needs it.
    """


@command.command()
@options.json_option
@pass_application
def upgrade(application: Application) -> None:
    """Bring the record store to this version's schema; nothing happens when it is there already."""

    async def work() -> str:
        async with open_store(Settings.from_environment()) as url:
            return place(url)

    where = application.run(work())
    if application.json:
        application.value({"revision": HEAD, "place": where})
    else:
        application.lines([f"the record store at {where} stands at schema {HEAD}"])


@command.command()
@options.json_option
@pass_application
def url(application: Application) -> None:
    """Print the address with its password, for psql. The embedded server only runs while a command needs it."""

    async def work() -> str:
        async with open_store(Settings.from_environment()) as address:
            return address

    address = application.run(work())
    if application.json:
        application.value({"url": address})
    else:
        application.lines([address])


@command.command()
@click.option(
    "--older-than",
    "days",
    type=click.FloatRange(min=0),
    default=7.0,
    show_default=True,
    help="Days that runs of `orchestrate try` are kept.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@options.json_option
@pass_application
def gc(application: Application, days: float, dry_run: bool) -> None:
    """Delete old runs of `orchestrate try` with their evidence, and what dead workers left in the artifact store.

    The latter is what no row of its run names and nobody wrote for a day. Results of `orchestrate submit` are never
    touched, nor are objects of runs that this record store does not know.
    """
    tries, swept = application.run(application.api.collect_garbage(tries_older_than=days, dry_run=dry_run))
    if application.json:
        application.value({"deleted": list(tries), **asdict(swept), "dry_run": dry_run})
        return
    done = "would be deleted" if dry_run else "deleted"
    objects = counted(sum(swept.objects.values()), "object")
    application.lines([f"{counted(len(tries), 'run')} of `orchestrate try` {done}"])
    application.lines([f"{objects} without a row {done}, {counted(swept.size, 'byte')}"])
    if swept.unknown:
        unknown = counted(len(swept.unknown), "run")
        application.note(
            f"left alone: {unknown} in the artifact store that this record store does not have (--json names them)"
        )
