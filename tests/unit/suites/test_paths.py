"""Following a path: whole numbers address lists, texts objects' own keys, and what is missing is never an error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.model.events import MISSING
from evalfleet.suites.paths import look

VALUE = {"a": [{"b": None}], "0": "zero", "a.b": "dotted", "text": "abc", "keys": {"length": 3}}

ROWS: list[tuple[tuple[str | int, ...], Any]] = [
    ((), VALUE),
    (("a", 0, "b"), None),
    (("a", 0, "c"), MISSING),
    (("a", 1), MISSING),
    (("a", "0"), MISSING),
    ((0,), MISSING),
    (("0",), "zero"),
    (("a.b",), "dotted"),
    (("a", "b"), MISSING),
    (("a", "length"), MISSING),
    (("keys", "length"), 3),
    (("text", 0), MISSING),
    (("text", "upper"), MISSING),
    (("a", 0, "b", "c"), MISSING),
    (("items",), MISSING),
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize(("path", "found"), ROWS, ids=[str(row[0]) for row in ROWS])
def test_what_stands_at_a_path(path: tuple[str | int, ...], found: Any) -> None:
    assert look(VALUE, path) == found


@given(json_values, st.lists(st.text(max_size=3) | st.integers(0, 3), max_size=5))
def test_no_path_raises_and_each_step_is_the_next_ones_start(value: Any, path: list[str | int]) -> None:
    whole = look(value, tuple(path))
    if path:
        outer = look(value, tuple(path[:-1]))
        assert whole is (MISSING if outer is MISSING else look(outer, (path[-1],)))
    else:
        assert whole is value


@given(json_values)
def test_every_value_is_found_where_it_stands(value: Any) -> None:
    stack: list[tuple[Any, tuple[str | int, ...]]] = [(value, ())]
    while stack:
        item, path = stack.pop()
        assert look(value, path) is item
        pairs = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
        stack.extend((child, (*path, step)) for step, child in pairs)
