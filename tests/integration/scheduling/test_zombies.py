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

import psutil
import pytest

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
async def another_process(url: str, starts: Path, place: str = "") -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.scheduling.working", url, str(starts), place
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


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("before_reply", id="between commits"),
        # The lock of its run is kept as long as the run: the successor waits for it.
        pytest.param("after_copy", id="in a commit", marks=pytest.mark.soak),
    ],
)
async def test_a_woken_coordinator_writes_and_grants_nothing(database: str, tmp_path: Path, place: str) -> None:
    await create_run(database, a_run(CASES))
    starts = Starts(tmp_path / "starts")
    async with another_process(database, tmp_path / "starts", place) as zombie:
        await until(lambda: psutil.Process(zombie.pid).status() == psutil.STATUS_STOPPED)
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


@pytest.mark.soak
async def test_a_coordinator_that_was_frozen_in_a_commit_goes_on_when_nobody_came(
    database: str, tmp_path: Path
) -> None:
    """The server has ended its session meanwhile, and with it the commit, which is made again."""
    await create_run(database, a_run(CASES))
    starts = Starts(tmp_path / "starts")
    async with another_process(database, tmp_path / "starts", "after_copy") as frozen:
        await until(lambda: psutil.Process(frozen.pid).status() == psutil.STATUS_STOPPED)
        await asyncio.sleep(17)
        os.kill(frozen.pid, signal.SIGCONT)
        assert await frozen.wait() == 0
    assert await one(database, "SELECT status::text, epoch, attempts FROM runs") == ("completed", 1, CASES)
    assert await one(database, "SELECT count(*), count(DISTINCT ordinal) FROM settlements") == (CASES, CASES)
    assert len(starts) == CASES


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
