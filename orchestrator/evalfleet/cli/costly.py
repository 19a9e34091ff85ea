"""What `submit` does about a run that may cost more than its experiment lets pass: on a terminal it asks."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from evalfleet.cli.application import Application
from evalfleet.cli.interrupts import plain_interrupts
from evalfleet.reports.cost_estimate import CostEstimate, estimate_line
from evalfleet.reports.visible import visible_line


def cost_choice(application: Application) -> Callable[[CostEstimate], bool] | None:
    """What asks whoever sits at the terminal; None where nobody does."""
    if application.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    def ask(estimate: CostEstimate) -> bool:
        with plain_interrupts():
            return click.confirm(f"{visible_line(estimate_line(estimate))}. Begin?", default=False, err=True)

    return ask
