"""Reading JSON of somebody else: a wrong shape is nothing, and what no record can hold is known as such."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalfleet_adapters.converters.untrusted import amount, as_text, count, mapping, recordable, sequence, text


@pytest.mark.parametrize(
    ("value", "counted"),
    [(3, 3), (0, 0), (3.0, 3), (3.5, None), (-1, None), (True, None), ("3", None), (None, None), ([], None),
     (float("inf"), None), (float("nan"), None), (2**63, 2**63)],
)  # fmt: skip
def test_a_count(value: Any, counted: int | None) -> None:
    assert count(value) == counted


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (1, 1.0),
        (0.25, 0.25),
        (0, 0.0),
        (-1, None),
        (True, None),
        ("1", None),
        (float("inf"), None),
        (float("nan"), None),
        (10**400, None),
    ],
)
def test_an_amount(value: Any, read: float | None) -> None:
    assert amount(value) == read


def test_a_wrong_shape_is_nothing() -> None:
    assert (mapping([1]), sequence({"a": 1}), text(1)) == ({}, [], None)
    assert (mapping({"a": 1}), sequence([1]), text("")) == ({"a": 1}, [1], "")


def nested(depth: int) -> Any:
    return json.loads("[" * depth + "]" * depth)


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        (nested(100), True),
        (nested(101), False),
        ({"a": {"b": [nested(90)]}}, True),
        ({"a": {"b": [nested(98)]}}, False),
        ({"n": 10**300}, True),
        ({"n": [-(10**400)]}, False),
        ("\0\ud800", True),
        (float("nan"), True),
        (None, True),
    ],
    ids=str,
)
def test_what_a_record_can_hold(value: Any, holds: bool) -> None:
    assert recordable(value) is holds


def test_any_parsed_value_has_a_text() -> None:
    assert as_text({"a": [1, None]}) == '{"a": [1, null]}'
    too_deep: Any = []
    for _ in range(100_000):
        too_deep = [too_deep]
    assert as_text(too_deep) == "a JSON list that nests too deep to show"
