"""The rows of sandboxes that outlive the process that makes them: written ahead by workers, read by who reaps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from evalfleet.model.sandbox import SandboxEntry, SandboxRow, SandboxState
from evalfleet.store.connection import Connection
from evalfleet.store.lifeline import Lifeline

#: Seconds to wait for a store that is away: without its row no sandbox is made.
_PATIENCE = 60.0

# repeatable, as everything that runs on a lifeline; an announcement never overtakes what came of it
_ANNOUNCE = """
INSERT INTO sandboxes (backend, owner, run, attempt, ordinal, eval_id, host, pid, template, expires_at)
VALUES (%(backend)s, %(owner)s, %(run)s, %(attempt)s, %(case)s, %(eval_id)s, %(host)s, %(pid)s, %(template)s,
        clock_timestamp() + make_interval(secs => %(ttl)s))
ON CONFLICT (owner, backend) DO NOTHING
"""
_MADE = """
UPDATE sandboxes SET state = 'made', id = %(id)s, made_at = clock_timestamp(), starts = starts + 1
WHERE owner = %(owner)s AND backend = %(backend)s AND state = 'announced'
"""
_KEPT = """
UPDATE sandboxes SET state = 'kept', id = %(id)s, made_at = coalesce(made_at, clock_timestamp()),
    starts = greatest(starts, 1), expires_at = clock_timestamp() + make_interval(secs => %(ttl)s)
WHERE owner = %(owner)s AND backend = %(backend)s AND ended_at IS NULL
"""
_ENDED = """
UPDATE sandboxes SET state = %(state)s::sandbox_state, ended_at = clock_timestamp()
WHERE owner = %(owner)s AND backend = %(backend)s AND ended_at IS NULL
"""

# what has ended is known as ours for as long as its backend may still show it
_KNOWN = """
SELECT s.backend, s.owner, s.id, s.run, s.attempt, s.ordinal, s.eval_id, s.host, s.pid, s.state::text,
       extract(epoch FROM s.created_at)::float8, extract(epoch FROM s.expires_at)::float8,
       s.expires_at < clock_timestamp(),
       r.id IS NULL OR r.deleted_at IS NOT NULL OR r.status NOT IN ('queued', 'running')
FROM sandboxes s LEFT JOIN runs r ON r.id = s.run
WHERE s.ended_at IS NULL OR s.owner = ANY(%(owners)s)
ORDER BY s.created_at
"""
_FORGET = """
DELETE FROM sandboxes s WHERE ended_at IS NOT NULL AND NOT EXISTS (SELECT FROM runs r WHERE r.id = s.run)
"""


class SandboxRows:
    """A `SandboxLedger` of one process, over one connection that is made when the first row is wanted.

    A store that is away is waited for at most `patience` seconds.
    """

    def __init__(self, url: str, host: str, pid: int, patience: float = _PATIENCE) -> None:
        self._maker = {"host": host, "pid": pid}
        self._lifeline = Lifeline(url, _prepare, patience)

    async def announce(self, entry: SandboxEntry) -> None:
        """Write a sandbox down before it is made. Raises StoreError when the store stays away."""
        await self._execute(_ANNOUNCE, self._values(entry))

    async def made(self, entry: SandboxEntry, id: str) -> None:
        """There is a sandbox of this id now. Raises StoreError."""
        await self._execute(_MADE, {**self._values(entry), "id": id})

    async def kept(self, entry: SandboxEntry, id: str, ttl: float) -> None:
        """It stays when its attempt has ended, for so many seconds. Raises StoreError.

        Also one that was never announced since it would have died with its maker.
        """
        values = {**self._values(entry), "id": id, "ttl": ttl}

        async def work(connection: Connection) -> None:
            async with connection.transaction():
                await connection.execute(_ANNOUNCE, values)
                await connection.execute(_KEPT, values)

        await self._lifeline.run(work)

    async def ended(self, backend: str, owner: str, state: SandboxState) -> None:
        """There is none any more: `gone` or `lost`. Raises StoreError."""
        await self._execute(_ENDED, {"backend": backend, "owner": owner, "state": state.value})

    async def known(self, owners: Iterable[str]) -> Sequence[SandboxRow]:
        """The rows of all that have not ended, and of these owners whatever became of them, oldest first.

        Raises StoreError.
        """
        given = {"owners": list(owners)}

        async def work(connection: Connection) -> list[tuple[Any, ...]]:
            return await (await connection.execute(_KNOWN, given)).fetchall()

        return [_row(values) for values in await self._lifeline.run(work)]

    async def forget(self) -> None:
        """Delete the rows of ended sandboxes whose run is deleted. Raises StoreError."""
        await self._execute(_FORGET, {})

    async def close(self) -> None:
        await self._lifeline.close()

    def _values(self, entry: SandboxEntry) -> dict[str, Any]:
        named = {name: getattr(entry, name) for name in SandboxEntry.__slots__}
        return {**named, **self._maker, "template": bytes.fromhex(entry.template)}

    async def _execute(self, statement: str, values: dict[str, Any]) -> None:
        async def work(connection: Connection) -> None:
            await connection.execute(statement.encode(), values)

        await self._lifeline.run(work)


def _row(values: Sequence[Any]) -> SandboxRow:
    backend, owner, id, run, attempt, case, eval_id, host, pid, state, created_at, expires_at = values[:12]
    expired, ownerless = values[12:]
    return SandboxRow(
        backend=backend,
        owner=owner,
        id=id,
        run=run,
        attempt=attempt,
        case=case,
        eval_id=eval_id,
        host=host,
        pid=pid,
        state=SandboxState(state),
        created_at=created_at,
        expires_at=expires_at,
        expired=expired,
        ownerless=ownerless,
    )


async def _prepare(connection: Connection) -> None:
    """Nothing is to be set up."""
