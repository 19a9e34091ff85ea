"""Rows of data files as people really write them: each kept exactly, or refused at its line."""

from __future__ import annotations

import csv
import io
import json
import math
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from evalfleet.errors import AuthoringError, DefinitionError, Problem
from evalfleet.model.definition import EvalDefinition
from evalfleet.planning.dataset import Dataset, decode_row
from tests.unit.planning.projects import DATA

FILES = DATA / "datasets"


def dataset(name: str | Path, **options: Any) -> Dataset:
    """A dataset of the file, its format by suffix."""
    path = FILES / name
    return getattr(Dataset, path.suffix[1:])(str(path), **options)


def rows(name: str | Path, **options: Any) -> list[Any]:
    return list(dataset(name, **options))


def problems(name: str, **options: Any) -> list[Problem]:
    """All problems of a file, whether they end the reading or not."""
    try:
        return [found for found in dataset(name, **options).checked_rows() if isinstance(found, Problem)]
    except DefinitionError as error:
        return list(error.problems)


MALFORMED = [
    ("utf16.csv", "INVALID_ENCODING", 1, "UTF-16"),
    ("json_with_comma_in_bare_cell.csv", "INVALID_CSV", 3, "text after the closing quote"),
    ("too_many_cells.csv", "INVALID_CSV", 2, "4 cells where the header names 3"),
    ("bare_return.csv", "INVALID_CSV", 3, "column 'input'"),
    ("duplicate_key.jsonl", "DUPLICATE_KEY", 2, "'target'"),
    ("duplicate_key_deep.jsonl", "DUPLICATE_KEY", 1, "'k'"),
    ("duplicate_key.json", "DUPLICATE_KEY", 3, "'id'"),
    ("duplicate_key.yaml", "DUPLICATE_KEY", 3, "lines 2 and 3"),
    ("unclosed_quote.csv", "INVALID_CSV", 2, "never closed"),
    ("unclosed_quote_later.csv", "INVALID_CSV", 4, "never closed"),
    ("text_after_quote.csv", "INVALID_CSV", 2, "column 'input'"),
    ("windows1252.csv", "INVALID_ENCODING", 2, "byte 0x92 at offset 15"),
    ("windows1252.jsonl", "INVALID_ENCODING", 2, "byte 0x92"),
    ("duplicate_ids.jsonl", "DUPLICATE_ID", 4, "lines 1 and 4"),
    ("duplicate_ids.csv", "DUPLICATE_ID", 5, "lines 2 and 5"),
    ("id_is_number_twice.jsonl", "DUPLICATE_ID", 2, "'7'"),
    ("no_id.jsonl", "MISSING_ID", 2, "'id'"),
    ("id_is_null.jsonl", "MISSING_ID", 1, "'id'"),
    ("id_is_true.jsonl", "INVALID_ID", 1, "bool"),
    ("id_is_float.jsonl", "INVALID_ID", 1, "float"),
    ("ids_spelt_alike.jsonl", "DUPLICATE_ID", 2, "lines 1 and 2"),
    ("duplicate_ids_on_one_line.json", "DUPLICATE_ID", 1, "lines 1 and 1"),
    ("id_is_list.jsonl", "INVALID_ID", 1, "list"),
    ("id_with_slash.jsonl", "INVALID_ID", 1, "slash"),
    ("id_with_backslash.jsonl", "INVALID_ID", 1, "slash"),
    ("id_with_newline.jsonl", "INVALID_ID", 1, "control character"),
    ("id_with_nul.jsonl", "INVALID_ID", 1, "control character"),
    ("id_is_dots.jsonl", "INVALID_ID", 1, "path of its own"),
    ("id_is_blank.jsonl", "INVALID_ID", 1, "empty"),
    ("id_is_half_a_pair.jsonl", "INVALID_ID", 1, "surrogate"),
    ("long_id.jsonl", "INVALID_ID", 1, "240 bytes long, more than 200"),
    ("not_json.jsonl", "INVALID_JSON", 2, "not valid JSON"),
    ("row_is_list.jsonl", "INVALID_ROW", 2, "an object, not list"),
    ("number_too_large.jsonl", "INVALID_JSON", 2, "the number 1e400 is too large"),
    ("number_too_large.json", "INVALID_JSON", 2, "the number -1e400 is too large"),
    ("too_deep.jsonl", "INVALID_JSON", 1, "nested too deeply"),
    ("not_an_array.json", "INVALID_JSON", 1, "one array"),
    ("more_after_array.json", "INVALID_JSON", 2, "more text"),
    ("missing_comma.json", "INVALID_JSON", 2, "expected , or ]"),
    ("broken.json", "INVALID_JSON", 2, "not valid JSON"),
    ("row_is_number.json", "INVALID_ROW", 2, "not int"),
    ("not_a_list.yaml", "INVALID_YAML", 1, "one list"),
    ("row_is_text.yaml", "INVALID_ROW", 2, "not str"),
    ("two_columns_alike.csv", "INVALID_CSV", 1, "columns 1 and 3"),
    ("column_without_name.csv", "INVALID_CSV", 1, "column 2 has no name"),
    ("too_few_cells.csv", "INVALID_CSV", 3, "2 cells where the header names 3"),
]


@pytest.mark.parametrize(("name", "code", "line", "text"), MALFORMED, ids=[row[0] for row in MALFORMED])
def test_a_malformed_file_is_refused_at_its_line(name: str, code: str, line: int, text: str) -> None:
    (problem,) = problems(name, id="id")
    assert (problem.code, problem.file, problem.line) == (code, str(FILES / name), line)
    assert text in f"{problem.message} {problem.hint}"


def test_ids_that_would_leave_the_output_folder_are_refused_and_stay_distinct_in_the_message() -> None:
    assert [(p.code, p.line) for p in problems("long_ids.jsonl", id="id")] == [("INVALID_ID", 1), ("INVALID_ID", 2)]


def test_reading_goes_on_after_a_bad_row_so_that_all_are_reported(tmp_path: Path) -> None:
    (tmp_path / "many.jsonl").write_text('{"id":"a"}\n{\n{"id":"b"}\n[]\n{"id":"a"}\n', encoding="utf-8")
    found = problems(str(tmp_path / "many.jsonl"), id="id")
    assert [(p.code, p.line) for p in found] == [("INVALID_JSON", 2), ("INVALID_ROW", 4), ("DUPLICATE_ID", 5)]


@pytest.mark.parametrize(
    ("name", "ids"), [("bom.jsonl", ["a1", "a2"]), ("bom.csv", ["a1"]), ("bom.json", ["a1"]), ("bom.yaml", ["a1"])]
)
def test_a_byte_order_mark_changes_nothing(tmp_path: Path, name: str, ids: list[str]) -> None:
    bare = tmp_path / name
    bare.write_bytes((FILES / name).read_bytes().removeprefix(b"\xef\xbb\xbf"))
    with_mark = list(dataset(name, id="id").rows())
    assert [row.id for row in with_mark] == ids
    assert [row.data for row in with_mark] == [row.data for row in dataset(bare, id="id").rows()]


def test_a_quote_inside_a_bare_cell_is_text() -> None:
    assert rows("json_in_bare_cell.csv") == [{"id": "a1", "input": "What date?", "expected": '{"answer":"2024-09-03"}'}]
    assert rows("json_in_quoted_cell.csv")[0]["expected"] == '{"answer":"2024-09-03"}'


def test_newlines_commas_quotes_and_returns_stay_in_quoted_cells() -> None:
    assert rows("newlines_in_cells.csv") == [
        {"id": "a1", "input": 'line1\nline2, and "q"'},
        {"id": "a2", "input": "x\ry"},
    ]


def test_a_cell_may_be_of_any_size(tmp_path: Path) -> None:
    path = tmp_path / "big.csv"
    path.write_text("id,input\na1," + "x" * 200_000 + '\na2,"' + "y\n" * 200_000 + '"\n', encoding="utf-8")
    assert [len(row["input"]) for row in rows(path)] == [200_000, 400_000]


def test_an_encoding_is_declared_never_guessed() -> None:
    assert rows("windows1252.csv", encoding="windows-1252")[0]["input"] == "It’s 5 – 6"
    (problem,) = problems("windows1252.csv")
    assert problem.hint is not None and 'encoding="windows-1252"' in problem.hint


def test_absent_null_and_empty_stay_three_things() -> None:
    assert [json.loads(row.data) for row in dataset("ragged.jsonl").rows()] == [
        {"id": "r1", "metadata": {}},
        {"id": "r2", "metadata": {"k": 1, "l": []}},
        {"id": "r3", "metadata": {"k": "1", "l": ["x"]}},
        {"id": "r4"},
        {"id": "r5", "metadata": None},
    ]


@pytest.mark.parametrize("name", ["header_only.csv", "empty.csv", "empty.jsonl", "empty.json", "empty.yaml"])
def test_a_file_without_rows_has_none(name: str) -> None:
    assert rows(name) == []


def test_rows_without_a_key_are_named_by_position() -> None:
    assert [row.id for row in dataset("ragged.jsonl").rows()] == ["0000", "0001", "0002", "0003", "0004"]


def test_a_whole_number_names_a_row() -> None:
    assert [row.id for row in dataset("id_is_number.jsonl", id="id").rows()] == ["7", "8"]


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: str
    answer: str
    n: int
    ratio: float
    when: str
    op: str
    yes: str


def test_yaml_scalars_take_the_types_of_the_model() -> None:
    expected = Answer(id="017", answer="NO", n=1000, ratio=3.1, when="2026-01-02", op="=", yes="off")
    assert rows("scalars.yaml", model=Answer) == [expected]
    assert rows("scalars.yaml")[0]["n"] == 1000.0


class Typed(BaseModel):
    model_config = ConfigDict(strict=True)

    id: str
    n: int
    ok: bool


def test_csv_cells_become_the_types_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "typed.csv"
    path.write_text("id,n,ok\n017,3,true\n2,x,false\n", encoding="utf-8")
    good, bad = dataset(path, model=Typed).checked_rows()
    assert not isinstance(good, Problem)
    definition = EvalDefinition(body=lambda t, row: None, id="typed", rows=dataset(path, model=Typed))
    assert decode_row(definition, good.data) == Typed(id="017", n=3, ok=True)
    assert isinstance(bad, Problem)
    assert (bad.code, bad.line, bad.field) == ("INVALID_ROW", 3, "n")


class Inner(BaseModel):
    x: float | None = None
    xs: list[float] = []


class Figures(BaseModel):
    """Floats wherever a model may hold them; the defaults are the author's own."""

    x: float = Field(0.0, alias="the x")
    inner: Inner = Inner()
    by_name: dict[str, float] = {}
    most: float = math.inf


NOT_FINITE = [
    (".csv", "the x\n1e400\n", 2, "the x"),
    (".csv", "the x\n1\nnan\n", 3, "the x"),
    (".csv", "the x\n" + "9" * 400 + "\n", 2, "the x"),
    (".csv", "the x\n-Infinity\n", 2, "the x"),
    (".jsonl", '{}\n{"the x": "1e400"}\n', 2, "the x"),
    (".jsonl", '{"inner": {"x": ' + "9" * 400 + "}}\n", 1, "inner.x"),
    (".jsonl", '{"inner": {"xs": [1, "NaN"]}}\n', 1, "inner.xs[1]"),
    (".json", '[{},\n {"by_name": {"a": "inf"}}]\n', 2, "by_name.a"),
    (".yaml", "- the x: 1\n- the x: 1e400\n", 2, "the x"),
    (".yaml", "- the x: .nan\n", 1, "the x"),
    (".yaml", "- inner: {xs: [1, -.inf]}\n", 1, "inner.xs[1]"),
    (".yaml", "- the x: 'Infinity'\n", 1, "the x"),
]


@pytest.mark.parametrize(
    ("suffix", "text", "line", "field"), NOT_FINITE, ids=[f"{r[0]} {r[1][:30]}" for r in NOT_FINITE]
)
def test_no_float_of_a_row_is_infinite_or_nan(tmp_path: Path, suffix: str, text: str, line: int, field: str) -> None:
    path = tmp_path / f"rows{suffix}"
    path.write_text(text, encoding="utf-8")
    (problem,) = problems(str(path), model=Figures)
    assert (problem.code, problem.file, problem.line, problem.field) == ("INVALID_ROW", str(path), line, field)
    assert "does not fit Figures: must be a finite number (NaN, Infinity and numbers beyond 1.8e308" in str(problem)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e999"])
@pytest.mark.parametrize(
    ("suffix", "text", "field"),
    [
        (".jsonl", '{"a": {"b": [0, %s]}}\n', "a.b[1]"),
        (".json", '[{"a": 1, "b": {"c": %s}}]\n', "b.c"),
        (".jsonl", '{"a": %s, "b": oops}\n', None),
    ],
)
def test_json_holds_no_number_that_is_none(
    tmp_path: Path, suffix: str, text: str, field: str | None, number: str
) -> None:
    path = tmp_path / f"rows{suffix}"
    path.write_text(text % number, encoding="utf-8")
    (problem,) = problems(str(path))
    assert (problem.code, problem.line, problem.field) == ("INVALID_JSON", 1, field)
    assert number in problem.message
    assert problem.hint is not None and "null" in problem.hint


def test_a_whole_number_beyond_what_is_read_is_refused_in_our_own_words(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text('{"n": ' + "9" * 5000 + "}\n", encoding="utf-8")
    (problem,) = problems(str(path))
    assert str(problem) == f"{path}:1: not readable JSON: a whole number of more than 4300 digits [INVALID_JSON]"


def test_finite_numbers_and_text_pass_beside_a_default_that_is_infinite(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("the x\n1.7e308\n", encoding="utf-8")
    assert [(row.x, row.most) for row in rows(path, model=Figures)] == [(1.7e308, math.inf)]
    path.write_text("the x\nnan\n", encoding="utf-8")
    assert rows(path) == [{"the x": "nan"}]


def test_a_row_is_decoded_as_it_was_read_or_named_as_not_fitting() -> None:
    definition = EvalDefinition(body=lambda t, row: None, id="q", rows=dataset("ragged.jsonl"))
    assert decode_row(definition, b'{"a":[1,null]}') == {"a": [1, None]}
    typed = EvalDefinition(body=lambda t, row: None, id="q", rows=dataset("ragged.jsonl", model=Typed))
    with pytest.raises(AuthoringError, match="does not fit") as caught:
        decode_row(typed, b"{}")
    assert caught.value.code == "INVALID_ROW"
    with pytest.raises(AuthoringError, match="has no dataset"):
        decode_row(EvalDefinition(body=lambda t: None, id="q"), b"{}")


def test_a_relative_path_starts_from_the_file_that_says_it() -> None:
    assert Dataset.jsonl("rows.jsonl").path == Path(__file__).parent / "rows.jsonl"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Dataset.jsonl("s3://bucket/rows.jsonl"), "remote"),
        (lambda: Dataset.csv("x.csv", encoding="utf-16"), "UTF-8"),
        (lambda: Dataset.csv("x.csv", encoding="no-such"), "no-such"),
        (lambda: Dataset.csv("x.csv", delimiter=";;"), "one ASCII character"),
        (lambda: Dataset.csv("x.csv", delimiter='"'), "one ASCII character"),
    ],
)
def test_an_option_that_can_not_be_is_refused_where_it_is_said(make: Any, text: str) -> None:
    with pytest.raises(AuthoringError, match=text) as caught:
        make()
    assert caught.value.code == "INVALID_DATASET"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="can't be read: No such file"):
        rows(tmp_path / "gone.jsonl")


def test_a_large_file_is_streamed(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for index in range(4_000):
            file.write(json.dumps({"n": index, "text": "x" * 500}) + "\n")
    tracemalloc.start()
    try:
        assert sum(1 for _ in dataset(path).rows()) == 4_000
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


cells = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"))


@given(st.lists(st.lists(cells, min_size=2, max_size=2), max_size=5))
def test_what_the_standard_writer_writes_reads_back(tmp_path_factory: pytest.TempPathFactory, table: Any) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([["a", "b"], *table])
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    path.write_bytes(text.getvalue().encode())
    assert [[row["a"], row["b"]] for row in rows(path)] == table


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | finite | st.text())))
def test_any_json_row_reads_back(tmp_path_factory: pytest.TempPathFactory, values: Any) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "x.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    assert [json.dumps(json.loads(row.data), sort_keys=True) for row in dataset(path).rows()] == [
        json.dumps(value, sort_keys=True) for value in values
    ]


@given(st.binary())
def test_any_bytes_read_as_rows_or_as_problems(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    for suffix in ("jsonl", "csv", "json", "yaml"):
        path = tmp_path_factory.mktemp("bytes") / f"x.{suffix}"
        path.write_bytes(data)
        try:
            for found in dataset(path, id="id").checked_rows():
                assert found.line >= 1
        except DefinitionError as error:
            assert error.problems
