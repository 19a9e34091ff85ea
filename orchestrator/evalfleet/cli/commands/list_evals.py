"""`orchestrate list`: the evals of a project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.errors import ConfigurationError
from evalfleet.model.definition import EvalDefinition
from evalfleet.model.suite import DeclaredScenario
from evalfleet.planning.dataset import Dataset
from evalfleet.planning.discover import Catalog, discover, find_project
from evalfleet.planning.lint import lint
from evalfleet.reports.figures import count, counted
from evalfleet.reports.tables import columns
from evalfleet.reports.visible import visible_line
from evalfleet.suites.matrix import combination_count

HEADERS = ("eval", "style", "rows", "tags", "description")

#: What a scenario's choices of variants are called, where rows would be of datasets.
_VARIANTS = "variants"


@click.command("list")
@options.prefixes_argument
@click.option(
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="Where to look for it.",
)
@click.option("--lint", "linted", is_flag=True, help="Warn about what is legal and probably not meant.")
@options.json_option
@pass_application
def command(application: Application, prefixes: tuple[str, ...], project: Path, linted: bool) -> None:
    """List the evals of the project here or above, or only those whose ids start with a PREFIX.

    Imports every eval file and reads every dataset, so everything that is wrong with them is reported.
    """
    catalog = discover(find_project(project))
    chosen = _chosen(catalog, prefixes)
    rows = [_row(catalog, definition) for definition in chosen]
    warnings = list(lint(catalog, chosen)) if linted else []
    if application.json:
        for value in (*rows, *({"warning": asdict(warning)} for warning in warnings)):
            application.value(value)
        return
    application.lines(columns(HEADERS, [_cells(row) for row in rows]))
    application.lines(visible_line(f"warning: {warning}") for warning in warnings)
    cases = sum(row["rows"] or row[_VARIANTS] or 1 for row in rows)
    said = f"{counted(len(rows), 'eval')}, {counted(cases, 'case')} for each arm and repetition"
    application.note(f"{said}, {counted(len(warnings), 'warning')}" if linted else said)


def _chosen(catalog: Catalog, prefixes: Sequence[str]) -> list[EvalDefinition]:
    if not catalog.definitions:
        raise ConfigurationError(f"there is no eval below {catalog.project / 'evals'} (orchestrate init writes one)")
    for prefix in prefixes:
        if not any(definition.id.startswith(prefix) for definition in catalog.definitions):
            raise ConfigurationError(f"no eval id starts with {prefix!r} (orchestrate list shows all)")
    if not prefixes:
        return list(catalog.definitions)
    return [definition for definition in catalog.definitions if definition.id.startswith(tuple(prefixes))]


def _row(catalog: Catalog, definition: EvalDefinition) -> dict[str, Any]:
    rows = sum(1 for _ in definition.rows.rows()) if isinstance(definition.rows, Dataset) else None
    body = definition.body
    return {
        "eval": definition.id,
        "style": definition.style.value,
        "rows": rows,
        _VARIANTS: combination_count(body.scenario) if isinstance(body, DeclaredScenario) else None,
        "tags": list(definition.tags),
        "description": definition.description,
        "file": str(catalog.files[definition.id].relative_to(catalog.project)),
        "line": definition.place.line if definition.place is not None else None,
    }


def _size(row: dict[str, Any]) -> str:
    """How many cases an eval fans out to, where it does."""
    if row["rows"] is not None:
        return count(row["rows"])
    return count(row[_VARIANTS]) if (row[_VARIANTS] or 1) > 1 else ""


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["eval"],
        row["style"],
        _size(row),
        visible_line(", ".join(row["tags"])),
        visible_line(row["description"] or ""),
    )
