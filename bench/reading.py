"""`python -m bench.reading WHAT RUN`: one reading operation over the Python API, its seconds as JSON.

WHAT: aggregate, beside plain SQL that counts the same; full, every attempt decoded; export, to one file.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg

from evalfleet.api import RunHandle, open_run
from evalfleet.settings import Settings
from evalfleet.store.artifacts import FileArtifacts
from evalfleet.store.opening import open_store
from evalfleet.store.transfer import export_run

_FLOOR = """
SELECT arm, verdict, count(*), avg(duration) FROM attempts
WHERE run_key = (SELECT run_key FROM runs WHERE id = %s) AND settles GROUP BY arm, verdict
"""
_TIMES = 5


async def aggregate(run: str) -> dict[str, float]:
    async with await open_run(run) as handle:
        ours = await _median(handle.aggregate)
        async with open_store(Settings.from_environment()) as url:
            connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
            async with connection:

                async def floor() -> object:
                    return await (await connection.execute(_FLOOR, (run,))).fetchall()

                return {"seconds": ours, "floor_seconds": await _median(floor)}


async def full(run: str) -> dict[str, float]:
    """Every case with all the evidence of its attempt."""
    began, cpu = time.perf_counter(), time.process_time()
    async with await open_run(run) as handle:
        events = [event async for event in _events(handle)]
    return {"seconds": time.perf_counter() - began, "own_cpu": time.process_time() - cpu, "rows": float(len(events))}


async def _events(handle: RunHandle):
    async for _, detail in handle.records():
        yield 0 if detail is None else sum(len(turn.events) for turn in detail.turns)


async def export(run: str) -> dict[str, float]:
    settings = Settings.from_environment()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.zip"
        began = time.perf_counter()
        async with open_store(settings) as url:
            await export_run(url, run, path, FileArtifacts(settings.artifacts))
        return {"seconds": time.perf_counter() - began, "bytes": float(path.stat().st_size)}


async def _median(operation: Callable[[], Awaitable[object]]) -> float:
    await operation()
    times: list[float] = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        await operation()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


if __name__ == "__main__":
    chosen = {"aggregate": aggregate, "full": full, "export": export}[sys.argv[1]]
    sys.stdout.write(json.dumps(asyncio.run(chosen(sys.argv[2]))) + "\n")
