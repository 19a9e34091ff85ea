"""Case stores as SQLite files, where attempts begin at the same time."""

from __future__ import annotations

import asyncio

from evalfleet.taskpacks.sqlite_cases import SqliteCases

ROUNDS, TOGETHER = 60, 8


async def test_the_first_attempts_of_a_process_share_one_folder() -> None:
    async def restored(cases: SqliteCases, name: str) -> bool:
        rows = await cases.open(name)
        await cases.keep("snapshot", [("files", "1", "{}")])
        found = await rows.restore("snapshot")
        await rows.close()
        return found

    for _ in range(ROUNDS):
        cases = SqliteCases()
        assert all(await asyncio.gather(*(restored(cases, f"attempt-{number}") for number in range(TOGETHER))))
