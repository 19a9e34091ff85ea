"""A coordinator that was stopped, replaced and woken: it writes nothing and grants nothing any more."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from evalfleet.model.ids import COUNTER_BITS
from evalfleet.ports import Holder
from evalfleet.scheduling.state import Adoption
from evalfleet.store.creation import create_run
from tests.integration.scheduling.working import FENCED, LANES, LEASE, Starts, work
from tests.integration.store.samples import a_run
from tests.integration.store.sql import one

CASES = 120
SUCCESSOR = Holder(id="successor", host="here", pid=1)


@asynccontextmanager
async def another_process(url: str, starts: Path) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.scheduling.working", url, str(starts)
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while True:
            if happened():
                return
            await asyncio.sleep(0.01)


async def test_a_woken_coordinator_writes_and_grants_nothing(database: str, tmp_path: Path) -> None:
    await create_run(database, a_run(CASES))
    starts = Starts(tmp_path / "starts")
    async with another_process(database, tmp_path / "starts") as zombie:
        await until(lambda: len(starts) >= CASES // 4)
        os.kill(zombie.pid, signal.SIGSTOP)
        await asyncio.sleep(LEASE / 2)
        before = len(starts)
        successor = asyncio.create_task(work(database, starts, SUCCESSOR, adoption=Adoption.LEASE, steal=True))
        await until(lambda: len(starts) > before + LANES)
        (written,) = await one(database, f"SELECT count(*) FROM attempts WHERE attempt >> {COUNTER_BITS} = 1")
        woken_at = time.time()
        os.kill(zombie.pid, signal.SIGCONT)
        assert await zombie.wait() == FENCED
        assert not successor.done(), "the zombie was woken too late to be in the way"
        end = await successor

    assert (end.fenced, end.status) == (False, "completed")
    assert [start for start in starts.all() if start.pid == zombie.pid and start.at > woken_at] == []
    assert await one(database, f"SELECT count(*) FROM attempts WHERE attempt >> {COUNTER_BITS} = 1") == (written,)
    assert await one(
        database,
        """
        SELECT status::text, epoch, attempts, (SELECT count(*) FROM attempts), (SELECT count(*) FROM settlements),
               (SELECT count(*) FROM attempts WHERE settles)
        FROM runs
        """,
    ) == ("completed", 2, CASES, CASES, CASES, CASES)
    assert len(starts) - len({start.case for start in starts.all()}) <= 2 * LANES


async def test_who_steals_from_a_living_coordinator_ends_it(database: str, tmp_path: Path) -> None:
    """Both live all the time: the first one learns of the second at its next word to the store."""
    await create_run(database, a_run(CASES))
    starts = Starts(tmp_path / "starts")
    async with another_process(database, tmp_path / "starts") as first:
        await until(lambda: len(starts) >= CASES // 4)
        end = await work(database, starts, SUCCESSOR, adoption=Adoption.LEASE, steal=True)
        assert await first.wait() == FENCED
    assert (end.fenced, end.status) == (False, "completed")
    assert await one(database, "SELECT count(*), count(DISTINCT ordinal) FROM settlements") == (CASES, CASES)
    assert await one(database, "SELECT epoch, attempts FROM runs") == (2, CASES)
    assert len(starts) - len({start.case for start in starts.all()}) <= 2 * LANES
