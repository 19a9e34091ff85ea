"""Parquet and Arrow tables: each value kept exactly as JSON, or refused with its row and column."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Base64Bytes, BaseModel, ConfigDict

from evalfleet.errors import DefinitionError, Problem
from evalfleet.planning.dataset import Dataset
from tests.unit.planning.projects import REPO


def saved(folder: Path, kind: Any, values: list[Any], name: str = "x") -> Dataset:
    """A Parquet file with one column."""
    return table(folder, pa.table({name: pa.array(values, kind)}))


def table(folder: Path, content: pa.Table, **options: Any) -> Dataset:
    path = folder / "rows.parquet"
    parquet.write_table(content, path)
    return Dataset.parquet(str(path), **options)


def arrow_file(folder: Path, content: pa.Table) -> Dataset:
    """What Parquet has no type for, as an Arrow stream."""
    path = folder / "rows.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, content.schema) as writer:
        writer.write_table(content)
    return Dataset.huggingface(str(folder))


def refusals(dataset: Dataset) -> list[Problem]:
    try:
        return [found for found in dataset.checked_rows() if isinstance(found, Problem)]
    except DefinitionError as error:
        return list(error.problems)


NOON = datetime(2024, 9, 3, 12, 0, 0)
BERLIN = timezone(timedelta(hours=2))
NS = 1_725_364_800_000_000_001
STRUCT = pa.struct([("when", pa.timestamp("ns")), ("price", pa.decimal128(9, 2)), ("n", pa.int64())])

KEPT = [
    ("null", pa.null(), None, None),
    ("true", pa.bool_(), True, True),
    ("int64 beyond 2**53", pa.int64(), 2**53 + 1, 2**53 + 1),
    ("least int64", pa.int64(), -(2**63), -(2**63)),
    ("uint64", pa.uint64(), 2**64 - 1, 2**64 - 1),
    ("float", pa.float64(), 0.1, 0.1),
    ("float32 as it is stored", pa.float32(), 0.1, 0.10000000149011612),
    ("text", pa.string(), "It’s\0\n", "It’s\0\n"),
    ("empty text", pa.large_string(), "", ""),
    ("decimal keeps its digits", pa.decimal128(9, 2), Decimal("12.50"), "12.50"),
    ("long decimal", pa.decimal256(60, 20), Decimal("1" * 40 + "." + "2" * 20), "1" * 40 + "." + "2" * 20),
    ("date", pa.date32(), date(2024, 2, 29), "2024-02-29"),
    ("first date", pa.date32(), date(1, 1, 1), "0001-01-01"),
    ("timestamp", pa.timestamp("us"), NOON.replace(microsecond=50_000), "2024-09-03T12:00:00.05"),
    ("whole second", pa.timestamp("ms"), NOON, "2024-09-03T12:00:00"),
    ("nanosecond", pa.timestamp("ns"), NS, "2024-09-03T12:00:00.000000001"),
    ("before 1970", pa.timestamp("ms"), datetime(1969, 12, 31, 23, 59, 59, 999_000), "1969-12-31T23:59:59.999"),
    ("instant of a zone", pa.timestamp("us", "Europe/Berlin"), NOON.replace(tzinfo=BERLIN), "2024-09-03T10:00:00Z"),
    ("time", pa.time64("us"), time(7, 5, 0, 120), "07:05:00.00012"),
    ("binary", pa.binary(), b"\x00\xff", "AP8="),
    ("list", pa.list_(pa.string()), ["a", None], ["a", None]),
    ("empty list", pa.list_(pa.int32()), [], []),
    ("list of dates", pa.list_(pa.date32()), [date(2024, 1, 2), None], ["2024-01-02", None]),
    ("struct", STRUCT, {"when": NS, "price": Decimal("1.00"), "n": None},
     {"when": "2024-09-03T12:00:00.000000001", "price": "1.00", "n": None}),
    ("list of structs", pa.list_(pa.struct([("a", pa.list_(pa.int8()))])), [{"a": [1]}, None], [{"a": [1]}, None]),
    ("map with text keys", pa.map_(pa.string(), pa.date32()), [("b", date(2024, 1, 2)), ("a", None)],
     {"a": None, "b": "2024-01-02"}),
    ("dictionary", pa.dictionary(pa.int8(), pa.string()), "hard", "hard"),
    ("uuid", pa.uuid(), UUID("12345678-1234-5678-1234-567812345678").bytes, "12345678-1234-5678-1234-567812345678"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "expected"), [row[1:] for row in KEPT], ids=[row[0] for row in KEPT])
def test_a_value_is_kept_exactly(tmp_path: Path, kind: Any, value: Any, expected: Any) -> None:
    (tmp_path / "arrow").mkdir()
    column = pa.table({"x": pa.array([value, None], kind)})
    for dataset in (table(tmp_path, column), arrow_file(tmp_path / "arrow", column)):
        first, second = list(dataset)
        assert json.dumps(first["x"], sort_keys=True) == json.dumps(expected, sort_keys=True)
        assert second["x"] is None


WITHOUT = """
import sys
sys.modules["pyarrow"] = None  # what an import finds where it is not installed
from evalfleet import Dataset, DefinitionError
try:
    list(Dataset.parquet(sys.argv[1]))
except DefinitionError as error:
    print(error)
"""


def test_without_the_extra_one_line_says_how_to_install_it(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.parquet")
    done = subprocess.run([sys.executable, "-c", WITHOUT, path], cwd=REPO, capture_output=True, text=True, check=False)
    assert done.stdout == (
        f"{path}: Parquet and Arrow files are read by pyarrow, which is not installed "
        "(pip install 'evalfleet[datasets]') [MISSING_EXTRA]\n"
    )


def test_a_duration_is_iso_text(tmp_path: Path) -> None:
    spans = [timedelta(days=1, microseconds=5), timedelta(seconds=-1.5), timedelta()]
    assert [row["x"] for row in saved(tmp_path, pa.duration("us"), spans)] == ["PT86400.000005S", "-PT1.5S", "PT0S"]


REFUSED = [
    ("NaN", pa.float64(), [1.0, float("nan")], "INVALID_ROW", 2, "x", "must be a finite number"),
    ("infinity in a list", pa.list_(pa.float32()), [[1.0, float("inf")]], "INVALID_ROW", 1, "x[1]", "finite"),
    ("NaN in a struct", pa.struct([("y", pa.float64())]), [{"y": float("nan")}], "INVALID_ROW", 1, "x.y", "finite"),
    ("year 10000", pa.timestamp("s"), [0, 2**40], "INVALID_ROW", 2, "x", "beyond the years 1 to 9999"),
    ("a key twice", pa.map_(pa.string(), pa.int8()), [[("a", 1), ("a", 2)]], "INVALID_ROW", 1, "x", "'a' stands twice"),
    ("keys that are no text", pa.map_(pa.int8(), pa.int8()), [[(1, 1)]], "INVALID_TABLE", None, "x", "can't hold"),
]


@pytest.mark.parametrize(
    ("kind", "values", "code", "line", "field", "text"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_json_can_not_hold_is_refused_with_row_and_column(
    tmp_path: Path, kind: Any, values: list[Any], code: str, line: int | None, field: str, text: str
) -> None:
    (problem,) = refusals(saved(tmp_path, kind, values))
    assert (problem.code, problem.line, problem.field) == (code, line, field)
    assert problem.file == str(tmp_path / "rows.parquet")
    assert text in problem.message


def test_text_that_is_none_is_refused_and_its_neighbours_are_kept(tmp_path: Path) -> None:
    offsets, data = pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0])), pa.py_buffer(b"a\xffb")
    column = pa.Array.from_buffers(pa.string(), 2, [None, offsets, data])
    good, bad = arrow_file(tmp_path, pa.table({"x": column})).checked_rows()
    assert isinstance(bad, Problem) and not isinstance(good, Problem)
    assert str(bad).endswith("x: row 2: the text is not UTF-8: byte 0xFF at offset 0 [INVALID_ROW]")


def test_an_interval_is_refused_by_its_column(tmp_path: Path) -> None:
    column = pa.array([pa.MonthDayNano([1, 2, 3])])
    (problem,) = refusals(arrow_file(tmp_path, pa.table({"every": column})))
    assert (problem.code, problem.field) == ("INVALID_TABLE", "every")
    assert "month_day_nano_interval" in problem.message


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (problem,) = refusals(arrow_file(tmp_path, pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])))
    assert "columns 1 and 2 are both named 'a'" in problem.message


@pytest.mark.parametrize("content", [b"", b"PAR1", b"ARROW1 and no more", b'{"id": 1}\n'])
@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow"])
def test_a_file_that_is_no_table_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    (problem,) = refusals(Dataset.huggingface(str(tmp_path)))
    assert (problem.code, problem.file) == ("INVALID_TABLE", str(tmp_path / name))


class Question(BaseModel):
    model_config = ConfigDict(strict=True)

    id: int
    asked: date
    price: Decimal
    image: Base64Bytes
    took: timedelta


def test_a_model_gets_its_types_back(tmp_path: Path) -> None:
    rows = {
        "id": [7],
        "asked": pa.array([date(2024, 1, 2)]),
        "price": [Decimal("1.10")],
        "image": [b"\x89PNG"],
        "took": [timedelta(seconds=2)],
    }
    (row,) = table(tmp_path, pa.table(rows), model=Question, id="id")
    assert (row.id, row.asked, row.price, row.took) == (7, date(2024, 1, 2), Decimal("1.10"), timedelta(seconds=2))
    assert row.image == b"\x89PNG"


def test_rows_are_named_and_numbered_over_all_batches(tmp_path: Path) -> None:
    count = 2_500
    path = tmp_path / "rows.parquet"
    ids = [*range(count - 1), 3]
    parquet.write_table(pa.table({"id": ids}), path, row_group_size=700)
    *rows, last = Dataset.parquet(str(path), id="id").checked_rows()
    assert [(row.id, row.line) for row in rows if not isinstance(row, Problem)][-1] == ("2498", 2_499)
    assert str(last) == f"{path}:2500: the id '3' stands twice, on rows 4 and 2500 [DUPLICATE_ID]"


@given(
    st.lists(st.fixed_dictionaries({"s": st.none() | st.text(st.characters(exclude_categories=("Cs",)))}), min_size=1)
)
def test_any_text_reads_back(tmp_path_factory: pytest.TempPathFactory, values: list[dict[str, Any]]) -> None:
    content = pa.table({"s": pa.array([value["s"] for value in values], pa.string())})
    assert list(table(tmp_path_factory.mktemp("table"), content)) == values
