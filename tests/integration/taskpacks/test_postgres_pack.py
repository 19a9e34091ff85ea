"""Attempts of a pack whose records are in Postgres, beside each other."""

from __future__ import annotations

import asyncio
from typing import Any

from evalfleet.store.case_schemas import PostgresCases
from evalfleet.store.connection import connect
from evalfleet.taskpacks.pack_run import Work
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
