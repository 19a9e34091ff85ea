"""The writes of a call as the trace keeps them: who made a change, and what a later write took back. PURE.

The net diff of two states shows nothing of a document that was edited and restored; the writes do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalfleet.model.canonical import canonical_bytes
from evalfleet.model.events import MISSING
from evalfleet.taskpacks.diff import Actor, FieldChange, Operation, RecordChange, StateDiff
from evalfleet.taskpacks.state import Collection, Record, RowKey


@dataclass(frozen=True, slots=True)
class Write:
    """One record that a call wrote: what stood there before and what stands there after, None without a record."""

    step: int
    actor: Actor
    row: RowKey
    before: Record | None
    after: Record | None

    def document(self) -> dict[str, Any]:
        """The write as JSON, without its step and actor, which stand beside it."""
        before, after = (None if side is None else dict(side) for side in (self.before, self.after))
        return {"collection": self.row.collection, "key": self.row.key, "before": before, "after": after}


def attributed(diff: StateDiff, writes: Iterable[Write]) -> StateDiff:
    """The diff with who made each change; one that no write explains keeps no actor.

    An update is taken apart: the fields that the agent wrote, those that only others wrote, those that nobody wrote.
    """
    by_row: dict[RowKey, list[Write]] = {}
    for write in writes:
        by_row.setdefault(write.row, []).append(write)

    def known(changes: Iterable[RecordChange]) -> tuple[RecordChange, ...]:
        return tuple(part for change in changes for part in _parts(change, by_row.get(change.row, ())))

    return replace(diff, changes=known(diff.changes), ignored=known(diff.ignored))


def _parts(change: RecordChange, writes: Sequence[Write]) -> list[RecordChange]:
    if change.operation is not Operation.UPDATED:
        return [replace(change, actors=frozenset(write.actor for write in writes))]
    parts: dict[bool | None, list[tuple[FieldChange, set[Actor]]]] = {True: [], False: [], None: []}
    for each in change.fields:
        actors = {write.actor for write in writes if _touches(write, each.field)}
        parts[Actor.AGENT in actors if actors else None].append((each, actors))
    return [
        replace(
            change,
            fields=tuple(each for each, _ in part),
            actors=frozenset(actor for _, actors in part for actor in actors),
        )
        for part in parts.values()
        if part
    ]


def _touches(write: Write, name: str) -> bool:
    """Whether a write changed a field."""
    sides = [MISSING if side is None else side.get(name, MISSING) for side in (write.before, write.after)]
    if any(side is MISSING for side in sides):
        return sides[0] is not sides[1]
    return canonical_bytes(sides[0]) != canonical_bytes(sides[1])


@dataclass(frozen=True, slots=True)
class Reverted:
    """A value that was written and taken back. `field` is None for a whole record added or removed meanwhile."""

    row: RowKey
    field: str | None
    value: Any
    meanwhile: Any
    steps: tuple[int, int]
    actor: Actor

    def document(self) -> dict[str, Any]:
        path = f"{self.row.collection}/{self.row.key}"
        sides = {"value": self.value, "meanwhile": self.meanwhile}
        kept = {name: side for name, side in sides.items() if side is not MISSING}
        return {"path": path, "field": self.field, "steps": list(self.steps), "actor": self.actor.value, **kept}


def reverted(schema: Mapping[str, Collection], writes: Iterable[Write]) -> tuple[Reverted, ...]:
    """What was written and is in the end as it was at first, by row and field."""
    by_row: dict[RowKey, list[Write]] = {}
    for write in writes:
        by_row.setdefault(write.row, []).append(write)
    return tuple(found for row in sorted(by_row) for found in _of_row(schema[row.collection], by_row[row]))


def _of_row(collection: Collection, writes: Sequence[Write]) -> list[Reverted]:
    first, last = writes[0].before, writes[-1].after
    if first is None and last is None:
        return [_whole(writes, _shown(writes[0].after))]
    if first is not None and last is not None and any(write.after is None for write in writes):
        return [_whole(writes, MISSING, _shown(first))] if _same(collection, first, last) else []
    found: list[Reverted] = []
    for name in sorted({name for write in writes for side in (write.before, write.after) for name in side or ()}):
        if name not in collection.ignored and (change := _of_field(collection, writes, name)) is not None:
            found.append(change)
    return found


def _whole(writes: Sequence[Write], meanwhile: Any, value: Any = MISSING) -> Reverted:
    return Reverted(writes[0].row, None, value, meanwhile, (writes[0].step, writes[-1].step), writes[0].actor)


def _of_field(collection: Collection, writes: Sequence[Write], name: str) -> Reverted | None:
    """How a field left its first value and came back to it."""
    if writes[0].before is None or writes[-1].after is None:
        return None
    first = _value(collection, writes[0].before, name)
    if _value(collection, writes[-1].after, name) != first:
        return None
    at = next((i for i, w in enumerate(writes) if not _is_back(collection, w, name, first)), None)
    if at is None:
        return None
    away = writes[at]
    back = next(w for w in writes[at + 1 :] if _is_back(collection, w, name, first))
    meanwhile = MISSING if away.after is None else away.after.get(name, MISSING)
    return Reverted(away.row, name, writes[0].before.get(name, MISSING), meanwhile, (away.step, back.step), away.actor)


def _is_back(collection: Collection, write: Write, name: str, first: bytes | None) -> bool:
    return write.after is not None and _value(collection, write.after, name) == first


def _value(collection: Collection, record: Record, name: str) -> bytes | None:
    canonical = collection.canonical(record)
    return canonical_bytes(canonical[name]) if name in canonical else None


def _same(collection: Collection, one: Record, other: Record) -> bool:
    return canonical_bytes(collection.canonical(one)) == canonical_bytes(collection.canonical(other))


def _shown(record: Record | None) -> Any:
    return MISSING if record is None else dict(record)
