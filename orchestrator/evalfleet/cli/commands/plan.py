"""`orchestrate plan`: what a run would do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from evalfleet.api.options import PlanOptions
from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.cli.plan_summary import ActionCounts, action_value, plan_lines, plan_value
from evalfleet.reports.visible import visible_line


@click.command()
@options.experiment_argument
@options.prefixes_argument
@options.set_option
@options.arm_option
@click.option("--reuse", is_flag=True, help="Plan to carry results of unchanged cases.")
@click.option("--allow-empty", is_flag=True, help="A selection without cases is no error.")
@click.option("--cases", is_flag=True, help="List every case, with what happens to it and why.")
@options.json_option
@pass_application
def command(application: Application, experiment: Path, prefixes: tuple[str, ...], cases: bool, **chosen: Any) -> None:
    """Say what running EXPERIMENT would do: its cases by arm, which run, which are carried or blocked, and why.

    No agent is called and nothing is recorded.
    """
    preview = application.run(application.api.plan(experiment, prefixes, PlanOptions(**chosen)))
    if not cases:
        counts = ActionCounts.of(preview.actions())
        if application.json:
            application.value(plan_value(preview, counts))
        else:
            application.lines(plan_lines(preview, counts))
        return
    for action in preview.actions():
        if application.json:
            application.value(action_value(action))
        else:
            case = action.case
            name = f"{case.ordinal} {case.arm} {case.eval_id} #{case.repetition + 1}"
            application.lines([visible_line(f"{name} {action.kind.value}: {action.reason}")])
