"""Export of a run to one file, and import of that file into another record store, exactly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import psycopg
from psycopg import sql

from evalfleet.errors import ConfigurationError, StoreError
from evalfleet.model.ids import sha256
from evalfleet.ports import ArtifactStore
from evalfleet.store.archive import ArchiveReader, ArchiveWriter
from evalfleet.store.connection import Connection, connect
from evalfleet.store.schema import HEAD

#: The tables of a run, in the order in which they can be written.
_TABLES = (
    "runs", "run_marks", "arms", "datasets", "suites", "cases", "case_blocks", "reopenings", "settlements", "attempts",
    "assertions", "tool_calls", "event_pages", "judge_calls", "gradings", "judgements", "artifacts", "intents",
    "recordings", "run_progress", "labels", "edits", "suite_results", "span_batches",
    "span_counts",
)  # fmt: skip

#: What belongs to the database that a run lives in: its keys, who holds the run, and who asked for it.
_LOCAL = frozenset(
    {"run_key", "label_key", "edit_key", "holder", "holder_host", "holder_pid", "idempotency_sha256", "deleted_at"}
)
_CHUNK = 1 << 20

#: What a file lacks that was written before runs had marks, as the migration makes it of what is there.
_MARK = """
WITH older AS (
    UPDATE runs SET marks = 1 + (finished_at IS NOT NULL)::integer
    WHERE run_key = %(run_key)s AND marks = 0 AND started_at IS NOT NULL
    RETURNING run_key, commit_seq, status, started_at, finished_at
), apart AS (
    UPDATE settlements s
    SET commit_seq = coalesce((
        SELECT a.commit_seq FROM attempts a WHERE a.run_key = s.run_key AND a.attempt = s.attempt
    ), 0)
    WHERE s.run_key = (SELECT run_key FROM older) AND s.how <> 'carried' AND NOT EXISTS (
        SELECT FROM attempts a
        WHERE a.run_key = s.run_key AND a.attempt = s.attempt AND a.outcome <> 'interrupted'
    )
)
INSERT INTO run_marks (run_key, mark, commit_seq, type, status, at)
SELECT run_key, 1, 0, 'run.started'::run_mark, NULL::run_status, started_at FROM older
UNION ALL
SELECT run_key, 2, commit_seq, 'run.completed', status, finished_at FROM older WHERE finished_at IS NOT NULL
"""
_OBJECTS = "artifacts/"


async def export_run(url: str, run: str, path: Path, artifacts: ArtifactStore) -> None:
    """Write the run with all its rows and artifacts to `path`, from one snapshot.

    Works on a run in progress too: what is settled by then is in it. Raises ConfigurationError when there is no
    such run or the file can't be written, StoreError when the store or an artifact can't be read.
    """
    async with await connect(url) as connection:
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        found = await connection.execute("SELECT run_key FROM runs WHERE id = %s AND deleted_at IS NULL", (run,))
        row = await found.fetchone()
        if row is None:
            raise ConfigurationError(f"there is no run {run}")
        try:
            archive = await asyncio.to_thread(ArchiveWriter, path, run, HEAD)
        except OSError as error:
            raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
        try:
            for table in _TABLES:
                await _export_table(connection, archive, table, int(row[0]))
            async for digest in artifacts.list_run(run):
                await _export_object(archive, digest, await artifacts.get(run, digest))
            await asyncio.to_thread(archive.commit)
        except OSError as error:
            raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
        finally:
            await asyncio.to_thread(archive.discard)


async def import_run(url: str, path: Path, artifacts: ArtifactStore) -> str:
    """Read an exported run into this store, all or nothing, and return its id; a resume goes on with it.

    Raises ConfigurationError when the file is damaged or foreign, was written by a newer version, or the store
    already holds this run.
    """
    with await asyncio.to_thread(ArchiveReader, path) as archive:
        run = archive.manifest.run
        async with await connect(url) as connection:
            taken = await connection.execute("SELECT deleted_at FROM runs WHERE id = %s", (run,))
            if await taken.fetchone() is not None:
                raise ConfigurationError(
                    f"this record store already holds run {run}; delete it first to import it again"
                )
            for name in archive.manifest.members:
                if name.startswith(_OBJECTS):
                    await _import_object(archive, artifacts, run, name)
            try:
                run_key = await _import_tables(connection, archive)
                await connection.commit()
            except psycopg.Error as error:
                raise StoreError(f"{path} could not be imported: {error}") from error
            if run_key is None:
                raise ConfigurationError(f"{path} holds no run")
    return run


# --- export ---------------------------------------------------------------------------------------------------


async def _export_table(connection: Connection, archive: ArchiveWriter, table: str, run_key: int) -> None:
    columns = [name for name in await _columns(connection, table) if name not in _LOCAL]
    statement = sql.SQL("COPY (SELECT {} FROM {} WHERE run_key = {}) TO STDOUT (FORMAT BINARY)").format(
        _names(columns), sql.Identifier(table), sql.Literal(run_key)
    )
    name = f"tables/{table}.copy"
    await asyncio.to_thread(archive.begin, name)
    held = bytearray()
    async with connection.cursor() as cursor, cursor.copy(statement) as copy:
        async for data in copy:
            held += data
            if len(held) >= _CHUNK:
                await asyncio.to_thread(archive.write, bytes(held))
                held.clear()
    await asyncio.to_thread(archive.write, bytes(held))
    await asyncio.to_thread(archive.end, name, tuple(columns))


async def _export_object(archive: ArchiveWriter, digest: str, data: bytes) -> None:
    def work() -> None:
        archive.begin(_OBJECTS + digest)
        archive.write(data)
        archive.end(_OBJECTS + digest)

    await asyncio.to_thread(work)


# --- import ---------------------------------------------------------------------------------------------------


async def _import_tables(connection: Connection, archive: ArchiveReader) -> int | None:
    """Write every table under a new key, which the first of them gives."""
    run_key: int | None = None
    for table in _TABLES:
        name = f"tables/{table}.copy"
        if name not in archive.manifest.members:
            continue
        columns = archive.manifest.members[name].columns
        unknown = set(columns) - set(await _columns(connection, table)) | (set(columns) & _LOCAL)
        if unknown:
            raise ConfigurationError(
                f"the file was written at schema {archive.manifest.schema} and this store is at {HEAD}, which has no "
                f"{table}.{sorted(unknown)[0]}: upgrade evalfleet"
            )
        await _stage(connection, archive, table, columns)
        run_key = await _move(connection, table, columns, run_key)
    await connection.execute(_MARK, {"run_key": run_key})
    return run_key


async def _stage(connection: Connection, archive: ArchiveReader, table: str, columns: Sequence[str]) -> None:
    staged = sql.Identifier(f"import_{table}")
    create = sql.SQL("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA")
    await connection.execute(create.format(staged, _names(columns), sql.Identifier(table)))
    copying = sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(staged)
    async with connection.cursor() as cursor, cursor.copy(copying) as copy:
        async for data in _read(archive, f"tables/{table}.copy"):
            await copy.write(data)


async def _move(connection: Connection, table: str, columns: Sequence[str], run_key: int | None) -> int | None:
    names, target, staged = _names(columns), sql.Identifier(table), sql.Identifier(f"import_{table}")
    if table == "runs":
        statement = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} RETURNING run_key")
        row = await (await connection.execute(statement.format(target, names, names, staged))).fetchone()
        return None if row is None else int(row[0])
    statement = sql.SQL("INSERT INTO {} (run_key, {}) SELECT {}, {} FROM {}")
    await connection.execute(statement.format(target, names, sql.Literal(run_key), names, staged))
    return run_key


async def _import_object(archive: ArchiveReader, artifacts: ArtifactStore, run: str, name: str) -> None:
    data = b"".join([part async for part in _read(archive, name)])
    if sha256(data) != name.removeprefix(_OBJECTS):
        raise ConfigurationError(f"{name} in the file is not what its name says")
    await artifacts.put(run, data)


async def _read(archive: ArchiveReader, name: str) -> AsyncIterator[bytes]:
    chunks = archive.chunks(name)
    while (data := await asyncio.to_thread(next, chunks, None)) is not None:
        yield data


# --- names ----------------------------------------------------------------------------------------------------


async def _columns(connection: Connection, table: str) -> list[str]:
    cursor = await connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
        " ORDER BY attnum",
        (table,),
    )
    return [str(name) for (name,) in await cursor.fetchall()]


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))
