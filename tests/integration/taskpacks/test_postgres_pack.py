"""Attempts of a pack whose records are in Postgres, beside each other."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from evalfleet.errors import StoreError
from evalfleet.store.case_schemas import PostgresCases
from evalfleet.store.connection import connect
from evalfleet.taskpacks.cases import Cases
from evalfleet.taskpacks.pack_run import Work
from evalfleet.taskpacks.pack_tool import pack_tool
from evalfleet.taskpacks.reapply import reapply
from evalfleet.testing.fakes import FakeClock
from tests.unit.taskpacks.parcels import assignment, pack


async def test_attempts_beside_each_other_leave_what_repeats_and_no_schema_of_theirs(database: str) -> None:
    cases = PostgresCases(database)
    own, row = pack(backend=cases), assignment()

    async def attempt(number: int) -> dict[str, Any]:
        async with own.world(f"run_{number}", str(number), row, FakeClock()) as (world, restored):
            work = Work(world, own.manifest(row, restored, number), restored)
            for _ in range(number):
                await world.call("ask", {"items": [], "message": f"letter of {number}"})
            await world.reply(["licence"])
            await world.call("decide", {"decision": "release"})
            work.state = (await world.examine(own.allowed(row))).document()
            letters = [record["text"] for record in (await world.state()).records("letters")]
            assert letters == [f"letter of {number}"] * number
            return work.document()

    found = await asyncio.gather(*map(attempt, range(4)))
    assert [evidence["state"]["clean"] for evidence in found] == [True, True, False, False]
    for number, evidence in enumerate(found):
        assert await reapply(own, row, evidence, f"again_{number}", FakeClock()) is None
    assert list(await cases.snapshots()) == [found[0]["manifest"]["snapshot_id"]]
    async with await connect(database, autocommit=True) as other:
        cursor = await other.execute("SELECT count(*) FROM pg_namespace WHERE starts_with(nspname, 'evalfleet_cases_')")
        assert await cursor.fetchone() == (0,)


HOLD = """
import asyncio, sys
from evalfleet.store.case_schemas import PostgresCases

async def hold():
    cases = PostgresCases(sys.argv[1])
    await cases.open(sys.argv[2])
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(hold())
"""


def holder(database: str, name: str) -> subprocess.Popen[str]:
    """A process that has an attempt's schema open."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, database, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "open\n"
    return process


async def schemas(database: str) -> set[str]:
    async with await connect(database, autocommit=True) as other:
        found = await other.execute("SELECT nspname FROM pg_namespace WHERE starts_with(nspname, 'evalfleet_cases_')")
        return {name.removeprefix("evalfleet_cases_") for (name,) in await found.fetchall()}


async def test_what_a_killed_process_left_goes_with_the_next_one_and_nothing_else(database: str) -> None:
    living, killed = holder(database, "living"), holder(database, "killed")
    try:
        async with await connect(database, autocommit=True) as other:
            await other.execute("CREATE SCHEMA evalfleet_cases_unowned")
            await other.execute("CREATE SCHEMA evalfleet_cases_elsewhere")
            await other.execute("COMMENT ON SCHEMA evalfleet_cases_elsewhere IS '999999999 another-machine'")
            await other.execute("CREATE SCHEMA evalfleet_cases_held")
            mine = f"COMMENT ON SCHEMA evalfleet_cases_held IS '999999999 {os.uname().nodename}'"
            await other.execute(mine)  # whose process seems dead, and whose connection lives
            await other.execute("SELECT pg_advisory_lock(hashtextextended('evalfleet_cases_held', 0))")
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            key = "hashtextextended('evalfleet_cases_killed', 0)"
            for _ in range(600):  # the server has to see that the connection is gone
                if await (await other.execute(f"SELECT pg_try_advisory_lock({key})")).fetchone() == (True,):
                    break
                await asyncio.sleep(0.05)
            await other.execute(f"SELECT pg_advisory_unlock({key})")
            assert "killed" in await schemas(database)
            cases = PostgresCases(database)
            rows = await cases.open("mine")
            assert await schemas(database) == {"living", "unowned", "elsewhere", "held", "mine"}
            with pytest.raises(StoreError, match="is in use"):
                await cases.open("mine")
            await rows.close()
        assert await PostgresCases(database).sweep() == ["evalfleet_cases_held"]
        living.communicate("")
        assert await PostgresCases(database).sweep() == ["evalfleet_cases_living"]
    finally:
        for process in (living, killed):
            process.kill()
            process.communicate()


async def test_a_connection_that_breaks_is_made_again_and_holds_what_it_held(database: str) -> None:
    cases = PostgresCases(database)
    rows = await cases.open("one")
    async with await connect(database, autocommit=True) as other:
        others = "pid <> pg_backend_pid() AND datname = current_database()"
        await other.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
        with pytest.raises(StoreError):
            await rows.read()
        assert list(await rows.read()) == []
        held = "SELECT pg_try_advisory_lock(hashtextextended('evalfleet_cases_one', 0))"
        assert await (await other.execute(held)).fetchone() == (False,)
        await rows.close()
        assert await (await other.execute(held)).fetchone() == (True,)


async def test_a_slow_tool_of_one_lane_blocks_no_other(database: str) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    @pack_tool(mutating=True)
    async def wait(cases: Cases) -> str:
        entered.set()
        await go_on.wait()
        return cases.add("letters", {"id": "L-9", "text": "late"})["id"]

    own, row = pack(backend=PostgresCases(database), tools=[*pack().tools, wait]), assignment()
    async with (
        own.world("slow", "1", row, FakeClock()) as (slow, _),
        own.world("quick", "2", row, FakeClock()) as (quick, _),
    ):
        waiting = asyncio.create_task(slow.call("wait", {}))
        await entered.wait()
        async with asyncio.timeout(10):
            for _ in range(5):
                await quick.call("ask", {"items": [], "message": "now"})
            assert len((await quick.state()).records("letters")) == 5
        assert not waiting.done()
        go_on.set()
        assert await waiting == "L-9"
        assert [each["id"] for each in (await slow.state()).records("letters")] == ["L-9"]
