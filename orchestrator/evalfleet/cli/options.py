"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from evalfleet.model.sandbox import KeepSandbox
from evalfleet.model.verdict import CaseStatus

F = TypeVar("F", bound=Callable[..., Any])


def _assignments(_ctx: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    assignments: dict[str, str] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not of the form field=value, as in limits.concurrency=8")
        if name in assignments:
            raise click.BadParameter(f"{name} is set twice")
        assignments[name] = value
    return assignments


def _statuses(_ctx: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[CaseStatus, ...]:
    return tuple(CaseStatus(value) for value in values)


def _keep_sandbox(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> KeepSandbox:
    return KeepSandbox.NONE if value is None else KeepSandbox(value)


def status_option(*names: str, among: tuple[CaseStatus, ...], help: str) -> Callable[[F], F]:
    """A repeatable option whose value is a tuple of case statuses."""
    return click.option(
        *names, multiple=True, type=click.Choice([each.value for each in among]), callback=_statuses, help=help
    )


#: The cases that can be run again.
REOPENED = (CaseStatus.ERRORED, CaseStatus.FAILED, CaseStatus.BLOCKED)

#: `main.invoke` looks for it before anything is parsed, so that a parse error is a document, too.
json_option = click.option("--json", is_flag=True, expose_value=False, help="Write JSON for programs.")
run_argument = click.argument("run")
grading_option = click.option(
    "--grading", type=click.IntRange(min=0), metavar="N", help="What this grading says; 0 is how the run ended."
)
experiment_argument = click.argument("experiment", type=click.Path(exists=True, dir_okay=False, path_type=Path))
prefixes_argument = click.argument("prefixes", nargs=-1, metavar="[PREFIX]...")
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="FIELD=VALUE",
    callback=_assignments,
    help="Change a limit of the experiment, as in limits.concurrency=8; never what is measured.",
)
arm_option = click.option("--arm", "arms", metavar="ARM", multiple=True, help="Only this arm; may be repeated.")
keep_sandbox_option = click.option(
    "--keep-sandbox",
    is_flag=False,
    flag_value=KeepSandbox.FAILED.value,
    default=None,
    type=click.Choice([KeepSandbox.FAILED.value, KeepSandbox.ALL.value]),
    callback=_keep_sandbox,
    help="Leave the sandboxes of failed and errored attempts in place, or of =all.",
)
address_option = click.option(
    "--address",
    metavar="ADDRESS",
    help="The Ray cluster to run on: the http address of its dashboard ships the project there as a job, any other "
    "is joined from here.",
)
workers_option = click.option("--workers", type=click.IntRange(min=1), metavar="N", help="How many worker processes.")
lanes_option = click.option(
    "--lanes", type=click.IntRange(min=1), metavar="N", help="How many cases a worker runs at a time."
)
