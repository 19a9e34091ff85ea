"""One canonical form: two states have one digest exactly when their diff is empty, whatever happened in between."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalfleet.taskpacks.diff import Operation, compare
from evalfleet.taskpacks.state import (
    DEPTH_LIMIT,
    CaseState,
    Collection,
    InvalidRecord,
    RowKey,
    encoded,
    read_state,
    schema_of,
)

SCHEMA = schema_of(
    [
        Collection("cases", unordered=frozenset({"tags", "lines.codes"}), ignored=frozenset({"seen_at", "meta.at"})),
        Collection("documents", key="number"),
    ]
)


def state(**collections: Any) -> CaseState:
    return read_state(SCHEMA, collections)


def one(**fields: Any) -> CaseState:
    return state(cases=[{"id": "C-1", **fields}])


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ({"n": 1}, {"n": 1}, True),
        ({"n": 1}, {"n": 2}, False),
        ({"n": 1}, {"n": 1.0}, False),
        ({"n": 1}, {"n": True}, False),
        ({"n": None}, {}, False),
        ({"n": ""}, {"n": None}, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"tags": ["x", "y"]}, {"tags": ["y", "x"]}, True),
        ({"tags": ["x", "x"]}, {"tags": ["x"]}, False),
        ({"steps": ["x", "y"]}, {"steps": ["y", "x"]}, False),
        ({"lines": [{"codes": [1, 2]}]}, {"lines": [{"codes": [2, 1]}]}, True),
        ({"lines": [{"codes": [1]}, {}]}, {"lines": [{}, {"codes": [1]}]}, False),
        ({"seen_at": 1}, {"seen_at": 2}, True),
        ({"seen_at": 1}, {}, True),
        ({"meta": {"at": 1, "by": "a"}}, {"meta": {"at": 2, "by": "a"}}, True),
        ({"meta": {"at": 1, "by": "a"}}, {"meta": {"at": 1, "by": "b"}}, False),
        ({"text": "\u0000\ud800"}, {"text": "\u0000\ud800"}, True),
        ({"text": "é"}, {"text": "e\u0301"}, False),
        ({"n": math.nan}, {"n": math.nan}, True),
        ({"n": 10**30}, {"n": 10**30 + 1}, False),
    ],
)
def test_what_counts_as_the_same(before: dict[str, Any], after: dict[str, Any], same: bool) -> None:
    was, now = one(**before), one(**after)
    assert (was.digest == now.digest) is same
    assert (compare(was, now).changes == ()) is same


def test_a_snapshot_is_named_by_its_exact_content_and_compared_by_its_canonical_one() -> None:
    was, now = one(seen_at=1, tags=["x", "y"]), one(seen_at=2, tags=["y", "x"])
    assert was.digest == now.digest
    assert was.snapshot_id != now.snapshot_id
    assert [change.path for change in compare(was, now).ignored] == ["cases/C-1"]
    assert [field.field for field in compare(was, now).ignored[0].fields] == ["seen_at", "tags"]


def test_a_diff_names_the_record_the_field_and_both_values() -> None:
    was = state(cases=[{"id": "C-1", "status": "open"}], documents=[{"number": "D-1"}])
    now = state(cases=[{"id": "C-1", "status": "closed", "by": "a"}], documents=[{"number": "D-2"}])
    diff = compare(was, now)
    assert [(change.path, change.operation) for change in diff.changes] == [
        ("cases/C-1", Operation.UPDATED),
        ("documents/D-1", Operation.REMOVED),
        ("documents/D-2", Operation.ADDED),
    ]
    assert diff.changes[0].document()["fields"] == [
        {"field": "by", "after": "a"},
        {"field": "status", "before": "open", "after": "closed"},
    ]
    assert (diff.before_digest, diff.after_digest) == (was.digest, now.digest)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"letters": []}, "there is no collection 'letters'; there are cases, documents"),
        ({"cases": {}}, "cases: is a list of records, not dict"),
        ({"cases": [3]}, "cases: a record is an object, not int"),
        ({"cases": [{"n": 1}]}, "cases: a record needs its key 'id', a printable text, not None"),
        ({"cases": [{"id": 7}]}, "cases: a record needs its key 'id', a printable text, not 7"),
        ({"cases": [{"id": ""}]}, "cases: a record needs its key 'id', a printable text, not ''"),
        ({"cases": [{"id": "a\nb"}]}, "cases: a record needs its key 'id', a printable text, not 'a\\nb'"),
        ({"cases": [{"id": "a"}, {"id": "a"}]}, "cases: two records have the key 'a'"),
        ({"cases": [{"id": "a", "b": {1: 2}}]}, "cases/a: is not JSON: object key 1 is int, not a string"),
        ({"cases": [{"id": "a", "b": {1, 2}}]}, "cases/a: is not JSON: Object of type set is not JSON serializable"),
        ({"cases": [{"id": "a", "b": "x" * 1_000_000}]}, "cases/a: is larger than 1000000 characters"),
    ],
)
def test_what_no_state_holds(document: Any, message: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        read_state(SCHEMA, document)
    assert str(caught.value) == message


def test_a_record_that_nests_too_deep_is_refused_before_anything_recurses() -> None:
    deep: Any = 0
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidRecord, match=f"nests deeper than {DEPTH_LIMIT} levels"):
        encoded(SCHEMA, "cases", {"id": "a", "b": deep})
    while isinstance(deep, list):  # taken apart by hand, since freeing it would recurse
        deep = deep.pop()


@pytest.mark.parametrize("names", [["cases", "cases"], ["harness"], ["a b"], [""]])
def test_names_that_no_schema_takes(names: list[str]) -> None:
    with pytest.raises(ValueError, match="collection"):
        schema_of([Collection(name) for name in names])


def test_a_state_is_not_changed_by_what_it_was_made_of_or_handed_out() -> None:
    document = {"cases": [{"id": "C-1", "tags": ["x"]}]}
    kept = read_state(SCHEMA, document)
    before = kept.snapshot_id
    document["cases"][0]["tags"].append("y")  # type: ignore[union-attr]
    kept.records("cases")[0]["tags"].append("z")
    assert kept.record("cases", "C-1") == {"id": "C-1", "tags": ["x"]}
    assert kept.changed([]).snapshot_id == before
    assert json.loads(json.dumps(kept.document()))["cases"] == [{"id": "C-1", "tags": ["x"]}]


# --- hash equal ⇔ diff empty, over random histories ---------------------------------------------------------------

scalars = st.sampled_from([0, 1, 1.0, True, None, "", "a", "b", -0.0, "é"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abx"), inner, max_size=2)
)
records = st.dictionaries(st.sampled_from(["tags", "seen_at", "n", "meta", "lines"]), values, max_size=4)
steps = st.lists(st.tuples(st.sampled_from(["C-1", "C-2", "C-3"]), st.none() | records), max_size=8)


def walked(start: CaseState, history: list[tuple[str, dict[str, Any] | None]]) -> CaseState:
    for key, record in history:
        row = RowKey("cases", key)
        text = None if record is None else encoded(SCHEMA, "cases", {**record, "id": key})[1]
        start = start.changed([(row, text)])
    return start


@settings(max_examples=400, deadline=None)
@given(steps, steps)
def test_the_digests_are_equal_exactly_when_the_diff_is_empty(first: Any, second: Any) -> None:
    empty = CaseState(SCHEMA)
    one_way, other_way = walked(empty, first), walked(empty, second)
    for was, now in ((empty, one_way), (one_way, other_way), (other_way, walked(one_way, second))):
        diff = compare(was, now)
        assert (was.digest == now.digest) == (not diff.changes)
        assert (was.snapshot_id == now.snapshot_id) == (not diff.changes and not diff.ignored)
