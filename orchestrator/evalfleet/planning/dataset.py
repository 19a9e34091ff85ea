"""Datasets: rows that fan one Eval out, streamed, validated, identified by content."""

from __future__ import annotations

import codecs
import hashlib
import inspect
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from pydantic import BaseModel, ValidationError

from evalfleet.errors import AuthoringError, DefinitionError, Problem
from evalfleet.model.canonical import canonical_bytes, parse_exact
from evalfleet.model.definition import EvalDefinition
from evalfleet.model.ids import row_id, sha256
from evalfleet.planning import finite
from evalfleet.planning.choosing import Draw, Filter, Limit, Row, Step, choose, shuffled, values_are
from evalfleet.planning.eval_ids import part_fault, shown
from evalfleet.planning.records import FileFormat, Record, TextFormat, read_records
from evalfleet.planning.table_files import DataFiles, huggingface_files, parquet_files
from evalfleet.planning.tables import read_tables
from evalfleet.planning.typed import nearest
from evalfleet.planning.yaml_source import dotted

Format: TypeAlias = TextFormat | Literal["parquet", "huggingface"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Rows of a file or a folder. Build one with `jsonl`, `csv`, `json`, `yaml`, `parquet` or `huggingface`; `path`
    is relative to the file that says so. Narrow it with `filter`, `sample` and `limit`, each of which gives another.

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
    split: str | None = None
    steps: tuple[Step, ...] = ()
    order: int | None = None

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

    @classmethod
    def parquet(cls, path: str, *, id: str | None = None, model: type[BaseModel] | None = None) -> Dataset:
        """A Parquet file, or a folder of them in the order of their names; read in batches. Needs pyarrow."""
        return cls(format="parquet", path=_beside_caller(path), key=id, model=model)

    @classmethod
    def huggingface(
        cls,
        path: str,
        *,
        split: str | None = None,
        id: str | None = None,
        model: type[BaseModel] | None = None,
    ) -> Dataset:
        """What `datasets` saved with `save_to_disk`, or a folder of Parquet or Arrow files; read in batches.

        `split` may stay out where there is one only. Needs pyarrow.
        """
        return cls(format="huggingface", path=_beside_caller(path), key=id, model=model, split=split)

    def filter(self, keep: Callable[[Any], bool] | Mapping[str, Any]) -> Dataset:
        """The rows for which `keep` says True, or whose fields have the values of a mapping (a list: any of them).

        The predicate gets the row as the eval does. Raises AuthoringError for a field that the model doesn't have.
        """
        if isinstance(keep, Mapping):
            wanted = cast("Mapping[str, Any]", keep)
            self._check_fields(wanted)
            return self._and(Filter(values_are(wanted)))
        if not callable(keep):
            raise AuthoringError(f"a filter is a function or a mapping, not {type(keep).__name__}", "INVALID_DATASET")
        return self._and(Filter(keep))

    def sample(self, n: int, *, seed: int = 0) -> Dataset:
        """`n` rows chosen by their content, the same however the file is sorted; a larger `n` adds to a smaller."""
        return self._and(Draw(_count("sample", n), _seed(seed)))

    def shuffle(self, *, seed: int = 0) -> Dataset:
        """The rows in an order of their content: what a later `limit` takes, and the order of iterating.

        Runs order their cases themselves. Iterating holds all rows.
        """
        return replace(self, order=_seed(seed))

    def limit(self, n: int) -> Dataset:
        """The first `n` rows: of the file, or of the order that `shuffle` gave before."""
        count = _count("limit", n)
        return self._and(Limit(count) if self.order is None else Draw(count, self.order))

    def __iter__(self) -> Iterator[Any]:
        return (self.decode(row.data) for row in self.rows())

    def rows(self) -> Iterator[Row]:
        """The chosen rows in their order; stops at the first thing that is wrong."""
        return self._sound() if self.order is None else iter(shuffled(self._sound(), self.order))

    def _sound(self) -> Iterator[Row]:
        for found in self.choose(self.checked_rows()):
            if isinstance(found, Problem):
                raise DefinitionError(found.code, [found])
            yield found

    def choose(self, found: Iterator[Row | Problem]) -> Iterator[Row | Problem]:
        """Those of the checked rows that the filters, samples and limits leave, in the order of the file."""
        return choose(found, self.steps, self.decode, str(self.path))

    def checked_rows(self) -> Iterator[Row | Problem]:
        """Every row of the file, or what is wrong with it. Duplicate ids name both lines."""
        lines: dict[str, int] = {}
        for index, record in enumerate(self._records()):
            found = record if isinstance(record, Problem) else self._row(record, index)
            if self.key is not None and isinstance(found, Row):
                name = unicodedata.normalize("NFC", found.id)  # some file systems can't tell such names apart
                if name in lines:
                    found = self._duplicate(found, lines[name])
                else:
                    lines[name] = found.line
            yield found

    def decode(self, data: bytes) -> Any:
        """A row from its canonical JSON, as the eval gets it. Raises pydantic's ValidationError."""
        if self.model is None:
            return parse_exact(data)
        if self.format == "csv":
            return self.model.model_validate_strings(parse_exact(data))
        return self.model.model_validate_json(data)

    def sha256(self) -> str:
        """The digest of the file's bytes; of several, of their names and digests in the order they are read."""
        files = self.files().rows
        if files == (self.path,):
            return self._digest(self.path)
        named = (f"{file.relative_to(self.path).as_posix()} {self._digest(file)}\n" for file in files)
        return sha256("".join(named).encode())

    def files(self) -> DataFiles:
        """The files that the dataset consists of. Raises DefinitionError when a folder holds none."""
        if self.format == "parquet":
            return parquet_files(self.path)
        return huggingface_files(self.path, self.split) if self.format == "huggingface" else DataFiles((self.path,))

    def _named(self, record: Record, index: int) -> Row | Problem:
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
        return Row(name, record.line, canonical_bytes(record.value))

    def _row(self, record: Record, index: int) -> Row | Problem:
        row = self._named(record, index)
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

    @property
    def unit(self) -> str:
        """What the `line` of a row counts: lines of a text, or the rows of a table themselves."""
        return "row" if self.format in ("parquet", "huggingface") else "line"

    def _duplicate(self, row: Row, line: int) -> Problem:
        message = f"the id {shown(row.id)} stands twice, on {self.unit}s {line} and {row.line}"
        return self._problem("DUPLICATE_ID", message, row.line)

    def _records(self) -> Iterator[Record | Problem]:
        if self.format in ("parquet", "huggingface"):
            yield from read_tables(self.files().rows, self.path)
            return
        how = FileFormat(format=self.format, encoding=self.encoding, delimiter=self.delimiter, model=self.model)
        with self._stream(self.path) as stream:
            yield from read_records(stream, self.path, how)

    def _digest(self, file: Path) -> str:
        with self._stream(file) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def _stream(self, file: Path) -> BufferedReader:
        try:
            return file.open("rb")
        except OSError as error:
            message = f"the dataset can't be read: {error.strerror}"
            raise DefinitionError(
                "DATASET_NOT_READABLE", [Problem("DATASET_NOT_READABLE", message, str(file))]
            ) from error

    def _problem(self, code: str, message: str, line: int | None) -> Problem:
        return Problem(code, message, str(self.path), line)

    def _and(self, step: Step) -> Dataset:
        return replace(self, steps=(*self.steps, step))

    def _check_fields(self, wanted: Mapping[str, Any]) -> None:
        if self.model is None:
            return
        fields = self.model.model_fields
        for name in wanted:
            if name not in fields:
                message = f"{self.model.__name__} has no field {name!r} to filter by"
                raise AuthoringError(f"{message} ({nearest(name, fields)})", "INVALID_DATASET")


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


def _count(step: str, n: Any) -> int:
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise AuthoringError(f"{step}() takes a whole number of rows, at least 1, not {n!r}", "INVALID_DATASET")
    return n


def _seed(seed: Any) -> int:
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise AuthoringError(f"a seed is a whole number, not {seed!r}", "INVALID_DATASET")
    return seed


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
