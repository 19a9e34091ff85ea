"""Pictures for the record are bounded JSON, and cutting them never changes an answer."""

from __future__ import annotations

import datetime
import json
import math
from collections import OrderedDict
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from evalfleet.assertions.match import evaluate_now
from evalfleet.assertions.matchers import equals, includes
from evalfleet.assertions.snapshot import MAX_ITEMS, MAX_KEYS, MAX_TEXT, snapshot
from evalfleet.model.events import MISSING, InputOption


class Point(BaseModel):
    x: int


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


@pytest.mark.parametrize(
    ("value", "picture"),
    [
        (None, None),
        (True, True),
        (9007199254740993, 9007199254740993),
        (math.nan, {"$number": "nan"}),
        (-math.inf, {"$number": "-inf"}),
        pytest.param(10**5000, {"$number": "an integer of 16610 bits"}, id="huge"),
        ([1, MISSING], [1, {"$missing": True}]),
        (b"\xffok", {"$bytes": 3, "text": "\ufffdok"}),
        ((1, 2), [1, 2]),
        (OrderedDict(a=1), {"a": 1}),
        ({1: "a"}, {"$int:0": "a"}),
        (InputOption("y", "Yes"), {"$type": "InputOption", "id": "y", "label": "Yes"}),
        (Point(x=1), {"$type": "Point", "x": 1}),
        (datetime.date(2026, 1, 2), {"$type": "date", "text": "2026-01-02"}),
        (Decimal("1.10"), {"$type": "Decimal", "text": "1.10"}),
        (Hostile(), {"$type": "Hostile"}),
    ],
)
def test_pictures(value: Any, picture: Any) -> None:
    assert snapshot(value) == picture


def test_missing_stays_missing() -> None:
    assert snapshot(MISSING) is MISSING


def test_what_is_left_out_is_counted() -> None:
    assert snapshot("x" * (MAX_TEXT + 50)).endswith("… (+50 characters)")
    assert snapshot("x" * (MAX_TEXT + 5)) == "x" * (MAX_TEXT + 5)
    assert snapshot(list(range(MAX_ITEMS + 3)))[-1] == {"$clipped": "+3 items"}
    assert snapshot({str(n): n for n in range(MAX_KEYS + 2)})["$clipped"] == "+2 keys"


def test_depth_and_cycles_end() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "$clipped" in json.dumps(snapshot(loop))


leaves = st.none() | st.floats() | st.integers() | st.text() | st.binary()
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner))


@settings(deadline=None)
@given(values)
def test_every_picture_is_json(value: Any) -> None:
    json.dumps(snapshot(value), allow_nan=False)


def test_an_answer_is_given_on_the_whole_value() -> None:
    text = "x" * 3 * MAX_TEXT + "needle"
    found = evaluate_now(includes("needle"), text)
    assert found.holds
    assert "needle" not in found.actual
    assert not evaluate_now(equals(text), text[:-1]).holds
