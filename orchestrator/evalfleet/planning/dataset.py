"""Datasets: rows that fan one Eval out, streamed, validated, identified by content."""

from __future__ import annotations

import codecs
import hashlib
import inspect
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from evalfleet.errors import AuthoringError, DefinitionError, Problem
from evalfleet.model.canonical import canonical_bytes, parse_exact
from evalfleet.model.definition import EvalDefinition
from evalfleet.model.ids import row_id
from evalfleet.planning import finite
from evalfleet.planning.eval_ids import part_fault, shown
from evalfleet.planning.records import FileFormat, Format, Record, RecordFile, open_records
from evalfleet.planning.yaml_source import dotted


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its id within the dataset, its place in the file, and its value as canonical JSON."""

    id: str
    index: int
    line: int
    position: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A file of rows. Build one with `jsonl`, `csv`, `json` or `yaml`; `path` is relative to the file that says so.

    Iterating yields each row as the eval gets it: an instance of `model`, else a dict. `key` is the column that
    names a row; without one a row is named by its position. Every method that reads raises DefinitionError with
    file and line.
    """

    format: Format
    path: Path
    key: str | None = None
    model: type[BaseModel] | None = None
    encoding: str = "utf-8"
    delimiter: str = ","

    @classmethod
    def jsonl(
        cls,
        path: str,
        *,
        id: str | None = None,
        model: type[BaseModel] | None = None,
        encoding: str = "utf-8",
    ) -> Dataset:
        """One JSON object a line. Raises AuthoringError for an option that can't be."""
        return cls(format="jsonl", path=_beside_caller(path), key=id, model=model, encoding=_codec(encoding))

    @classmethod
    def csv(
        cls,
        path: str,
        *,
        id: str | None = None,
        model: type[BaseModel] | None = None,
        encoding: str = "utf-8",
        delimiter: str = ",",
    ) -> Dataset:
        """A header and one row a record; cells are text, which a `model` turns into its types."""
        if len(delimiter) != 1 or delimiter in '"\r\n' or not delimiter.isascii():
            raise AuthoringError(f"a delimiter is one ASCII character, not {delimiter!r}", "INVALID_DATASET")
        where = _beside_caller(path)
        return cls(format="csv", path=where, key=id, model=model, encoding=_codec(encoding), delimiter=delimiter)

    @classmethod
    def json(cls, path: str, *, id: str | None = None, model: type[BaseModel] | None = None) -> Dataset:
        """One array of objects, read whole."""
        return cls(format="json", path=_beside_caller(path), key=id, model=model)

    @classmethod
    def yaml(cls, path: str, *, id: str | None = None, model: type[BaseModel] | None = None) -> Dataset:
        """One list of mappings, read whole; see `planning.yaml_source` for what plain scalars mean."""
        return cls(format="yaml", path=_beside_caller(path), key=id, model=model)

    def __iter__(self) -> Iterator[Any]:
        return (self.decode(row.data) for row in self.rows())

    def rows(self) -> Iterator[Row]:
        """Every row in file order, one at a time; stops at the first thing that is wrong."""
        for found in self.checked_rows():
            if isinstance(found, Problem):
                raise DefinitionError(found.code, [found])
            yield found

    def checked_rows(self) -> Iterator[Row | Problem]:
        """Every row, or what is wrong with it. Duplicate ids name both lines."""
        lines: dict[str, int] = {}
        index = 0
        with self._open() as records:
            for record in records:
                found = record if isinstance(record, Problem) else self._row(record, index)
                if self.key is not None and isinstance(found, Row):
                    if found.id in lines:
                        message = f"the id {shown(found.id)} stands twice, on lines {lines[found.id]} and {found.line}"
                        found = self._problem("DUPLICATE_ID", message, found.line)
                    else:
                        lines[found.id] = found.line
                index += 1
                yield found

    @contextmanager
    def reading(self) -> Generator[RowReader]:
        """Random access to rows by the positions that a scan gave."""
        with self._open() as records:
            yield RowReader(self, records)

    def decode(self, data: bytes) -> Any:
        """A row from its canonical JSON, as the eval gets it. Raises pydantic's ValidationError."""
        if self.model is None:
            return parse_exact(data)
        if self.format == "csv":
            return self.model.model_validate_strings(parse_exact(data))
        return self.model.model_validate_json(data)

    def sha256(self) -> str:
        """The digest of the file's bytes."""
        with self._stream() as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def row_of(self, record: Record, index: int) -> Row | Problem:
        """The row that a record holds; its id is checked, its value not."""
        name = row_id(index) if self.key is None else record.value.get(self.key)
        if name is None:
            return self._problem("MISSING_ID", f"the row has no {self.key!r} to name it", record.line)
        if isinstance(name, int) and not isinstance(name, bool):
            name = str(name)
        if not isinstance(name, str):
            message = f"{self.key!r} is {type(name).__name__}; an id is text or a whole number"
            return self._problem("INVALID_ID", message, record.line)
        if fault := part_fault(name):
            return self._problem("INVALID_ID", f"the id {shown(name)} {fault}", record.line)
        return Row(name, index, record.line, record.position, canonical_bytes(record.value))

    def _row(self, record: Record, index: int) -> Row | Problem:
        row = self.row_of(record, index)
        if isinstance(row, Problem) or self.model is None:
            return row
        hint = None
        try:
            place = finite.not_finite(self.decode(row.data))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place, fault = first["loc"], first["msg"]
        else:
            if place is None:
                return row
            fault, hint = finite.REFUSAL, finite.HINT
        message = f"the row does not fit {self.model.__name__}: {fault}"
        return Problem("INVALID_ROW", message, str(self.path), record.line, field=dotted(place) or None, hint=hint)

    @contextmanager
    def _open(self) -> Generator[RecordFile]:
        how = FileFormat(format=self.format, encoding=self.encoding, delimiter=self.delimiter, model=self.model)
        with self._stream() as stream:
            yield open_records(stream, self.path, how)

    def _stream(self) -> Any:
        try:
            return self.path.open("rb")
        except OSError as error:
            problem = self._problem("DATASET_NOT_READABLE", f"the dataset can't be read: {error.strerror}", None)
            raise DefinitionError(problem.code, [problem]) from error

    def _problem(self, code: str, message: str, line: int | None) -> Problem:
        return Problem(code, message, str(self.path), line)


class RowReader:
    """Rows of an open dataset by position."""

    def __init__(self, dataset: Dataset, records: RecordFile) -> None:
        self._dataset = dataset
        self._records = records

    def at(self, position: int, index: int) -> Row:
        """The row at `position`, the `index`-th of its file. Raises DefinitionError when it is not there any more."""
        record = self._records.at(position)
        row = record if isinstance(record, Problem) else self._dataset.row_of(record, index)
        if isinstance(row, Problem):
            raise DefinitionError(row.code, [row])
        return row


def decode_row(definition: EvalDefinition, data: bytes) -> Any:
    """The row that an eval gets for a case's canonical JSON: a model instance or a dict.

    Raises AuthoringError (`INVALID_ROW`) when the row no longer fits the model.
    """
    if not isinstance(definition.rows, Dataset):
        raise AuthoringError(f"the eval {definition.id!r} has no dataset to read a row of", "INVALID_ROW")
    try:
        return definition.rows.decode(data)
    except ValidationError as error:
        raise AuthoringError(f"a row does not fit its model: {error}", "INVALID_ROW") from error


def _beside_caller(path: str) -> Path:
    """`path` relative to the file that called the public method which calls this."""
    if "://" in path:
        message = f"remote datasets are not supported by this version: download {path!r} and name the file"
        raise AuthoringError(message, "INVALID_DATASET")
    frame = inspect.currentframe()
    caller = frame.f_back.f_back if frame is not None and frame.f_back is not None else None
    folder = Path(caller.f_code.co_filename).parent if caller is not None else Path()
    return folder / path


def _codec(encoding: str) -> str:
    """The encoding's usual name. Raises AuthoringError unless newlines and quotes are single ASCII bytes in it."""
    try:
        name = codecs.lookup(encoding).name
        ascii_like = '",\n'.encode(name) == b'",\n' or name == "utf-8-sig"
    except LookupError:
        raise AuthoringError(f"there is no encoding named {encoding!r}", "INVALID_DATASET") from None
    if not ascii_like:
        message = f"the encoding {encoding!r} can't be streamed: save the file as UTF-8"
        raise AuthoringError(message, "INVALID_DATASET")
    return "utf-8" if name == "utf-8-sig" else name
