"""`orchestrate capacity`: who uses which account's rate."""

from __future__ import annotations

from dataclasses import asdict

import click

from evalfleet.api.capacity import CapacityUse
from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.model.model_call import AccountUse
from evalfleet.reports.figures import seconds
from evalfleet.reports.tables import columns
from evalfleet.reports.visible import visible_line

HEADERS = ("account", "run", "in flight", "waiting", "calls/min", "judges/min", "tokens/min", "allowed")


@click.command()
@options.json_option
@pass_application
def command(application: Application) -> None:
    """List the accounts whose rate is governed, and which runs under way use how much of them.

    As the runs wrote it with their last heartbeat into the record store, so from any machine.
    """
    found = application.run(application.api.capacity())
    if application.json:
        told = [{**asdict(each.use), "run": each.run, "experiment": each.name, "at": each.at} for each in found]
        application.value({"uses": told})
    elif found:
        application.lines(columns(HEADERS, [_row(each) for each in found]))
    else:
        application.note("no run under way uses an account whose rate is governed")


def _row(found: CapacityUse) -> tuple[str, ...]:
    use = found.use
    counts = (use.in_flight, use.waiting, use.calls_per_minute, use.judge_calls_per_minute, use.tokens_per_minute)
    account = f"{use.name} ({use.account})"
    return (visible_line(account), found.run, *(f"{count:,.0f}" for count in counts), allowed(use))


def allowed(use: AccountUse) -> str:
    """What the account as a whole may do, configured or learned."""
    limits = ((use.concurrency, "at once"), (use.requests_limit, "calls/min"), (use.tokens_limit, "tokens/min"))
    parts = [f"{limit:,.0f} {what}" for limit, what in limits if limit is not None]
    if use.blocked:
        parts.append(f"nothing for {seconds(use.blocked)}")
    return ", ".join(parts) or "-"
