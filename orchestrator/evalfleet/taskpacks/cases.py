"""What a pack's tool gets first: the records as they are, and the writes that take effect when its call succeeds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from evalfleet.model.canonical import canonical_bytes, parse_exact
from evalfleet.model.tool import ToolRejected
from evalfleet.taskpacks.diff import Actor
from evalfleet.taskpacks.state import HARNESS, CaseState, InvalidRecord, RowKey, encoded
from evalfleet.taskpacks.writes import Write

#: The harness's own records.
CLOCK, COUNTERS, RESPONDER = "clock", "counters", "responder"

#: What the clock of a pack shows unless its snapshot says otherwise.
START = "2026-01-05T09:00:00+00:00"


class Cases:
    """The records of one attempt during one call, written to by one actor. Nothing is kept when the call fails.

    Records are copies: only `add`, `update` and `remove` change anything. The clock and the ids are part of the store,
    so that the same calls on the same snapshot write the same records.
    """

    def __init__(self, state: CaseState, actor: Actor, step: int) -> None:
        self._before = self._state = state
        self._actor = actor
        self._step = step
        self._written: set[RowKey] = set()

    @property
    def now(self) -> str:
        """The time in the store, ISO 8601; it passes by `tick` only."""
        clock = self._state.record(HARNESS, CLOCK)
        return START if clock is None else clock["now"]

    def get(self, collection: str, key: str) -> dict[str, Any] | None:
        """A record, None without one."""
        self._check(collection)
        return self._state.record(collection, key)

    def need(self, collection: str, key: str) -> dict[str, Any]:
        """A record. Raises ToolRejected, for the agent to read, without one."""
        record = self.get(collection, key)
        if record is None:
            raise ToolRejected(f"there is no {collection}/{key}")
        return record

    def all(self, collection: str, **match: Any) -> list[dict[str, Any]]:
        """The records by key, those with the given values only."""
        self._check(collection)
        return [
            record
            for record in self._state.records(collection)
            if all(name in record and _same(record[name], value) for name, value in match.items())
        ]

    def add(self, collection: str, record: dict[str, Any]) -> dict[str, Any]:
        """Add a record and return it. Raises InvalidRecord for one that is there already, or is none."""
        row, text = encoded(self._state.schema, self._check(collection), record)
        if row in self._state.rows:
            raise InvalidRecord(f"{collection}/{row.key} is there already")
        self._write(row, text)
        return parse_exact(text)

    def update(self, collection: str, key: str, **fields: Any) -> dict[str, Any]:
        """Set fields of a record and return it. Raises ToolRejected when there is none, InvalidRecord for its key."""
        row, text = encoded(self._state.schema, collection, {**self.need(collection, key), **fields})
        if row.key != key:
            raise InvalidRecord(f"{collection}/{key}: a key does not change")
        self._write(row, text)
        return parse_exact(text)

    def remove(self, collection: str, key: str) -> None:
        """Remove a record. Raises ToolRejected when there is none."""
        self.need(collection, key)
        self._write(RowKey(collection, key), None)

    def next_id(self, prefix: str) -> str:
        """The next id of a kind: `M-0001`, `M-0002`, …"""
        counters = self._state.record(HARNESS, COUNTERS) or {"id": COUNTERS}
        number = counters.get(prefix, 0) + 1
        self.keep(COUNTERS, {**counters, prefix: number})
        return f"{prefix}-{number:04d}"

    def tick(self, seconds: float) -> str:
        """Let time pass in the store; what it is then."""
        now = (datetime.fromisoformat(self.now) + timedelta(seconds=seconds)).isoformat()
        self.keep(CLOCK, {"now": now})
        return now

    def keep(self, key: str, record: dict[str, Any]) -> None:
        """Write a record of the harness."""
        row, text = encoded(self._state.schema, HARNESS, {**record, "id": key})
        self._write(row, text)

    def kept(self, key: str) -> dict[str, Any] | None:
        """A record of the harness."""
        return self._state.record(HARNESS, key)

    @property
    def after(self) -> CaseState:
        """The state with the writes of this call."""
        return self._state

    def writes(self) -> Iterator[Write]:
        """What the call wrote, one write a record, in the order of their rows; a record left as it was is none."""
        for row in sorted(self._written):
            if self._before.rows.get(row) != self._state.rows.get(row):
                before, after = (state.record(*row) for state in (self._before, self._state))
                yield Write(self._step, self._actor, row, before, after)

    def _check(self, collection: str) -> str:
        if collection == HARNESS or collection not in self._state.schema:
            known = ", ".join(sorted(self._state.schema.keys() - {HARNESS}))
            raise InvalidRecord(f"there is no collection {collection!r}; there are {known}")
        return collection

    def _write(self, row: RowKey, text: str | None) -> None:
        self._written.add(row)
        self._state = self._state.changed([(row, text)])


def _same(one: Any, other: Any) -> bool:
    return canonical_bytes(one) == canonical_bytes(other)
