"""Records of JSONL, CSV, JSON and YAML files, each with its line.

JSONL and CSV stream: a file of any size holds one record in memory. JSON and YAML are read whole.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, cast

from pydantic import BaseModel

from evalfleet.errors import DefinitionError, Problem
from evalfleet.planning import csv_records, finite, yaml_source
from evalfleet.planning.typed import Typed

TextFormat: TypeAlias = Literal["jsonl", "csv", "json", "yaml"]

_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Record:
    """One row as written; `line` counts from 1, rows of tables where there are no lines."""

    line: int
    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """How a file is to be read. `model` gives untyped YAML scalars their types."""

    format: TextFormat
    encoding: str = "utf-8"
    delimiter: str = ","
    model: type[BaseModel] | None = None


def read_records(stream: BinaryIO, path: Path, how: FileFormat) -> Iterator[Record | Problem]:
    """Every record of an open file in order, or what is wrong with it. Nothing follows a problem that hides what
    comes next. Raises DefinitionError when the file as a whole can't be read.
    """
    start = stream.read(3)
    if start[:2] in _UTF16_BOMS:
        message = "the file is UTF-16: save it as UTF-8"
        raise DefinitionError("INVALID_ENCODING", [Problem("INVALID_ENCODING", message, str(path), 1)])
    begin = 3 if how.encoding == "utf-8" and start == _BOM else 0
    stream.seek(begin)
    if how.format == "jsonl":
        return _jsonl(stream, path, how.encoding)
    if how.format == "csv":
        return iter(_Csv(stream, path, how))
    text = _decode(stream.read(), path, 1, begin, how.encoding)
    if isinstance(text, Problem):
        raise DefinitionError(text.code, [text])
    return iter(_json_rows(text, path) if how.format == "json" else _yaml_rows(text, path, how.model))


class DuplicateKey(ValueError):
    """A JSON object names a key twice."""


class NotFinite(ValueError):
    """A number is none, which Python's reader lets pass: NaN, Infinity, or one that no float holds, like 1e400."""


def parse_json(text: str) -> Any:
    """JSON, exactly; raises DuplicateKey or NotFinite, at any depth, and ValueError for what is no JSON."""
    return json.loads(text, object_pairs_hook=_distinct, parse_float=_float, parse_constant=_constant)


def _jsonl(stream: BinaryIO, path: Path, encoding: str) -> Iterator[Record | Problem]:
    """One JSON object a line; blank lines are skipped."""
    offset = stream.tell()
    for line, raw in enumerate(stream, start=1):
        if raw.strip():
            text = _decode(raw, path, line, offset, encoding)
            yield text if isinstance(text, Problem) else _json_record(text.rstrip("\r\n"), path, line)
        offset += len(raw)


class _Csv:
    """A header, then one record a row; every cell is text."""

    def __init__(self, stream: BinaryIO, path: Path, how: FileFormat) -> None:
        self._stream, self._path, self._how = stream, path, how
        self._header: list[str] | None = None
        self._body = stream.tell()
        self._line = 1
        self._read_header()

    def __iter__(self) -> Iterator[Record | Problem]:
        self._stream.seek(self._body)
        for span in csv_records.spans(self._stream, self._how.delimiter, self._line):
            found = self._record(span)
            yield found
            if span.unclosed is not None:
                return

    def _read_header(self) -> None:
        span = next(csv_records.spans(self._stream, self._how.delimiter, 1), None)
        if span is None:
            return
        cells = self._cells(span)
        if not isinstance(cells, Problem):
            fault = csv_records.header_fault(cells)
            if fault is None:
                self._header = cells
                self._body, self._line = span.end, span.next_line
                return
            cells = self._problem(fault, span.line)
        raise DefinitionError(cells.code, [cells])

    def _record(self, span: csv_records.Span) -> Record | Problem:
        cells = self._cells(span)
        header = self._header or []
        if isinstance(cells, Problem):
            return cells
        if len(cells) != len(header):
            hint = "quote a cell that holds the delimiter"
            return self._problem(
                f"{len(cells)} {'cell' if len(cells) == 1 else 'cells'} where the header names {len(header)}",
                span.line,
                hint,
            )
        return Record(span.line, dict(zip(header, cells, strict=True)))

    def _cells(self, span: csv_records.Span) -> list[str] | Problem:
        if span.unclosed is not None:
            return self._problem("a quote is opened here and never closed", span.unclosed)
        text = _decode(span.raw, self._path, span.line, span.position, self._how.encoding)
        if isinstance(text, Problem):
            return text
        try:
            return csv_records.cells(text, self._how.delimiter)
        except csv_records.CellFault as fault:
            header = self._header or []
            column = f" in column {header[fault.column]!r}" if fault.column < len(header) else ""
            return self._problem(f"{fault}{column}", span.line + fault.line)

    def _problem(self, message: str, line: int, hint: str | None = None) -> Problem:
        return Problem("INVALID_CSV", message, str(self._path), line, hint=hint)


def _json_record(text: str, path: Path, line: int) -> Record | Problem:
    try:
        value = parse_json(text)
    except DuplicateKey as error:
        return Problem("DUPLICATE_KEY", str(error), str(path), line)
    except NotFinite as error:
        return _not_finite(error, text, 0, path, line)
    except json.JSONDecodeError as error:
        return Problem("INVALID_JSON", f"not valid JSON: {error.msg}", str(path), line, error.colno)
    except (RecursionError, ValueError) as error:
        return Problem("INVALID_JSON", f"not readable JSON: {_reason(error)}", str(path), line)
    return _as_record(value, path, line)


def _as_record(value: Any, path: Path, line: int) -> Record | Problem:
    if isinstance(value, dict):
        return Record(line, cast("dict[str, Any]", value))
    return Problem("INVALID_ROW", f"a row is an object, not {type(value).__name__}", str(path), line)


def _json_rows(text: str, path: Path) -> list[Record | Problem]:
    """The elements of one JSON array, each with the line it begins on."""
    decoder = json.JSONDecoder(object_pairs_hook=_distinct, parse_float=_float, parse_constant=_constant)
    rows: list[Record | Problem] = []
    place = _Cursor(text)
    if not place.accept("["):
        return [Problem("INVALID_JSON", "a JSON dataset is one array of objects", str(path), place.line)]
    while not place.accept("]"):
        if rows and not place.accept(","):
            return [*rows, Problem("INVALID_JSON", "not valid JSON: expected , or ]", str(path), place.line)]
        place.skip()
        try:
            value, end = decoder.raw_decode(text, place.index)
        except DuplicateKey as error:
            return [*rows, Problem("DUPLICATE_KEY", f"{error}, in the row that begins here", str(path), place.line)]
        except NotFinite as error:
            return [*rows, _not_finite(error, text, place.index, path, place.line)]
        except json.JSONDecodeError as error:
            message = f"not valid JSON: {error.msg}"
            return [*rows, Problem("INVALID_JSON", message, str(path), error.lineno, error.colno)]
        except (RecursionError, ValueError) as error:
            return [*rows, Problem("INVALID_JSON", f"not readable JSON: {_reason(error)}", str(path), place.line)]
        rows.append(_as_record(value, path, place.line))
        place.move(end)
    place.skip()
    if place.index < len(text):
        rows.append(Problem("INVALID_JSON", "not valid JSON: more text after the array", str(path), place.line))
    return rows


class _Cursor:
    """A place in JSON text that knows its line."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.index = 0
        self.line = 1

    def move(self, index: int) -> None:
        self.line += self._text.count("\n", self.index, index)
        self.index = index

    def skip(self) -> None:
        index = self.index
        while self._text[index : index + 1] in (" ", "\t", "\r", "\n"):
            index += 1
        self.move(index)

    def accept(self, character: str) -> bool:
        self.skip()
        if self._text[self.index : self.index + 1] != character:
            return False
        self.index += 1
        return True


def _yaml_rows(text: str, path: Path, model: type[BaseModel] | None) -> list[Record | Problem]:
    source = yaml_source.read_yaml(text, str(path))
    value: Any = source.value
    if not isinstance(value, list):
        return [source.problem("INVALID_YAML", "a YAML dataset is one list of mappings", ())]
    rows: list[Record | Problem] = []
    items = cast("list[Any]", value)
    for index, item in enumerate(items):
        place = source.place((index,))
        typed = Typed(source)
        row = yaml_source.resolve(item) if model is None else typed.model(item, model, (index,))
        rows.extend(typed.problems)
        rows.append(_as_record(row, path, place.line if place else 1))
    return rows


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise DuplicateKey(f"the key {twice!r} stands twice in one object")
    return value


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise NotFinite(f"the number {text[:40]} is too large")
    return value


def _constant(text: str) -> float:
    raise NotFinite(f"{text} is no JSON")


def _not_finite(error: NotFinite, text: str, begin: int, path: Path, line: int) -> Problem:
    """The refusal with the field that holds the number, in the value that begins at `begin` of the text."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text, begin)
    except (RecursionError, ValueError):  # broken further on: the number is named all the same
        value = None
    field = yaml_source.dotted(finite.not_finite(value) or ()) or None
    hint = "write a finite number, null, or the text in quotes"
    return Problem("INVALID_JSON", f"not readable JSON: {error}", str(path), line, field=field, hint=hint)


def _decode(raw: bytes, path: Path, line: int, offset: int, encoding: str) -> str | Problem:
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        at = offset + error.start
        bad_line = line + raw.count(b"\n", 0, error.start)
        message = f"byte 0x{raw[error.start]:02X} at offset {at} is not {encoding}"
        hint = 'say what it is, for example encoding="windows-1252"' if encoding == "utf-8" else None
        return Problem("INVALID_ENCODING", message, str(path), bad_line, hint=hint)


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return f"a whole number of more than {sys.get_int_max_str_digits()} digits"
