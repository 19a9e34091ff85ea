"""The selected Evals of a plan, in planned order, with their rows."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evalfleet.errors import DefinitionError, Problem
from evalfleet.model.canonical import canonical_bytes, parse_exact
from evalfleet.model.definition import EvalDefinition
from evalfleet.model.suite import DeclaredScenario, Scenario
from evalfleet.planning.choosing import Row
from evalfleet.planning.dataset import Dataset
from evalfleet.planning.expand import MAX_CASES, SelectedEval, content_key, planned_order, shown
from evalfleet.planning.kept_rows import KeptRows
from evalfleet.planning.select import Selector
from evalfleet.suites.matrix import combination_count, combinations
from evalfleet.suites.selection import CASE_LIMIT

#: This many wrong rows of one dataset are enough to report.
MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRecord:
    """A dataset as a run records it: `uri` is relative to the project, with the split of a table as its fragment;
    `rows` counts all rows, `files` are what it consists of."""

    uri: str
    sha256: str
    rows: int
    files: tuple[Path, ...]


#: In the place of a row's number, for an Eval without a dataset.
_NO_ROW = 2**64 - 1


@dataclass(slots=True)
class _Found:
    """Selected Evals in the order they were found: definition, number of its row, content key."""

    owners: array[int] = field(default_factory=lambda: array("L"))
    rows: array[int] = field(default_factory=lambda: array("Q"))
    keys: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, owner: int, row: int, key: int) -> None:
        self.owners.append(owner)
        self.rows.append(row)
        self.keys.append(key)


class SelectedEvals:
    """Selected Evals in planned order. Iterating gives the same each time, whatever becomes of the files."""

    def __init__(self, definitions: Sequence[EvalDefinition], rows: KeptRows) -> None:
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
        for place, (owner, row) in enumerate(zip(self._owner, self._row, strict=True)):
            definition = self._definitions[owner]
            eval_id, data = definition.id, None
            variants: dict[str, str] = {}
            if row != _NO_ROW:
                name, data = self._rows[row]
                if isinstance(definition.body, DeclaredScenario):
                    variants, data = parse_exact(data), None
                else:
                    eval_id = f"{eval_id}/{name}"
            yield SelectedEval(
                definition=definition.id,
                eval_id=eval_id,
                style=definition.style,
                row=data,
                occurrence=self._occurrences.get(place, 0),
                tags=definition.tags,
                external=definition.external,
                variants=variants,
            )


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

    Selected rows stay in memory up to `kept_bytes` in all; the others wait in a temporary file.
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
        self.rows = KeptRows(kept_bytes)
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
            if isinstance(definition.body, DeclaredScenario):
                self._add_variants(index, definition.id, definition.body.scenario)
            else:
                self.found.add(index, _NO_ROW, content_key(definition.id, None))

    def _add_variants(self, index: int, definition: str, scenario: Scenario) -> None:
        """One Eval a combination of the scenario's variants; just one without any."""
        if (count := combination_count(scenario)) > MAX_CASES:
            message = f"{shown(count)} combinations of variants; a run has at most {shown(MAX_CASES)} cases"
            self.problems.append(Problem(CASE_LIMIT, f"the scenario {definition!r} has {message}"))
            return
        for variants in combinations(scenario):
            data = canonical_bytes(dict(variants)) if variants else None
            row = _NO_ROW if data is None else self.rows.add("", data)
            self.found.add(index, row, content_key(definition, data))

    def _add_rows(self, index: int, definition: str, dataset: Dataset) -> None:
        digest = dataset.sha256()
        problems: list[Problem] = []
        counted = _Counted(dataset.checked_rows())
        chosen = 0
        for found in dataset.choose(iter(counted)):
            if isinstance(found, Problem):
                problems.append(found)
                if len(problems) == MAX_PROBLEMS:
                    break
                continue
            chosen += 1
            if self._selector.admits(f"{definition}/{found.id}"):
                self.found.add(index, self.rows.add(found.id, found.data), content_key(definition, found.data))
        if not chosen and not problems and not self._allow_empty:
            why = f"its filter leaves none of {counted.rows} rows" if counted.rows else "the dataset has no rows"
            problems.append(Problem("EMPTY_DATASET", f"no case is selected: {why}", str(dataset.path)))
        self.problems.extend(problems)
        files = dataset.files()
        record = DatasetRecord(
            uri=_uri(dataset, self._project),
            sha256=digest,
            rows=counted.rows,
            files=tuple(file.resolve() for file in (*files.rows, *files.described_by)),
        )
        self.records.append(record)


class _Counted:
    """Counts the rows that pass."""

    def __init__(self, found: Iterator[Row | Problem]) -> None:
        self._found = found
        self.rows = 0

    def __iter__(self) -> Iterator[Row | Problem]:
        for item in self._found:
            self.rows += isinstance(item, Row)
            yield item


def _uri(dataset: Dataset, project: Path) -> str:
    resolved = dataset.path.resolve()
    uri = resolved.relative_to(project).as_posix() if resolved.is_relative_to(project) else resolved.as_uri()
    return uri if dataset.split is None else f"{uri}#{dataset.split}"
