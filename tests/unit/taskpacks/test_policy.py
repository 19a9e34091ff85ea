"""Default deny: every change is claimed by an allowance, unexpected, or ignored for a reason that is told."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from evalfleet.taskpacks.diff import Actor, Operation, compare
from evalfleet.taskpacks.policy import Allowed, Examined, examine
from evalfleet.taskpacks.state import Collection, RowKey, read_state, schema_of
from evalfleet.taskpacks.writes import Write, attributed, reverted

SCHEMA = schema_of(
    [Collection("cases", ignored=frozenset({"seen_at"})), Collection("documents"), Collection("messages")]
)
START = {
    "cases": [{"id": "C-1", "status": "open", "seen_at": 0}],
    "documents": [{"id": "D-1", "title": "Lease"}, {"id": "D-2", "title": "Permit"}],
}
STATUS = Allowed(collection="cases", operation=Operation.UPDATED, fields=frozenset({"status"}), min=1)
MESSAGE = Allowed(collection="messages", operation=Operation.ADDED, match={"direction": "out"})
OUT, IN = {"direction": "out"}, {"direction": "in"}

AGENT, RESPONDER, HARNESS = Actor.AGENT, Actor.RESPONDER, Actor.HARNESS


def examined(policy: list[Allowed], *written: tuple[Actor, str, str, dict[str, Any] | None]) -> Examined:
    """The writes, done one after the other and held against the policy."""
    before = state = read_state(SCHEMA, START)
    writes: list[Write] = []
    for step, (actor, collection, key, fields) in enumerate(written, start=1):
        old = state.record(collection, key)
        new = None if fields is None else {**(old or {}), "id": key, **fields}
        writes.append(Write(step, actor, RowKey(collection, key), old, new))
        document = {**state.document(), collection: [r for r in state.records(collection) if r["id"] != key]}
        document[collection] += [] if new is None else [new]
        state = read_state(SCHEMA, document)
    diff = attributed(compare(before, state), writes)
    return examine(policy, diff, writes, SCHEMA)


CASES: dict[str, tuple[list[Allowed], list[Any], dict[str, list[str]]]] = {
    "nothing allowed, nothing done": ([], [], {}),
    "the one status update": ([STATUS], [(AGENT, "cases", "C-1", {"status": "closed"})], {"expected": ["cases/C-1"]}),
    "no status update at all": ([STATUS], [], {"missing": ["cases"]}),
    "a field beyond the allowed ones": (
        [STATUS],
        [(AGENT, "cases", "C-1", {"status": "closed", "owner": "me"})],
        {"unexpected": ["cases/C-1"], "missing": ["cases"]},
    ),
    "zero of zero or one messages": ([MESSAGE], [], {}),
    "one of zero or one messages": ([MESSAGE], [(AGENT, "messages", "M-1", OUT)], {"expected": ["messages/M-1"]}),
    "two of zero or one messages": (
        [MESSAGE],
        [(AGENT, "messages", "M-1", OUT), (AGENT, "messages", "M-2", OUT)],
        {"expected": ["messages/M-1"], "unexpected": ["messages/M-2"]},
    ),
    "a message of another direction": ([MESSAGE], [(AGENT, "messages", "M-1", IN)], {"unexpected": ["messages/M-1"]}),
    "an edited document": (
        [STATUS, MESSAGE],
        [(AGENT, "cases", "C-1", {"status": "closed"}), (AGENT, "documents", "D-1", {"title": "Leese"})],
        {"expected": ["cases/C-1"], "unexpected": ["documents/D-1"]},
    ),
    "a removed document": ([], [(AGENT, "documents", "D-1", None)], {"unexpected": ["documents/D-1"]}),
    "what the responder adds is not the agent's": (
        [],
        [(RESPONDER, "documents", "D-3", {"title": "New"})],
        {"ignored": ["documents/D-3"]},
    ),
    "what the agent then does to it is": (
        [],
        [(RESPONDER, "documents", "D-3", {"title": "New"}), (AGENT, "documents", "D-3", {"title": "Mine"})],
        {"unexpected": ["documents/D-3"]},
    ),
    "an agent can't use what the responder may": (
        [Allowed(collection="documents", operation=Operation.ADDED, actor=RESPONDER)],
        [(AGENT, "documents", "D-3", {"title": "New"})],
        {"unexpected": ["documents/D-3"]},
    ),
    "an update that the agent and the responder share": (
        [STATUS],
        [(RESPONDER, "cases", "C-1", {"owner": "them"}), (AGENT, "cases", "C-1", {"status": "closed"})],
        {"expected": ["cases/C-1"], "ignored": ["cases/C-1"]},
    ),
    "a field that both wrote is the agent's": (
        [STATUS],
        [(RESPONDER, "cases", "C-1", {"owner": "them"}), (AGENT, "cases", "C-1", {"status": "closed", "owner": "me"})],
        {"unexpected": ["cases/C-1"], "missing": ["cases"]},
    ),
    "what the responder may is not what both did": (
        [Allowed(collection="cases", operation=Operation.UPDATED, fields=frozenset({"owner"}), actor=RESPONDER)],
        [(RESPONDER, "cases", "C-1", {"owner": "them"}), (AGENT, "cases", "C-1", {"owner": "me"})],
        {"unexpected": ["cases/C-1"]},
    ),
    "volatile fields": ([], [(AGENT, "cases", "C-1", {"seen_at": 9})], {"ignored": ["cases/C-1"]}),
    "a volatile field beside another": (
        [STATUS],
        [(AGENT, "cases", "C-1", {"seen_at": 9, "status": "closed"})],
        {"expected": ["cases/C-1"], "ignored": ["cases/C-1"]},
    ),
    "a change is claimed once": (
        [MESSAGE, Allowed(collection="messages", operation=Operation.ADDED, min=1)],
        [(AGENT, "messages", "M-1", OUT)],
        {"expected": ["messages/M-1"]},
    ),
    "claims make room for one another": (
        [Allowed(collection="messages", operation=Operation.ADDED), MESSAGE],
        [(AGENT, "messages", "M-1", OUT), (AGENT, "messages", "M-2", IN)],
        {"expected": ["messages/M-1", "messages/M-2"]},
    ),
    "minima are filled first": (
        [
            Allowed(collection="messages", operation=Operation.ADDED, max=5),
            Allowed(collection="messages", operation=Operation.ADDED, match=OUT, min=1),
        ],
        [(AGENT, "messages", "M-1", OUT)],
        {"expected": ["messages/M-1"]},
    ),
    "edited and restored": (
        [],
        [(AGENT, "documents", "D-1", {"title": "X"}), (AGENT, "documents", "D-1", {"title": "Lease"})],
        {"reverted_changes": ["documents/D-1"]},
    ),
    "removed and put back": (
        [],
        [(AGENT, "documents", "D-1", None), (AGENT, "documents", "D-1", {"title": "Lease"})],
        {"reverted_changes": ["documents/D-1"]},
    ),
    "sent and deleted": (
        [MESSAGE],
        [(AGENT, "messages", "M-1", OUT), (AGENT, "messages", "M-1", None)],
        {"reverted_changes": ["messages/M-1"]},
    ),
    "a status that may change, to and fro": (
        [Allowed(collection="cases", operation=Operation.UPDATED, fields=frozenset({"status"}))],
        [(AGENT, "cases", "C-1", {"status": "closed"}), (AGENT, "cases", "C-1", {"status": "open"})],
        {},
    ),
    "changed twice is no return": (
        [STATUS],
        [(AGENT, "cases", "C-1", {"status": "held"}), (AGENT, "cases", "C-1", {"status": "closed"})],
        {"expected": ["cases/C-1"]},
    ),
    "the responder may take back its own": (
        [],
        [(RESPONDER, "documents", "D-3", {"title": "New"}), (RESPONDER, "documents", "D-3", None)],
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_becomes_of_each_change(name: str) -> None:
    policy, writes, wanted = CASES[name]
    found = examined(policy, *writes)
    document = found.document()
    paths = {
        key: [item.get("path", item.get("collection")) for item in document[key]]
        for key in ("expected", "unexpected", "missing", "ignored", "reverted_changes")
    }
    assert {key: value for key, value in paths.items() if value} == wanted
    assert found.clean is not bool(wanted.keys() & {"unexpected", "missing", "reverted_changes"})
    assert document["clean"] is found.clean


def test_a_change_that_no_write_explains_is_unexpected() -> None:
    before = read_state(SCHEMA, START)
    after = read_state(SCHEMA, {**START, "documents": []})
    found = examine([], attributed(compare(before, after), ()), (), SCHEMA)
    assert [item["path"] for item in found.unexpected] == ["documents/D-1", "documents/D-2"]
    assert [item["actors"] for item in found.unexpected] == [[], []]


def test_an_unexpected_edit_is_told_with_its_path_before_and_after() -> None:
    found = examined([], (AGENT, "documents", "D-1", {"title": "Leese"}))
    assert found.unexpected == (
        {
            "path": "documents/D-1",
            "operation": "updated",
            "actors": ["agent"],
            "fields": [{"field": "title", "before": "Lease", "after": "Leese"}],
        },
    )


def test_a_returned_value_is_told_with_where_it_was_meanwhile() -> None:
    row = RowKey("documents", "D-1")
    texts = ["Lease", "X", "Y", "Lease"]
    rows = [{"id": "D-1", "title": text} for text in texts]
    writes = [Write(step, AGENT, row, old, new) for step, (old, new) in enumerate(pairwise(rows), start=1)]
    (found,) = reverted(SCHEMA, writes)
    assert (found.field, found.value, found.meanwhile, found.steps) == ("title", "Lease", "X", (1, 3))


@pytest.mark.parametrize(
    "wrong",
    [
        {"operation": Operation.ADDED, "min": 2},
        {"operation": Operation.ADDED, "max": 0},
        {"operation": Operation.ADDED, "fields": frozenset({"a"})},
        {"operation": Operation.UPDATED},
        {"operation": Operation.ADDED, "min": -1},
    ],
)
def test_an_allowance_that_allows_nothing_or_anything_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="documents"):
        Allowed(collection="documents", **wrong)
