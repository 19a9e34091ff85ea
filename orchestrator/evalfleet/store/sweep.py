"""Removing from the artifact store what no row names: it was left by workers that died before they handed over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from psycopg import sql

from evalfleet.store.artifacts import FileArtifacts
from evalfleet.store.blobs import REFERENCE, referenced
from evalfleet.store.connection import Connection, connect

#: An object comes before the row that names it, by less than this many seconds however long the database is away.
KEPT_SECONDS = 86_400.0

# a run that somebody may still be working on, or is deleting, has no key here
_KNOWN = """
SELECT id, CASE WHEN deleted_at IS NULL AND (
    status NOT IN ('queued', 'running') OR coalesce(beat, created_at) < clock_timestamp() - make_interval(secs => %s)
) THEN run_key END
FROM runs WHERE id = ANY(%s)
"""

# whichever column may hold the body of something, so that a new table can't be forgotten
_BODIES = """
SELECT c.relname, a.attname
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
JOIN pg_attribute k ON k.attrelid = c.oid AND k.attname = 'run_key'
WHERE a.atttypid = 'bytea'::regtype AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY 1, 2
"""
_REFERENCES = sql.SQL("""
SELECT {column} FROM {table}
WHERE run_key = %(run_key)s AND octet_length({column}) = 33 AND substring({column} FROM 1 FOR 1) = %(mark)s
""")
_NAMED = sql.SQL("SELECT %(mark)s::bytea || sha256 FROM artifacts WHERE run_key = %(run_key)s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """How many objects of each run no row names, and their bytes in all; `unknown` are runs that only the artifact
    store knows."""

    objects: Mapping[str, int]
    size: int
    unknown: tuple[str, ...]


async def sweep(url: str, artifacts: FileArtifacts, now: float, *, dry_run: bool = False) -> Swept:
    """Delete what no row names and nobody wrote for a day before `now`, in seconds since the epoch.

    Runs that somebody may be working on are left alone, and so are those that this record store does not have:
    another one may share the artifact store. Raises StoreError when either store can't be used.
    """
    before = now - KEPT_SECONDS
    there = await artifacts.runs()
    objects: dict[str, int] = {}
    size = 0
    async with await connect(url, autocommit=True) as connection:
        known = dict(await (await connection.execute(_KNOWN, (KEPT_SECONDS, there))).fetchall())
        for run in there:
            if known.get(run) is not None:
                old = await artifacts.old(run, before)  # before its rows are read: what came since is named or young
                names = await _unnamed(connection, known[run], old)
                gone = names if dry_run else await artifacts.discard(run, names, before)
                size += sum(old[name] for name in gone)
                objects |= {run: len(gone)} if gone else {}
    return Swept(objects=objects, size=size, unknown=tuple(run for run in there if run not in known))


async def _unnamed(connection: Connection, run_key: int, names: Iterable[str]) -> list[str]:
    """Those of `names` that no row of the run refers to."""
    left = set(names)
    statements: list[sql.SQL | sql.Composed] = [_NAMED]
    for table, column in await (await connection.execute(_BODIES)).fetchall():
        statements.append(_REFERENCES.format(table=sql.Identifier(table), column=sql.Identifier(column)))
    given = {"run_key": run_key, "mark": REFERENCE}
    for statement in statements if left else ():
        async for (body,) in connection.cursor(binary=True).stream(statement, given):
            left.discard(referenced(body) or "")
    return sorted(left)
