"""Lost connections, restarts, failovers and kills: nothing committed is lost, nothing counts twice."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from evalfleet.errors import Fenced, StoreError
from evalfleet.model.record import CommitBatch, SettleWithout
from evalfleet.model.verdict import Settlement
from evalfleet.settings import Settings
from evalfleet.store.embedded import embedded
from evalfleet.store.schema import ensure_schema
from evalfleet.store.writer import PostgresRecorder
from tests.integration.store.samples import ME, batch, evidence, ignore, priced, started
from tests.integration.store.sql import execute, one, rows

KILL_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


class Interference:
    """A failpoint that runs `act` in another thread when `place` is passed for the first time."""

    def __init__(self, url: str, place: str, statement: str) -> None:
        self._url = url
        self._place = place
        self._statement = statement
        self.happened = False

    def __call__(self, place: str) -> None:
        if place == self._place and not self.happened:
            self.happened = True
            import psycopg

            with psycopg.connect(self._url, autocommit=True) as connection:
                connection.execute(self._statement.encode())


async def interfered(url: str, place: str, statement: str = KILL_OTHERS) -> tuple[int, PostgresRecorder, Interference]:
    run, first = await started(url)
    await first.close()
    interference = Interference(url, place, statement)
    recorder = PostgresRecorder(url, "r1", interference)
    await recorder.claim(ME, takeover=False)
    return run.run_key, recorder, interference


@pytest.mark.parametrize("place", ["before_copy", "after_copy"])
async def test_a_connection_that_breaks_inside_a_commit_is_opened_again(database: str, place: str) -> None:
    run, recorder, interference = await interfered(database, place)
    done = await recorder.commit(batch(run, priced(101, 0, 1.0)))
    assert interference.happened
    assert done.settled == {101} and done.commit_seq == 1
    assert await one(database, "SELECT attempts, spent_usd, commit_seq FROM runs") == (1, 1.0, 1)
    await recorder.close()


async def test_a_commit_whose_reply_was_lost_is_recalled_not_repeated(database: str) -> None:
    """The server commits, the client never hears of it: what is returned is what that commit did."""
    run, recorder, _ = await interfered(database, "never")
    await recorder.commit(batch(run, evidence(101, 0)))
    lossy = LosesReply(recorder)
    asked = CommitBatch(
        batch(run, evidence(101, 0), priced(102, 0, 1.0), priced(103, 1, 2.0)).attempts,
        settled=(SettleWithout(2, Settlement.BLOCKED, code="X"),),
    )
    with lossy:
        done = await recorder.commit(asked)
    assert lossy.lost == 1
    assert done.commit_seq == 2
    assert done.inserted == {102, 103} and done.settled == {103} and done.settled_cases == {2}
    assert await one(database, "SELECT attempts, spent_usd, commit_seq FROM runs") == (3, 3.0, 2)
    assert (await recorder.commit(batch(run, evidence(104, 1)))).commit_seq == 3
    await recorder.close()


class LosesReply:
    """Breaks the recorder's connection right after its next commit took effect."""

    def __init__(self, recorder: PostgresRecorder) -> None:
        self._recorder = recorder
        self.lost = 0

    def __enter__(self) -> LosesReply:
        import psycopg

        from evalfleet.store import writer

        real = writer.apply

        async def lossy(*given: object) -> object:
            done = await real(*given)  # type: ignore[arg-type]
            if not self.lost:
                self.lost += 1
                raise psycopg.OperationalError("server closed the connection unexpectedly")
            return done

        self._restore = lambda: setattr(writer, "apply", real)
        writer.apply = lossy  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()


async def test_commits_that_a_failover_lost_are_replayed_under_a_higher_epoch(database: str) -> None:
    """An asynchronous standby took over: our last two commits, and our claim, never reached it."""
    run, recorder, _ = await interfered(database, "never")
    await recorder.commit(batch(run, priced(101, 0, 1.0)))
    await recorder.commit(batch(run, priced(102, 1, 2.0)))
    await recorder.commit(batch(run, evidence(103, 1)))
    await execute(
        database,
        """
        UPDATE runs SET epoch = 1, commit_seq = 1, attempts = 1, spent_usd = 1, tokens = 15, holder = NULL;
        DELETE FROM attempts WHERE attempt > 101; DELETE FROM assertions WHERE attempt > 101;
        DELETE FROM settlements WHERE ordinal = 1;
        UPDATE case_blocks SET unsettled = 2
        """,
    )
    await execute(database, KILL_OTHERS)
    done = await recorder.commit(batch(run, evidence(104, 2)))
    assert (done.commit_seq, done.epoch, done.settled) == (4, 3, {104})
    assert recorder.epoch == 3
    assert await rows(database, "SELECT attempt, outcome::text FROM attempts ORDER BY 1") == [
        (101, "completed"),
        (102, "completed"),
        (103, "superseded"),
        (104, "completed"),
    ]
    assert await one(database, "SELECT epoch, holder, spent_usd, attempts FROM runs") == (3, "actor-1", 3.0, 4)
    assert await one(database, "SELECT unsettled FROM case_blocks") == (0,)
    await recorder.close()


async def test_a_failover_that_lost_more_than_is_kept_stops_the_coordinator(database: str) -> None:
    run, recorder, _ = await interfered(database, "never")
    await recorder.commit(batch(run, evidence(101, 0)))
    await recorder.close()
    again = PostgresRecorder(database, "r1", ignore)
    await again.claim(ME, takeover=False)  # knows of commit 1, but keeps no batch of it
    await execute(database, "UPDATE runs SET commit_seq = 0")
    await execute(database, KILL_OTHERS)
    with pytest.raises(StoreError, match="lost commits 1 to 1"):
        await again.commit(batch(run, evidence(102, 1)))
    await again.close()


async def test_a_coordinator_that_was_replaced_during_an_outage_is_fenced(database: str) -> None:
    run, recorder, _ = await interfered(database, "never")
    await execute(database, "UPDATE runs SET epoch = 9, holder = 'other'")
    await execute(database, KILL_OTHERS)
    with pytest.raises(Fenced):
        await recorder.commit(batch(run, evidence(101, 0)))
    assert await one(database, "SELECT count(*) FROM attempts") == (0,)
    await recorder.close()


async def test_a_store_that_stays_away_is_an_error_after_the_patience(tmp_path: Path) -> None:
    absent = f"postgresql://nobody@/none?host={tmp_path}"
    recorder = PostgresRecorder(absent, "r1", ignore, patience=0.2)
    with pytest.raises(StoreError, match="cannot be used"):
        await recorder.beat({})
    await recorder.close()


# --- the server itself ----------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def own_server(tmp_path: Path) -> AsyncGenerator[tuple[str, Path]]:
    state = tmp_path / "state"
    async with embedded(Settings(state_dir=state, artifacts="")) as url:
        await ensure_schema(url)
        yield url, state / "postgres"


def server_pid(directory: Path) -> int:
    return int((directory / "data" / "postmaster.pid").read_text().split("\n", 1)[0])


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL], ids=["restart", "crash", "kill"])
async def test_commits_go_on_after_the_server_was_stopped_under_them(tmp_path: Path, how: signal.Signals) -> None:
    import os

    async with own_server(tmp_path) as (url, directory):
        run, recorder = await started(url, cases=40)
        done: set[int] = set()
        for case in range(40):
            if case == 20:
                os.kill(server_pid(directory), how)
            done |= (await recorder.commit(batch(run.run_key, priced(100 + case, case, 0.5)))).settled
        assert done == {100 + case for case in range(40)}
        assert await one(url, "SELECT attempts, spent_usd, commit_seq FROM runs") == (40, 20.0, 40)
        assert await one(url, "SELECT count(*) FROM settlements") == (40,)
        await recorder.close()


# --- kill -9 --------------------------------------------------------------------------------------------------

_COORDINATOR = """
import asyncio, sys
from evalfleet.store.failpoints import Failpoints
from evalfleet.store.writer import PostgresRecorder
from tests.integration.store.samples import ME, batch, priced

async def main():
    recorder = PostgresRecorder(sys.argv[1], "r1", Failpoints(sys.argv[2]))
    claim = await recorder.claim(ME, takeover=False)
    for case in range(3):
        await recorder.commit(batch(claim.run_key, priced(100 + case, case, 1.0)))
    await recorder.close()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("armed", "survives"),
    [("during_claim", 0), ("before_copy:2", 1), ("after_copy:2", 1), ("after_commit:2", 2)],
)
async def test_a_killed_coordinator_leaves_whole_commits_only(database: str, armed: str, survives: int) -> None:
    _, first = await started(database)
    await first.close()
    killed = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", _COORDINATOR, database, armed], check=False, timeout=60
    )
    assert killed.returncode == -signal.SIGKILL
    assert await one(database, "SELECT attempts, spent_usd FROM runs") == (survives, float(survives))
    for table in ("attempts", "assertions", "settlements"):
        assert await one(database, f"SELECT count(*) FROM {table}") == (survives,)
    again = PostgresRecorder(database, "r1", ignore)
    claim = await again.claim(ME, takeover=False)
    assert (claim.settled, claim.commit_seq) == (survives, survives)
    assert [pending.case.ordinal for pending in await again.page(-1, 9)] == list(range(survives, 3))
    await again.close()
