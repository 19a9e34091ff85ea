"""The selected Evals of a plan, in planned order: rows are read from their files again, not kept as objects."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from evalfleet.errors import DefinitionError, Problem
from evalfleet.model.definition import EvalDefinition
from evalfleet.planning.dataset import Dataset, RowReader
from evalfleet.planning.expand import SelectedEval, content_key, planned_order
from evalfleet.planning.select import Selector

#: This many wrong rows of one dataset are enough to report.
MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRecord:
    """A dataset as a run records it: `uri` is relative to the project, `rows` counts all rows of the file."""

    uri: str
    sha256: str
    rows: int


@dataclass(slots=True)
class _Rows:
    """The selected rows of one dataset: position, index in the file, and the rows themselves while they fit."""

    positions: array[int] = field(default_factory=lambda: array("Q"))
    indices: array[int] = field(default_factory=lambda: array("Q"))
    kept: list[tuple[str, bytes]] | None = field(default_factory=list[tuple[str, bytes]])
    sha256: str = ""


@dataclass(slots=True)
class _Found:
    """Selected Evals in the order they were found: definition, row of its dataset, content key."""

    owners: array[int] = field(default_factory=lambda: array("L"))
    rows: array[int] = field(default_factory=lambda: array("Q"))
    keys: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, owner: int, row: int, key: int) -> None:
        self.owners.append(owner)
        self.rows.append(row)
        self.keys.append(key)


class SelectedEvals:
    """Selected Evals in planned order. Iterating gives the same each time, or raises DefinitionError
    (`DATASET_CHANGED`) when a file is not what was scanned."""

    def __init__(self, definitions: Sequence[EvalDefinition], rows: Mapping[int, _Rows]) -> None:
        self._definitions = definitions
        self._rows = rows
        self._owner = array("L")
        self._row = array("Q")
        self._occurrences: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._owner)

    def arrange(self, found: _Found, seed: int, limit: int | None) -> None:
        """Keep the first `limit` of what was found, in planned order."""
        order, keys = planned_order(found.keys, seed)[:limit], found.keys
        for place, index in enumerate(order):
            self._owner.append(found.owners[index])
            self._row.append(found.rows[index])
            if place and keys[index] == keys[order[place - 1]]:
                self._occurrences[place] = self._occurrences.get(place - 1, 0) + 1

    def definitions(self) -> tuple[EvalDefinition, ...]:
        """The definitions that have a selected Eval."""
        return tuple(self._definitions[index] for index in sorted(set(self._owner)))

    def __iter__(self) -> Iterator[SelectedEval]:
        with ExitStack() as stack:
            readers: dict[int, RowReader] = {}
            for place, owner in enumerate(self._owner):
                definition = self._definitions[owner]
                eval_id, data = definition.id, None
                if owner in self._rows:
                    name, data = self._read(owner, self._row[place], readers, stack)
                    eval_id = f"{eval_id}/{name}"
                yield SelectedEval(
                    definition=definition.id,
                    eval_id=eval_id,
                    style=definition.style,
                    row=data,
                    occurrence=self._occurrences.get(place, 0),
                    tags=definition.tags,
                    external=definition.external,
                )

    def _read(self, owner: int, row: int, readers: dict[int, RowReader], stack: ExitStack) -> tuple[str, bytes]:
        rows = self._rows[owner]
        if rows.kept is not None:
            return rows.kept[row]
        if owner not in readers:
            dataset: Dataset = self._definitions[owner].rows
            if dataset.sha256() != rows.sha256:
                message = "the dataset changed while the run was being planned: plan again"
                raise DefinitionError("DATASET_CHANGED", [Problem("DATASET_CHANGED", message, str(dataset.path))])
            readers[owner] = stack.enter_context(dataset.reading())
        found = readers[owner].at(rows.positions[row], rows.indices[row])
        return found.id, found.data


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a pass over the catalog found."""

    evals: SelectedEvals
    datasets: tuple[DatasetRecord, ...]
    problems: tuple[Problem, ...]


def scan(
    definitions: Sequence[EvalDefinition], selector: Selector, project: Path, *, allow_empty: bool, kept_bytes: int
) -> Scan:
    """Read each dataset that the selection can reach, once: check its rows, record it, order what is selected.

    Selected rows stay in memory up to `kept_bytes` in all; those of a dataset that goes beyond are read again.
    """
    scanner = _Scanner(selector, project, allow_empty=allow_empty, kept_bytes=kept_bytes)
    for index, definition in enumerate(definitions):
        scanner.add(index, definition)
    table = SelectedEvals(definitions, scanner.rows)
    if not scanner.problems:
        table.arrange(scanner.found, selector.selection.seed, selector.selection.limit)
    records = tuple(dict.fromkeys(scanner.records))
    return Scan(evals=table, datasets=records, problems=tuple(scanner.problems))


class _Scanner:
    def __init__(self, selector: Selector, project: Path, *, allow_empty: bool, kept_bytes: int) -> None:
        self._selector = selector
        self._project = project
        self._allow_empty = allow_empty
        self._room = kept_bytes
        self.rows: dict[int, _Rows] = {}
        self.found = _Found()
        self.records: list[DatasetRecord] = []
        self.problems: list[Problem] = []

    def add(self, index: int, definition: EvalDefinition) -> None:
        has_rows = isinstance(definition.rows, Dataset)
        if not self._selector.may_admit(definition.id, definition.tags, rows=has_rows):
            return
        if has_rows:
            try:
                self._add_rows(index, definition.id, definition.rows)
            except DefinitionError as error:
                self.problems.extend(error.problems)
        elif self._selector.admits(definition.id):
            self.found.add(index, 0, content_key(definition.id, None))

    def _add_rows(self, index: int, definition: str, dataset: Dataset) -> None:
        rows = _Rows(sha256=dataset.sha256())
        problems: list[Problem] = []
        total = 0
        for found in dataset.checked_rows():
            if isinstance(found, Problem):
                problems.append(found)
                if len(problems) == MAX_PROBLEMS:
                    break
                continue
            total += 1
            if self._selector.admits(f"{definition}/{found.id}"):
                self.found.add(index, len(rows.positions), content_key(definition, found.data))
                rows.positions.append(found.position)
                rows.indices.append(found.index)
                self._keep(rows, found.id, found.data)
        if not total and not problems and not self._allow_empty:
            problems.append(Problem("EMPTY_DATASET", "no case is selected: the dataset has no rows", str(dataset.path)))
        self.problems.extend(problems)
        self.rows[index] = rows
        self.records.append(DatasetRecord(uri=_uri(dataset.path, self._project), sha256=rows.sha256, rows=total))

    def _keep(self, rows: _Rows, name: str, data: bytes) -> None:
        if rows.kept is None:
            return
        self._room -= len(name) + len(data)
        if self._room >= 0:
            rows.kept.append((name, data))
        else:
            self._room += len(name) + len(data) + sum(len(one) + len(other) for one, other in rows.kept)
            rows.kept = None


def _uri(path: Path, project: Path) -> str:
    resolved = path.resolve()
    return resolved.relative_to(project).as_posix() if resolved.is_relative_to(project) else resolved.as_uri()
