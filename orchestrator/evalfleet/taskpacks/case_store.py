"""The case store of one attempt: restored from a snapshot by digest, and written to by one call at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.ports import Clock
from evalfleet.taskpacks.state import CaseState, Collection, RowKey
from evalfleet.taskpacks.trace import timestamp

SNAPSHOT_NOT_FOUND = "SNAPSHOT_NOT_FOUND"
SNAPSHOT_DAMAGED = "SNAPSHOT_DAMAGED"
RESET_WHILE_ACTIVE = "RESET_WHILE_ACTIVE"


class CaseRows(Protocol):
    """The rows of one attempt, in a place that no other attempt sees. A row is collection, key and exact text."""

    async def restore(self, snapshot_id: str) -> bool:
        """Become the rows of a snapshot, at once and whole; False when there is none of this id."""
        ...

    async def read(self) -> Sequence[tuple[str, str, str]]:
        """All rows, in any order."""
        ...

    async def write(self, writes: Sequence[tuple[str, str, str | None]]) -> None:
        """Put rows, or remove those whose text is None: all of them or none."""
        ...

    async def close(self) -> None:
        """Remove the rows and their place. May be called twice."""
        ...


class CaseBackend(Protocol):
    """Where snapshots are kept and attempts have their rows. Whatever fails raises AttemptFailure or an OSError."""

    async def keep(self, snapshot_id: str, rows: Sequence[tuple[str, str, str]]) -> None:
        """Keep a snapshot; one of this id is kept already, or becomes whole."""
        ...

    async def snapshots(self) -> Sequence[str]:
        """The ids of all snapshots, in order."""
        ...

    async def open(self, name: str) -> CaseRows:
        """An empty place of its own for an attempt; `name` is unique among those of all processes."""
        ...

    async def close(self) -> None:
        """Let go of what its rows share; snapshots stay where they outlive the process."""
        ...


@dataclass(frozen=True, slots=True)
class Restored:
    """What a reset did: the snapshot, the digest of the state that it left, and when, in UTC."""

    snapshot_id: str
    state_digest: str
    restored_at: str

    def document(self) -> dict[str, str]:
        """The fields as JSON."""
        return {"snapshot_id": self.snapshot_id, "state_digest": self.state_digest, "restored_at": self.restored_at}


class CaseStore:
    """One attempt's records on any backend. While a run is *active* no reset is allowed."""

    def __init__(self, schema: Mapping[str, Collection], rows: CaseRows, clock: Clock) -> None:
        self._schema = schema
        self._rows = rows
        self._clock = clock
        self.active = False

    async def reset(self, snapshot_id: str) -> Restored:
        """Restore a snapshot and verify by its digest that it is what now stands there.

        Raises AttemptFailure: RESET_WHILE_ACTIVE, SNAPSHOT_NOT_FOUND, or SNAPSHOT_DAMAGED, which is never the agent's
        fault.
        """
        if self.active:
            raise AttemptFailure(
                FailureKind.AUTHORING, RESET_WHILE_ACTIVE, "reset() while the agent works on the store"
            )
        if not await self._rows.restore(snapshot_id):
            message = f"there is no snapshot {snapshot_id}"
            raise AttemptFailure(FailureKind.AUTHORING, SNAPSHOT_NOT_FOUND, message)
        state = await self.state()
        if state.snapshot_id != snapshot_id:
            message = f"snapshot {snapshot_id} was restored as {state.snapshot_id}"
            raise AttemptFailure(FailureKind.INFRASTRUCTURE, SNAPSHOT_DAMAGED, message)
        return Restored(snapshot_id, state.digest, timestamp(self._clock.wall()))

    async def state(self) -> CaseState:
        """All records as they stand."""
        rows = {RowKey(collection, key): text for collection, key, text in await self._rows.read()}
        return CaseState(self._schema, MappingProxyType(rows))

    async def write(self, writes: Iterable[tuple[RowKey, str | None]]) -> None:
        """Put rows, or remove those whose text is None: all of them or none."""
        await self._rows.write([(row.collection, row.key, text) for row, text in writes])

    async def close(self) -> None:
        """Remove the records."""
        await self._rows.close()


async def keep_state(backend: CaseBackend, state: CaseState) -> str:
    """Keep a state as a snapshot, and return its id."""
    await backend.keep(state.snapshot_id, [(row.collection, row.key, text) for row, text in state.rows.items()])
    return state.snapshot_id
