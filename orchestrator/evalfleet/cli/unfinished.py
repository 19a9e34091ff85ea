"""What `submit` does about a run of the same definitions that never ended: says so, and on a terminal asks."""

from __future__ import annotations

import sys

import click

from evalfleet.cli.application import Application
from evalfleet.cli.interrupts import plain_interrupts
from evalfleet.reports.figures import part_of
from evalfleet.store.planned import UnfinishedRun


class UnfinishedChoice:
    """Decides whether to go on with the run that it is told of. `lines` is what is left to say about it."""

    def __init__(self, application: Application, *, resume: bool) -> None:
        self._resume = resume
        self._asks = not application.json and sys.stdin.isatty() and sys.stderr.isatty()
        self.lines: list[str] = []

    def __call__(self, found: UnfinishedRun) -> bool:
        done = part_of(found.settled, found.total, "case")
        state = f"run {found.id} of the same definitions is not finished: {done} settled"
        if self._resume:
            self.lines.append(f"{state}; going on with it")
            return True
        if self._asks:
            with plain_interrupts():
                return click.confirm(f"{state}. Go on with it (else a new run starts)?", default=True, err=True)
        self.lines.append(f"{state}; this is a new run (orchestrate resume {found.id} goes on with that one)")
        return False
