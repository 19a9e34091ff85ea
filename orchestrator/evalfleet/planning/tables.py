"""Rows of Parquet and Arrow files, a batch at a time.

The home of pyarrow, which the extra `datasets` installs and which is imported when a table is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from evalfleet.errors import DefinitionError, Problem
from evalfleet.planning.csv_records import header_fault
from evalfleet.planning.finite import HINT, REFUSAL
from evalfleet.planning.records import Record
from evalfleet.planning.table_values import CellFault, Conversion, UnknownType, conversion
from evalfleet.planning.yaml_source import dotted

#: So many rows are Python objects at a time.
BATCH_ROWS = 1024
#: A column is read in pieces of so many bytes, not as a whole.
_BUFFER = 1 << 20
_ARROW_FILE = b"ARROW1"


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of one batch: its cells as Python values, and what makes JSON of each."""

    name: str
    cells: list[Any]
    convert: Callable[[Any], Any]


def read_tables(files: Sequence[Path], dataset: Path) -> Iterator[Record | Problem]:
    """Every row of the files, numbered from 1 over all of them, or what is wrong with a cell of it.

    Raises DefinitionError when pyarrow is missing, a file can't be read, or a column has a type that no row holds.
    """
    arrow = _pyarrow(dataset)
    before = 0
    for file in files:
        try:
            for batch in _batches(arrow, file):
                yield from _rows(_columns(arrow, batch, file), before, dataset)
                before += batch.num_rows
        except (arrow.ArrowException, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
            _refuse("INVALID_TABLE", f"the table can't be read: {reason}", file)


def _pyarrow(dataset: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet  # pyright: ignore[reportUnusedImport] - makes it an attribute  # noqa: F401
    except ImportError:
        hint = "pip install 'evalfleet[datasets]'"
        _refuse("MISSING_EXTRA", "Parquet and Arrow files are read by pyarrow, which is not installed", dataset, hint)
    return pyarrow


def _batches(arrow: Any, file: Path) -> Iterator[Any]:
    """Record batches of at most BATCH_ROWS rows; Arrow files are mapped into memory, not read."""
    with file.open("rb") as stream:
        magic = stream.read(len(_ARROW_FILE))
    if file.suffix == ".parquet":
        with arrow.parquet.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False) as table:
            yield from table.iter_batches(batch_size=BATCH_ROWS, use_threads=False)
        return
    with arrow.memory_map(str(file)) as mapped:
        if magic == _ARROW_FILE:
            reader = arrow.ipc.open_file(mapped)
            batches = (reader.get_batch(index) for index in range(reader.num_record_batches))
        else:
            batches = iter(arrow.ipc.open_stream(mapped))
        for batch in batches:
            yield from (batch.slice(begin, BATCH_ROWS) for begin in range(0, batch.num_rows, BATCH_ROWS))


def _columns(arrow: Any, batch: Any, file: Path) -> list[_Column]:
    names: list[str] = batch.schema.names
    if fault := header_fault(names):
        _refuse("INVALID_TABLE", fault, file)
    return [_column(arrow, batch.column(index), name, file) for index, name in enumerate(names)]


def _column(arrow: Any, column: Any, name: str, file: Path) -> _Column:
    try:
        convert = conversion(arrow, column.type)
    except UnknownType as error:
        _refuse("INVALID_TABLE", f"a row can't hold the type {error}", file, "leave the column out", field=name)
    plain = column if convert.plain.equals(column.type) else column.cast(convert.plain)
    try:
        return _Column(name, plain.to_pylist(), convert)
    except UnicodeDecodeError:
        return _Column(name, [_text(cell) for cell in plain], lambda cell: _sound(cell, convert))


def _rows(columns: list[_Column], before: int, dataset: Path) -> Iterator[Record | Problem]:
    for number, cells in enumerate(zip(*(column.cells for column in columns), strict=True), start=before + 1):
        value: dict[str, Any] = {}
        name = ""
        try:
            for column, cell in zip(columns, cells, strict=True):
                name = column.name
                value[name] = column.convert(cell)
        except CellFault as fault:
            hint = HINT if str(fault) == REFUSAL else None
            place = dotted((name, *fault.place))
            yield Problem("INVALID_ROW", f"row {number}: {fault}", str(dataset), number, field=place, hint=hint)
        else:
            yield Record(number, value)


def _text(cell: Any) -> Any:
    try:
        return cell.as_py()
    except UnicodeDecodeError as error:
        return CellFault(f"the text is not UTF-8: byte 0x{error.object[error.start]:02X} at offset {error.start}")


def _sound(cell: Any, convert: Conversion) -> Any:
    if isinstance(cell, CellFault):
        raise cell
    return convert(cell)


def _refuse(code: str, message: str, file: Path, hint: str | None = None, field: str | None = None) -> NoReturn:
    raise DefinitionError(code, [Problem(code, message, str(file), field=field, hint=hint)])
