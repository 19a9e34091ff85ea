"""`orchestrate db`: the record store itself."""

from __future__ import annotations

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
@options.json_option
@pass_application
def gc(application: Application, days: float) -> None:
    """Delete old runs of `orchestrate try` with their evidence. Runs of `orchestrate submit` are never touched."""
    deleted = application.run(application.api.collect_garbage(tries_older_than=days))
    if application.json:
        application.value({"deleted": list(deleted)})
    else:
        application.lines([f"{counted(len(deleted), 'run')} of `orchestrate try` deleted"])
