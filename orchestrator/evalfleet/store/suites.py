"""The suites of a run, and what their own criteria came to: written when scheduling has ended, read by reports."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from evalfleet.errors import StoreError
from evalfleet.store.blobs import Packer, Unpacker, to_json
from evalfleet.store.connection import Connection, connect, first_line

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


async def suite_documents(url: str, run: str) -> dict[str, dict[str, Any]]:
    """The suites that a run was planned from, by id, in the order of planning."""
    unpacker = Unpacker()
    async with _reached(url) as connection:
        rows = await (await connection.execute(_DOCUMENTS, {"run": run})).fetchall()
    return {suite: unpacker.unpack(document) for suite, document in rows}


async def write_suite_results(url: str, run: str, results: Mapping[tuple[str, str], Results]) -> None:
    """Keep what suites came to, by suite and arm; what stood there before is replaced."""
    packer = Packer()
    async with _reached(url) as connection:
        for (suite, arm), outcomes in results.items():
            packed = packer.pack(to_json([dict(outcome) for outcome in outcomes]))
            await connection.execute(_WRITE, {"run": run, "suite": suite, "arm": arm, "results": packed})


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
