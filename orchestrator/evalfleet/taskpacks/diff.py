"""What differs between two states of a case store, record by record and field by field. PURE."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from evalfleet.model.canonical import canonical_bytes, parse_exact
from evalfleet.model.events import MISSING
from evalfleet.taskpacks.state import CaseState, Collection, Record, RowKey


class Actor(StrEnum):
    """Who wrote: the agent under test, the scripted responder, or the harness itself."""

    AGENT = "agent"
    RESPONDER = "responder"
    HARNESS = "harness"


class Operation(StrEnum):
    ADDED = "added"
    UPDATED = "updated"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of a record with its exact values; MISSING where it has none."""

    field: str
    before: Any
    after: Any

    def document(self) -> dict[str, Any]:
        """The change as JSON; a side without a value is left out."""
        sides = {"before": self.before, "after": self.after}
        return {"field": self.field, **{name: side for name, side in sides.items() if side is not MISSING}}


@dataclass(frozen=True, slots=True)
class RecordChange:
    """One record that differs. `fields` are those of an update; `actors` whoever wrote to it in between."""

    row: RowKey
    operation: Operation
    before: Record | None
    after: Record | None
    fields: tuple[FieldChange, ...] = ()
    actors: frozenset[Actor] = frozenset()

    @property
    def path(self) -> str:
        return f"{self.row.collection}/{self.row.key}"

    def document(self) -> dict[str, Any]:
        """The change as JSON: the path, who made it, and the values before and after."""
        head: dict[str, Any] = {
            "path": self.path,
            "operation": self.operation.value,
            "actors": sorted(actor.value for actor in self.actors),
        }
        if self.operation is Operation.UPDATED:
            return {**head, "fields": [change.document() for change in self.fields]}
        sides = {"before": self.before, "after": self.after}
        return {**head, **{name: dict(side) for name, side in sides.items() if side is not None}}


@dataclass(frozen=True, slots=True)
class StateDiff:
    """All that differs. `ignored` are the changes that only volatile fields or the order of unordered lists show."""

    changes: tuple[RecordChange, ...]
    ignored: tuple[RecordChange, ...]
    before_digest: str
    after_digest: str


def compare(before: CaseState, after: CaseState) -> StateDiff:
    """The diff of two states of one schema: its `changes` are empty exactly when their digests are equal."""
    changes: list[RecordChange] = []
    ignored: list[RecordChange] = []
    for row in sorted(before.rows.keys() | after.rows.keys()):
        old, new = (_record(state.rows.get(row)) for state in (before, after))
        if before.rows.get(row) == after.rows.get(row):
            continue
        if old is None or new is None:
            changes.append(RecordChange(row, Operation.ADDED if old is None else Operation.REMOVED, old, new))
            continue
        seen, unseen = _fields(after.schema[row.collection], old, new)
        if seen:
            changes.append(RecordChange(row, Operation.UPDATED, old, new, seen))
        if unseen:
            ignored.append(RecordChange(row, Operation.UPDATED, old, new, unseen))
    return StateDiff(tuple(changes), tuple(ignored), before.digest, after.digest)


def _record(text: str | None) -> Record | None:
    return None if text is None else parse_exact(text)


def _fields(
    collection: Collection, old: Record, new: Record
) -> tuple[tuple[FieldChange, ...], tuple[FieldChange, ...]]:
    """The fields that differ in the canonical form, and those that differ only in the exact one."""
    was, now = collection.canonical(old), collection.canonical(new)
    seen: list[FieldChange] = []
    unseen: list[FieldChange] = []
    for name in sorted(old.keys() | new.keys()):
        change = FieldChange(name, old.get(name, MISSING), new.get(name, MISSING))
        if not _same(was.get(name, MISSING), now.get(name, MISSING)):
            seen.append(change)
        elif not _same(change.before, change.after):
            unseen.append(change)
    return tuple(seen), tuple(unseen)


def _same(one: Any, other: Any) -> bool:
    if one is MISSING or other is MISSING:
        return one is other
    return canonical_bytes(one) == canonical_bytes(other)
