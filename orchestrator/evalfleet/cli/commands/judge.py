"""`orchestrate judge`: how far a judge agrees with people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from evalfleet.api.calibrating import Calibrated, calibrate
from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.model.experiment import JudgeLayer
from evalfleet.reports.figures import UNKNOWN, count, counted, money, percent
from evalfleet.reports.tables import columns
from evalfleet.reports.visible import visible_line

HEADERS = (
    "recipe",
    "examples",
    "unread",
    "accuracy",
    "kappa",
    "mean error",
    "true yes",
    "false yes",
    "true no",
    "false no",
)


@click.group("judge")
def command() -> None:
    """The models that judge assertions."""


@command.command("calibrate")
@click.argument("labels", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--experiment",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Ask the judge of this experiment.",
)
@click.option("--model", help="Ask this model.")
@click.option("--base-url", help="Where the model is reached.")
@click.option("--api-key-env", metavar="NAME", help="The environment variable with its key.")
@click.option("--votes", type=click.IntRange(1, 99), help="Ask so often about each example.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write what comes of it into this file, for `judge.calibration` of an experiment.",
)
@options.json_option
@pass_application
def calibrate_command(
    application: Application, labels: Path, experiment: Path | None, output: Path | None, **chosen: Any
) -> None:
    """Ask a judge about the examples in LABELS, which people labelled, and say how far it agrees with them.

    LABELS is JSONL: a recipe, its question and material, the output and its label, from 0 to 1 or true and false.
    """
    layer = JudgeLayer(**{name: value for name, value in chosen.items() if value is not None})
    found = application.run(calibrate(labels, experiment, layer, output))
    if application.json:
        application.value(_value(found))
        return
    application.lines(_lines(found))
    if output is not None:
        application.note(f"wrote {output}")


def _value(found: Calibrated) -> dict[str, Any]:
    return {
        **found.calibration.model_dump(mode="json"),
        "calls": len(found.calls),
        "cost_usd": _cost(found),
        "unread_because": list(found.unread),
    }


def _lines(found: Calibrated) -> list[str]:
    judge = found.judge
    votes = "" if judge.votes == 1 else f", {judge.reducer.value} of {judge.votes} votes"
    rows = [
        (
            recipe,
            count(each.examples),
            count(each.unread),
            percent(each.accuracy),
            UNKNOWN if each.kappa is None else f"{each.kappa:.2f}",
            UNKNOWN if each.mean_error is None else f"{each.mean_error:.3f}",
            *(count(number) for number in each.confusion.values()),
        )
        for recipe, each in found.calibration.recipes.items()
    ]
    return [
        visible_line(f"judge {judge.model} at {judge.base_url}{votes}"),
        *columns(HEADERS, rows),
        f"{counted(len(found.calls), 'judge call')} · {money(_cost(found))}",
        *(visible_line(f"no ruling: {reason}") for reason in found.unread),
    ]


def _cost(found: Calibrated) -> float | None:
    """The cost of all calls; None when that of one is not known."""
    costs = [call.cost_usd for call in found.calls]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None
