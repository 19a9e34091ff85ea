"""Case stores of Task packs in Postgres: a schema a snapshot, and one an attempt that is cloned from it."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import psycopg
from psycopg import sql

from evalfleet.errors import ConfigurationError, StoreError
from evalfleet.processes import process_alive
from evalfleet.store.connection import Connection, connect, first_line

_SNAPSHOT, _ATTEMPT = "evalfleet_snapshot_", "evalfleet_cases_"

#: What an attempt's place may be called, so that it is an identifier and stays below Postgres's 63 bytes.
_NAME = re.compile(r"[0-9a-z_]{1,40}")
_ID = re.compile(r"[0-9a-f]{64}")

_TABLE = "(collection text, key text, body text NOT NULL, PRIMARY KEY (collection, key))"


class PostgresCases:
    """Snapshots and attempts in schemas of the database at `url`, over one connection while an attempt is open.

    Each attempt's schema names its process, and is locked by the connection. The next process of that machine drops it
    when nobody holds the lock and the process is no more.

    Bodies are text and not jsonb, which would change numbers and refuse NUL.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._open: set[str] = set()
        self._swept = False

    async def keep(self, snapshot_id: str, rows: Sequence[tuple[str, str, str]]) -> None:
        """Keep a snapshot, whole or not at all, whoever else does the same. Raises StoreError."""
        schema = _snapshot(snapshot_id)
        async with self.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (schema,))
            if not await _exists(connection, schema):
                await _create(connection, schema)
                await _copy(connection, schema, rows)
                comment = sql.SQL("COMMENT ON SCHEMA {} IS {}").format(sql.Identifier(schema), snapshot_id)
                await connection.execute(comment)

    async def snapshots(self) -> Sequence[str]:
        """The ids of all snapshots, in order. Raises StoreError."""
        found = (
            "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE starts_with(nspname, %s) ORDER BY 1"
        )
        async with self.transaction() as connection:
            cursor = await connection.execute(found, (_SNAPSHOT,))
            return [identifier for (identifier,) in await cursor.fetchall()]

    async def open(self, name: str) -> PostgresRows:
        """An empty schema for an attempt. Raises StoreError when there is one of this name."""
        if not _NAME.fullmatch(name):
            raise ConfigurationError(f"a case store is named by up to 40 of 0-9, a-z and _, not {name!r:.80}")
        schema = _ATTEMPT + name
        if schema in self._open:
            raise StoreError(f"the case store: schema {schema!r} is in use")
        self._open.add(schema)
        try:
            if not self._swept:
                self._swept = True
                await self.sweep()
            async with self.transaction() as connection:
                await _create(connection, schema)
                comment = sql.SQL("COMMENT ON SCHEMA {} IS {}").format(sql.Identifier(schema), _owner())
                await connection.execute(comment)
                await _hold(connection, schema)
        except BaseException:
            self.forget(schema)
            raise
        return PostgresRows(self, schema)

    async def sweep(self) -> Sequence[str]:
        """Drop the schemas of attempts of this machine whose process is dead; their names. Raises StoreError."""
        found = "SELECT nspname, obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE starts_with(nspname, %s)"
        async with self.transaction() as connection:
            schemas = await (await connection.execute(found, (_ATTEMPT,))).fetchall()
        dropped: list[str] = []
        for schema, owner in schemas:
            if not _is_dead(owner):
                continue
            async with self.transaction() as connection:
                taken = await connection.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", (schema,))
                if await taken.fetchone() == (True,):
                    await _drop(connection, schema)
                    dropped.append(schema)
        return dropped

    def forget(self, schema: str) -> None:
        """An attempt is closed: its next transaction may be the last of the connection."""
        self._open.discard(schema)

    async def close(self) -> None:
        """Close the connection; snapshots stay."""
        async with self._lock:
            await self._disconnect()

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection]:
        """The connection, for one transaction at a time. Raises StoreError when the database can't be used."""
        async with self._lock:
            if self._connection is None or self._connection.closed:
                self._connection = await connect(self._url, autocommit=True)
                for schema in self._open:  # an earlier connection that broke held them
                    await _hold(self._connection, schema)
            try:
                async with self._connection.transaction():
                    yield self._connection
            except psycopg.Error as error:
                raise StoreError(f"the case store: {first_line(error)}") from error
            finally:
                if not self._open:
                    await self._disconnect()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class PostgresRows:
    """One attempt's schema."""

    def __init__(self, cases: PostgresCases, schema: str) -> None:
        self._cases = cases
        self._schema = schema
        self._table = sql.Identifier(schema, "records")
        self._closed = False

    async def restore(self, snapshot_id: str) -> bool:
        """Take over the rows of the snapshot's schema in one transaction; False when there is none."""
        template = _snapshot(snapshot_id)
        async with self._cases.transaction() as connection:
            if not await _exists(connection, template):
                return False
            await connection.execute(sql.SQL("TRUNCATE {}").format(self._table))
            source = sql.Identifier(template, "records")
            await connection.execute(sql.SQL("INSERT INTO {} SELECT * FROM {}").format(self._table, source))
            return True

    async def read(self) -> Sequence[tuple[str, str, str]]:
        """All rows."""
        query = sql.SQL("SELECT collection, key, body FROM {}").format(self._table)
        async with self._cases.transaction() as connection:
            cursor = await connection.execute(query)
            return [(collection, key, body) for collection, key, body in await cursor.fetchall()]

    async def write(self, writes: Sequence[tuple[str, str, str | None]]) -> None:
        """Put and remove rows in one transaction."""
        put = sql.SQL(
            "INSERT INTO {} VALUES (%s, %s, %s) ON CONFLICT (collection, key) DO UPDATE SET body = excluded.body"
        ).format(self._table)
        remove = sql.SQL("DELETE FROM {} WHERE collection = %s AND key = %s").format(self._table)
        async with self._cases.transaction() as connection:
            for collection, key, body in writes:
                if body is None:
                    await connection.execute(remove, (collection, key))
                else:
                    await connection.execute(put, (collection, key, body))

    async def close(self) -> None:
        """Drop the schema."""
        if not self._closed:
            self._closed = True
            self._cases.forget(self._schema)
        async with self._cases.transaction() as connection:
            await _drop(connection, self._schema)
            await connection.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", (self._schema,))


async def _exists(connection: Connection, schema: str) -> bool:
    cursor = await connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", (schema,))
    return await cursor.fetchone() is not None


async def _create(connection: Connection, schema: str) -> None:
    await connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    await connection.execute(sql.SQL("CREATE TABLE {} " + _TABLE).format(sql.Identifier(schema, "records")))


async def _drop(connection: Connection, schema: str) -> None:
    await connection.execute("SET LOCAL client_min_messages = error")
    await connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


async def _hold(connection: Connection, schema: str) -> None:
    """Show that a schema is in use, for as long as the connection lasts."""
    await connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (schema,))


def _owner() -> str:
    """This process, as a schema names it."""
    return f"{os.getpid()} {socket.gethostname()}"


def _is_dead(owner: str | None) -> bool:
    """Whether the process that a schema names is one of this machine, and is no more. What names none is not proven."""
    pid, _, host = (owner or "").partition(" ")
    return host == socket.gethostname() and pid.isdecimal() and not process_alive(int(pid))


async def _copy(connection: Connection, schema: str, rows: Sequence[tuple[str, str, str]]) -> None:
    statement = sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(schema, "records"))
    async with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            await copy.write_row(row)


def _snapshot(snapshot_id: str) -> str:
    """The schema of a snapshot; what is no digest names none that exists."""
    return _SNAPSHOT + (snapshot_id[:40] if _ID.fullmatch(snapshot_id) else "none")
