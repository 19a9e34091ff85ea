"""The coordinator's side: claims, fenced commits, settlements, pages."""

from __future__ import annotations

from evalfleet.store.connection import connect
from tests.integration.store.samples import batch, evidence, started


async def counted(url: str, table: str) -> int:
    async with await connect(url) as connection:
        row = await (await connection.execute(f"SELECT count(*) FROM {table}".encode())).fetchone()
        assert row is not None
        return row[0]


async def test_a_commit_stores_settles_and_counts(database: str) -> None:
    run, recorder = await started(database)
    done = await recorder.commit(batch(run.run_key, evidence(101, 0), evidence(102, 1)))
    assert done.inserted == done.settled == {101, 102}
    assert await counted(database, "attempts") == await counted(database, "assertions") == 2
    page = await recorder.page(-1, 10)
    assert [pending.case.ordinal for pending in page] == [2]
    await recorder.close()


async def test_a_batch_committed_twice_does_nothing_the_second_time(database: str) -> None:
    run, recorder = await started(database)
    first = batch(run.run_key, evidence(101, 0))
    await recorder.commit(first)
    again = await recorder.commit(first)
    assert not again.inserted and not again.settled
    assert again.commit_seq == 2
    await recorder.close()
