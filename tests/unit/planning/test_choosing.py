"""Filters, samples, limits and shuffles: the same rows however the file is sorted, under the ids of the whole file."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from evalfleet.errors import AuthoringError, DefinitionError, Problem
from evalfleet.planning.dataset import Dataset


def written(folder: Path, rows: list[Any], **options: Any) -> Dataset:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return Dataset.jsonl(str(path), **options)


@pytest.fixture
def ten(tmp_path: Path) -> Dataset:
    """Rows n = 0 to 9 under ids of their positions."""
    return written(tmp_path, [{"n": n, "even": n % 2 == 0} for n in range(10)])


def numbers(dataset: Dataset) -> list[int]:
    return [row["n"] for row in dataset]


CHOSEN = [
    ("nothing", lambda d: d, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ("predicate", lambda d: d.filter(lambda row: row["n"] > 7), [8, 9]),
    ("value", lambda d: d.filter({"n": 3}), [3]),
    ("any of several values", lambda d: d.filter({"n": [3, 5, 77]}), [3, 5]),
    ("several fields", lambda d: d.filter({"n": {3, 4}, "even": True}), [4]),
    ("True is not 1", lambda d: d.filter({"even": 1}), []),
    ("a field that is not there", lambda d: d.filter({"m": None}), []),
    ("limit", lambda d: d.limit(3), [0, 1, 2]),
    ("more than there are", lambda d: d.limit(30).sample(30), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ("limit, then filter", lambda d: d.limit(3).filter({"even": True}), [0, 2]),
    ("filter, then limit", lambda d: d.filter({"even": True}).limit(3), [0, 2, 4]),
    # These fix the order for ever: a change would take other rows into people's samples.
    ("sample", lambda d: d.sample(4, seed=7), [5, 7, 8, 9]),
    ("shuffle", lambda d: d.shuffle(seed=7), [7, 8, 9, 5, 1, 6, 3, 4, 2, 0]),
    ("shuffle, then limit", lambda d: d.shuffle(seed=7).limit(4), [7, 8, 9, 5]),
    ("another seed", lambda d: d.sample(4, seed=8), [1, 2, 7, 8]),
]


@pytest.mark.parametrize(("choose", "expected"), [row[1:] for row in CHOSEN], ids=[row[0] for row in CHOSEN])
def test_what_is_chosen(ten: Dataset, choose: Any, expected: list[int]) -> None:
    assert numbers(choose(ten)) == expected
    assert numbers(ten) == list(range(10)), "a dataset never changes"


def test_ids_are_those_of_the_whole_file(ten: Dataset) -> None:
    assert [row.id for row in ten.filter({"n": [3, 5]}).rows()] == ["0003", "0005"]
    assert {row.id for row in ten.shuffle(seed=7).limit(4).rows()} == {row.id for row in ten.sample(4, seed=7).rows()}


values = st.lists(st.integers(0, 40), max_size=30)


@given(values, st.randoms(use_true_random=False), st.integers(1, 12), st.integers())
def test_a_sample_is_the_same_in_any_order_of_the_file_and_grows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[int], random: Any, count: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    taken = sorted(numbers(written(folder, [{"n": n} for n in rows]).sample(count, seed=seed)))
    assert len(taken) == min(count, len(rows))
    random.shuffle(rows)
    again = written(folder, [{"n": n} for n in rows])
    assert sorted(numbers(again.sample(count, seed=seed))) == taken
    larger = sorted(numbers(again.sample(count + 3, seed=seed)))
    for one in taken:
        larger.remove(one)


class Level(StrEnum):
    EASY = "easy"
    HARD = "hard"


class Question(BaseModel):
    n: int
    level: Level


def test_a_filter_sees_the_row_as_the_eval_does(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("n,level\n1,easy\n2,hard\n3,hard\n", encoding="utf-8")
    dataset = Dataset.csv(str(path), model=Question)
    assert [row.n for row in dataset.filter({"level": Level.HARD, "n": 3})] == [3]
    assert [row.n for row in dataset.filter(lambda row: row.n < 3 and row.level is Level.HARD)] == [2]


def test_a_filter_that_fails_names_the_row_and_the_others_are_read(ten: Dataset) -> None:
    def keep(row: dict[str, int]) -> bool:
        return 6 // (row["n"] - 3) > 1

    found = list(ten.filter(keep).choose(ten.checked_rows()))
    (problem,) = [each for each in found if isinstance(each, Problem)]
    assert str(problem) == (
        f"{ten.path}:4: the filter failed on the row 0003: ZeroDivisionError: integer division or modulo by zero "
        "[INVALID_FILTER]"
    )
    assert len(found) == 4


def test_a_filter_that_forgets_its_return_is_told(ten: Dataset) -> None:
    with pytest.raises(DefinitionError, match="gave NoneType for the row 0000: return True or False"):
        list(ten.filter(lambda row: None))  # pyright: ignore - the mistake itself


def test_rows_that_are_left_out_are_checked_all_the_same(tmp_path: Path) -> None:
    dataset = written(tmp_path, [{"id": "a"}, {"id": "a"}], id="id")
    with pytest.raises(DefinitionError, match="stands twice"):
        list(dataset.limit(1))


@pytest.mark.parametrize(
    ("choose", "text"),
    [
        (lambda d: d.limit(0), "limit\\(\\) takes a whole number of rows, at least 1, not 0"),
        (lambda d: d.sample(True), "not True"),
        (lambda d: d.sample(2.0), "not 2.0"),
        (lambda d: d.shuffle(seed="x"), "a seed is a whole number, not 'x'"),
        (lambda d: d.filter("n > 1"), "a filter is a function or a mapping, not str"),
        (lambda d: Dataset.csv("x.csv", model=Question).filter({"lvel": 1}), "no field 'lvel'.*did you mean 'level'"),
    ],
)
def test_a_step_that_can_not_be_is_refused_where_it_is_said(ten: Dataset, choose: Any, text: str) -> None:
    with pytest.raises(AuthoringError, match=text) as caught:
        choose(ten)
    assert caught.value.code == "INVALID_DATASET"
