"""Canonical JSON: the vectors other implementations can check themselves against, and what the form promises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.model.canonical import canonical_bytes, digest, parse_exact
from tests.unit.planning.projects import DATA

VECTORS: list[dict[str, str]] = json.loads((DATA / "canonical_json.json").read_text(encoding="utf-8"))

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_vector(vector: dict[str, str]) -> None:
    value = parse_exact(vector["json"])
    assert canonical_bytes(value) == vector["canonical"].encode("ascii")
    assert digest(value) == vector["sha256"]


@given(values)
def test_canonical_json_is_ascii_reads_back_and_is_its_own_canonical_form(value: Any) -> None:
    encoded = canonical_bytes(value)
    assert encoded.isascii()
    again = parse_exact(encoded)
    assert json.dumps(again, sort_keys=True) == json.dumps(value, sort_keys=True)
    assert canonical_bytes(again) == encoded


@given(st.dictionaries(st.text(), st.integers()).flatmap(lambda d: st.tuples(st.just(d), st.permutations(list(d)))))
def test_the_order_of_keys_does_not_count(pair: tuple[dict[str, int], list[str]]) -> None:
    value, order = pair
    assert canonical_bytes({key: value[key] for key in order}) == canonical_bytes(value)


@pytest.mark.parametrize("value", [{1: "x"}, {"a": [{None: 1}]}, {True: 1}, {"a": {1, 2}}, b"x", object()])
def test_what_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        canonical_bytes(value)
