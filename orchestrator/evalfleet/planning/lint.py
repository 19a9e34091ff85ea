"""What is legal and probably not meant: found without running anything, never in the way of a run."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from evalfleet.errors import Problem
from evalfleet.harbor.body import TaskBody
from evalfleet.model.canonical import canonical_bytes, parse_exact
from evalfleet.model.definition import EvalDefinition
from evalfleet.model.suite import DeclaredScenario
from evalfleet.planning.choosing import Row
from evalfleet.planning.dataset import Dataset
from evalfleet.planning.discover import Catalog, eval_files
from evalfleet.suites.registry import scenario_evaluators

_DECORATED = re.compile(r"^@(evalfleet\.)?define_(score_)?eval\b", re.MULTILINE)


def lint(catalog: Catalog, definitions: Iterable[EvalDefinition]) -> Iterator[Problem]:
    """Warnings about these evals, about their datasets, and about files that look like evals and are none."""
    datasets: set[Dataset] = set()
    for definition in definitions:
        yield from _undescribed(catalog, definition)
        yield from _asks_nobody(catalog, definition)
        yield from _without_effect(catalog, definition)
        yield from _checks_nothing(catalog, definition)
        if isinstance(definition.rows, Dataset) and definition.rows not in datasets:
            datasets.add(definition.rows)
            yield from _rows(definition.rows)
    yield from _overlooked(catalog.project)


def _undescribed(catalog: Catalog, definition: EvalDefinition) -> Iterator[Problem]:
    if definition.description:
        return
    line = None if definition.place is None else definition.place.line
    message = f"the eval {definition.id!r} has no description, so a report can't say what it is about"
    yield Problem("NO_DESCRIPTION", message, str(catalog.files[definition.id]), line, hint='description="…"')


def _asks_nobody(catalog: Catalog, definition: EvalDefinition) -> Iterator[Problem]:
    """An eval that declares a judge in a file that asks none: another judge would run it again for nothing."""
    file = catalog.files[definition.id]
    if isinstance(definition.body, DeclaredScenario):
        return
    if definition.judge is False or ".judge." in file.read_text(encoding="utf-8", errors="replace"):
        return
    line = None if definition.place is None else definition.place.line
    message = f"the eval {definition.id!r} declares a judge, and nothing in its file asks one"
    yield Problem("JUDGE_NOT_ASKED", message, str(file), line, hint="leave judge= out")


def _without_effect(catalog: Catalog, definition: EvalDefinition) -> Iterator[Problem]:
    """Settings of a task folder that are not known here, or about nothing that happens here."""
    if isinstance(definition.body, TaskBody):
        for name in definition.body.task.ignored:
            message = "this setting of a task has no effect here"
            yield Problem("TASK_SETTING_IGNORED", message, str(catalog.files[definition.id]), field=name)


def _checks_nothing(catalog: Catalog, definition: EvalDefinition) -> Iterator[Problem]:
    """A scenario without criteria passes whatever the agent does; and evaluators that nobody provides."""
    body = definition.body
    if not isinstance(body, DeclaredScenario):
        return
    file = str(catalog.files[definition.id])
    if not body.scenario.assertions and not any(step.assertions for step in body.scenario.steps):
        message = f"the scenario {definition.id!r} has no criterion, so it passes whatever the agent does"
        yield Problem("NO_CRITERIA", message, file, hint="add assertions to a step or to the scenario")
    for name in sorted(scenario_evaluators(body.scenario)):
        if name not in body.evaluators:
            message = f"the scenario {definition.id!r} names the evaluator {name!r}, which nobody provides"
            yield Problem("EVALUATOR_NOT_FOUND", message, file)


def _rows(dataset: Dataset) -> Iterator[Problem]:
    """Rows that say the same, and rows whose names move when one is inserted before them."""
    if dataset.key is None:
        message = "the rows are named by their position: inserting one renames all that follow"
        hint = 'id="…" names a column to call them by'
        yield Problem("ROWS_NAMED_BY_POSITION", message, str(dataset.path), hint=hint)
    lines: dict[bytes, int] = {}
    repeated: list[tuple[str, int, int]] = []
    for row in dataset.rows():
        content = _content(dataset, row)
        if content in lines:
            repeated.append((row.id, row.line, lines[content]))
        else:
            lines[content] = row.line
    if repeated:
        name, line, before = repeated[0]
        more = f", and {len(repeated) - 1} more of the kind" if len(repeated) > 1 else ""
        message = f"the row {name} says what the one on {dataset.unit} {before} does{more}"
        hint = "a repeated row weighs twice in every rate"
        yield Problem("REPEATED_ROW", message, str(dataset.path), line, hint=hint)


def _content(dataset: Dataset, row: Row) -> bytes:
    """A digest of the row without its name."""
    data = row.data
    if dataset.key is not None:
        value = parse_exact(data)
        data = canonical_bytes({name: item for name, item in value.items() if name != dataset.key})
    return hashlib.blake2b(data, digest_size=16).digest()


def _overlooked(project: Path) -> Iterator[Problem]:
    """Python files below `evals` that decorate an eval and are not named like one."""
    known = set(eval_files(project))
    for folder, folders, names in os.walk(project / "evals"):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        for path in (Path(folder, name) for name in sorted(names) if name.endswith(".py")):
            found = None if path in known else _DECORATED.search(path.read_text(encoding="utf-8", errors="replace"))
            if found is not None:
                line = found.string.count("\n", 0, found.start()) + 1
                hint = f"call it {path.stem.removesuffix('_eval')}.eval.py"
                message = "this eval is never run: its file is not named *.eval.py"
                yield Problem("OVERLOOKED_FILE", message, str(path), line, hint=hint)
