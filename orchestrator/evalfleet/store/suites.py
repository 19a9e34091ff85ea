"""The suites of a run, and what their own criteria came to: written when scheduling has ended, read by reports."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from evalfleet.errors import StoreError
from evalfleet.store.blobs import Packer, Unpacker, to_json
from evalfleet.store.connection import Connection, connect, first_line
from evalfleet.store.read_sql import STALE_SECONDS

#: What a suite's criteria came to: JSON objects in their order.
Results = Sequence[Mapping[str, Any]]

_WRITE = """
    INSERT INTO suite_results (run_key, arm, suite, results)
    SELECT r.run_key, a.arm, %(suite)s, %(results)s
    FROM runs r JOIN arms a ON a.run_key = r.run_key AND a.name = %(arm)s
    WHERE r.id = %(run)s AND r.deleted_at IS NULL
    ON CONFLICT (run_key, suite, arm) DO UPDATE SET results = excluded.results, at = clock_timestamp()
"""

_DOCUMENTS = """
    SELECT s.suite, s.document FROM suites s JOIN runs r ON r.run_key = s.run_key
    WHERE r.id = %(run)s AND r.deleted_at IS NULL ORDER BY s.position
"""

_RESULTS = """
    SELECT s.suite, a.name, s.results FROM suite_results s
    JOIN runs r ON r.run_key = s.run_key JOIN arms a ON a.run_key = s.run_key AND a.arm = s.arm
    WHERE r.id = %(run)s AND r.deleted_at IS NULL ORDER BY a.arm, s.suite
"""

#: A run that ended, and is not told as completed: its suites are yet to be judged, or whoever did that went away.
_OPEN = """
    r.finished_at IS NOT NULL AND NOT EXISTS (
        SELECT FROM run_marks m WHERE m.run_key = r.run_key AND m.mark = r.marks AND m.type = 'run.completed'
    )
"""

_LOCKED = "SELECT run_key FROM runs WHERE id = %(run)s FOR UPDATE"

_COMPLETED = f"""
    WITH told AS (
        UPDATE runs r SET marks = marks + 1 WHERE id = %(run)s AND deleted_at IS NULL AND {_OPEN}
        RETURNING run_key, marks, commit_seq, status, id
    ), marked AS (
        INSERT INTO run_marks (run_key, mark, commit_seq, type, status)
        SELECT run_key, marks, commit_seq, 'run.completed', status FROM told
    )
    SELECT pg_notify('evalfleet_run', id) FROM told
""".encode()

_OPEN_RUN = f"""
    SELECT beat > clock_timestamp() - interval '{STALE_SECONDS} s' FROM runs r WHERE id = %(run)s AND {_OPEN}
""".encode()

_BEAT = "UPDATE runs SET beat = clock_timestamp() WHERE id = %(run)s AND finished_at IS NOT NULL"


async def suite_documents(url: str, run: str) -> dict[str, dict[str, Any]]:
    """The suites that a run was planned from, by id, in the order of planning."""
    unpacker = Unpacker()
    async with _reached(url) as connection:
        rows = await (await connection.execute(_DOCUMENTS, {"run": run})).fetchall()
    return {suite: unpacker.unpack(document) for suite, document in rows}


async def write_suite_results(url: str, run: str, results: Mapping[tuple[str, str], Results]) -> None:
    """Keep what suites came to, by suite and arm; what stood there before is replaced.

    A run that has ended is told as completed from now on.
    """
    packer = Packer()
    async with _reached(url) as connection:
        # one at a time, so that two who judge the same run tell its end once
        await connection.execute(_LOCKED, {"run": run})
        for (suite, arm), outcomes in results.items():
            packed = packer.pack(to_json([dict(outcome) for outcome in outcomes]))
            await connection.execute(_WRITE, {"run": run, "suite": suite, "arm": arm, "results": packed})
        await connection.execute(_COMPLETED, {"run": run})


async def is_open(url: str, run: str) -> bool:
    """Whether a run ended and its suites' own criteria are not evaluated yet, so that it is not told as completed."""
    return await _open(url, run) is not None


async def is_being_judged(url: str, run: str) -> bool:
    """Whether somebody is evaluating just now what the suites of an ended run ask."""
    return await _open(url, run) or False


async def beat(url: str, run: str) -> None:
    """Say that the suites of an ended run are being judged."""
    async with _reached(url) as connection:
        await connection.execute(_BEAT, {"run": run})


async def _open(url: str, run: str) -> bool | None:
    """Whether a run that waits for its suites had a heartbeat lately; None for any other run."""
    async with _reached(url) as connection:
        row = await (await connection.execute(_OPEN_RUN, {"run": run})).fetchone()
    return None if row is None else bool(row[0])


async def suite_results(url: str, run: str) -> dict[tuple[str, str], Results]:
    """What the suites of a run came to, by suite and arm; none before scheduling has ended."""
    unpacker = Unpacker()
    async with _reached(url) as connection:
        rows = await (await connection.execute(_RESULTS, {"run": run})).fetchall()
    return {(suite, arm): unpacker.unpack(results) for suite, arm, results in rows}


@asynccontextmanager
async def _reached(url: str) -> AsyncGenerator[Connection]:
    """One transaction. Raises StoreError when the store goes away."""
    async with await connect(url) as connection:
        try:
            yield connection
        except psycopg.OperationalError as error:
            raise StoreError(f"the record store went away: {first_line(error)}") from error
