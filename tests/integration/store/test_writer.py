"""The coordinator's side: claims, fenced commits, settlements, pages, heartbeat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from evalfleet.errors import ConfigurationError, FailureKind, Fenced, RunHeld
from evalfleet.model.ids import sha256
from evalfleet.model.record import (
    AttemptWrite,
    CommitBatch,
    EncodedRows,
    Intent,
    IntentKind,
    LostAttempt,
    SettleWithout,
)
from evalfleet.model.verdict import Outcome, Settlement, Verdict
from evalfleet.ports import Holder
from evalfleet.store import write_sql
from evalfleet.store.connection import connect
from evalfleet.store.creation import create_run
from evalfleet.store.rows import encode_attempt
from evalfleet.store.writer import PostgresRecorder
from tests.integration.store.samples import (
    ME,
    OTHER,
    a_run,
    batch,
    errored,
    evidence,
    ignore,
    priced,
    started,
)
from tests.integration.store.sql import execute, one, rows


def lost(attempt: int, case: int, *, blamed: bool = False) -> LostAttempt:
    return LostAttempt(attempt, case, "w1", FailureKind.WORKER, "WORKER_DIED", 1_760_000_000.0, blamed)


def give_up(case: int, attempt: int) -> CommitBatch:
    quarantined = SettleWithout(case, Settlement.ATTEMPT, Verdict.ERRORED, None, None, attempt)
    return CommitBatch(settled=(quarantined,))


async def second(url: str, run: str = "r1", holder: Holder = OTHER, **how: Any) -> PostgresRecorder:
    """Another coordinator that claims the run."""
    recorder = PostgresRecorder(url, run, ignore)
    try:
        await recorder.claim(holder, **{"takeover": False, **how})
    except BaseException:
        await recorder.close()
        raise
    return recorder


async def fall_silent(url: str, seconds: float) -> None:
    await execute(url, f"UPDATE runs SET beat = clock_timestamp() - interval '{seconds} s'")


async def counters(url: str) -> dict[str, Any]:
    names = ("attempts", "failures", "tokens", "spent_usd", "unknown_cost", "commit_seq")
    return dict(zip(names, await one(url, f"SELECT {', '.join(names)} FROM runs"), strict=True))


# --- commit ---------------------------------------------------------------------------------------------------


async def test_a_commit_stores_settles_and_counts(database: str) -> None:
    run, recorder = await started(database)
    done = await recorder.commit(batch(run.run_key, priced(101, 0, 0.25), evidence(102, 1)))
    assert done.inserted == done.settled == {101, 102}
    assert [pending.case.ordinal for pending in await recorder.page(-1, 10)] == [2]
    assert await one(database, "SELECT count(*) FROM assertions") == (2,)
    assert await counters(database) == {
        "attempts": 2,
        "failures": 0,
        "tokens": 15,
        "spent_usd": 0.25,
        "unknown_cost": 1,
        "commit_seq": 1,
    }
    await recorder.close()


async def test_a_batch_committed_twice_does_nothing_the_second_time(database: str) -> None:
    run, recorder = await started(database)
    twice = batch(run.run_key, priced(101, 0, 0.25), errored(102, 1))
    everything = replace(twice, lost=(lost(103, 2),), settled=(SettleWithout(2, Settlement.BLOCKED, code="X"),))
    await recorder.commit(everything)
    before = await counters(database)
    again = await recorder.commit(everything)
    assert (again.inserted, again.settled, again.settled_cases) == (frozenset(), frozenset(), frozenset())
    assert await counters(database) == {**before, "commit_seq": 2}
    assert await one(database, "SELECT count(*) FROM attempts") == (3,)
    assert await one(database, "SELECT count(*) FROM assertions") == (2,)
    await recorder.close()


@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "one after the other"])
async def test_the_first_attempt_settles_and_the_other_only_costs(database: str, together: bool) -> None:
    run, recorder = await started(database)
    first, later = priced(101, 0, 1.0), priced(102, 0, 2.0, verdict=Verdict.FAILED)
    if together:
        done = await recorder.commit(batch(run.run_key, first, later))
        assert done.settled == {101} and done.inserted == {101, 102}
    else:
        await recorder.commit(batch(run.run_key, first))
        done = await recorder.commit(batch(run.run_key, later))
        assert not done.settled and done.inserted == {102}
    assert await rows(database, "SELECT attempt, number, outcome::text, settles FROM attempts ORDER BY 1") == [
        (101, 1, "completed", True),
        (102, 2, "superseded", False),
    ]
    assert await rows(database, "SELECT attempt, verdict::text FROM settlements") == [(101, "passed")]
    assert (await counters(database))["spent_usd"] == 3.0
    await recorder.close()


async def test_an_attempt_that_need_not_settle_leaves_its_case_open(database: str) -> None:
    run, recorder = await started(database)
    done = await recorder.commit(batch(run.run_key, errored(101, 0), settles=False))
    assert not done.settled and done.inserted == {101}
    pending = (await recorder.page(-1, 10))[0]
    assert (pending.case.ordinal, pending.attempts, pending.crashes, pending.lost) == (0, 1, 0, 0)
    assert pending.last_attempt == 101
    await recorder.close()


async def test_an_excused_attempt_does_not_count_for_its_case(database: str) -> None:
    run, recorder = await started(database)
    failed = batch(run.run_key, errored(101, 0), errored(102, 0), errored(103, 1), settles=False).attempts
    excused = tuple(replace(write, excused=write.sealed.attempt == 102) for write in failed)
    await recorder.commit(CommitBatch(excused))
    assert [(each.case.ordinal, each.attempts) for each in await recorder.page(-1, 10)] == [(0, 1), (1, 1), (2, 0)]
    await recorder.close()


async def test_lost_leases_become_rows_that_survive_a_restart(database: str) -> None:
    run, recorder = await started(database)
    await recorder.commit(CommitBatch(lost=(lost(101, 0), lost(102, 0, blamed=True), lost(103, 1, blamed=True))))
    crashed = errored(104, 1, FailureKind.WORKER, "WORKER_CRASHED")
    await recorder.commit(batch(run.run_key, crashed, settles=False))
    pages = await recorder.page(-1, 2)
    assert [(p.attempts, p.crashes, p.lost, p.last_attempt) for p in pages] == [(0, 1, 1, 102), (1, 2, 0, 104)]
    assert await rows(database, "SELECT attempt, number, arm FROM attempts ORDER BY 1") == [
        (101, 1, 0),
        (102, 2, 0),
        (103, 1, 0),
        (104, 2, 0),
    ]
    assert (await counters(database))["unknown_cost"] == 4
    await recorder.close()


async def test_a_case_given_up_is_settled_by_its_lost_attempt(database: str) -> None:
    run, recorder = await started(database)
    await recorder.commit(CommitBatch(lost=(lost(101, 0, blamed=True),)))
    done = await recorder.commit(give_up(0, 101))
    assert done.settled_cases == {0}
    assert await rows(database, "SELECT attempt, verdict::text, kind::text, code FROM settlements") == [
        (101, "errored", "worker", "WORKER_DIED")
    ]
    assert (await counters(database))["failures"] == 1
    late = await recorder.commit(batch(run.run_key, evidence(102, 0)))
    assert not late.settled
    await recorder.close()


async def test_a_row_that_postgres_refuses_leaves_the_rest_of_its_batch(database: str) -> None:
    run, recorder = await started(database, cases=9)
    writes = list(batch(run.run_key, *(evidence(100 + case, case) for case in range(9))).attempts)
    whole = writes[4].sealed
    writes[4] = replace(writes[4], sealed=replace(whole, rows=EncodedRows(whole.rows.attempt[:-20])))
    cased = encode_attempt(evidence(107, 4_000), run.run_key)  # no such case: its arm is unknown
    writes[7] = AttemptWrite(cased, "w1", True)
    done = await recorder.commit(CommitBatch(tuple(writes)))
    assert done.rejected == {104, 107}
    assert done.settled == done.inserted == {100, 101, 102, 103, 105, 106, 108}
    await recorder.close()


async def test_what_a_worker_says_of_another_run_is_refused(database: str) -> None:
    run, recorder = await started(database)
    await create_run(database, a_run(id="r2"))
    done = await recorder.commit(batch(run.run_key + 1, evidence(101, 0)))
    assert done.rejected == {101}
    assert await one(database, "SELECT count(*) FROM attempts") == (0,)
    await recorder.close()


# --- claims ---------------------------------------------------------------------------------------------------


async def test_a_claimed_run_is_refused_with_who_holds_it(database: str) -> None:
    _, recorder = await started(database)
    await fall_silent(database, 7)
    for takeover in (False, True):
        with pytest.raises(RunHeld, match=r"run r1 is held by process 11 on here \(last beat 7 s ago\)"):
            await second(database, takeover=takeover)
    await recorder.close()


async def test_a_silent_coordinator_is_taken_over_only_by_a_resume(database: str) -> None:
    _, recorder = await started(database)
    await fall_silent(database, 16)
    with pytest.raises(RunHeld):
        await second(database, takeover=False)
    other = await second(database, takeover=True)
    assert other.epoch == 2
    await other.close()
    await recorder.close()


async def test_steal_takes_a_run_at_once(database: str) -> None:
    _, recorder = await started(database)
    other = await second(database, takeover=True, steal=True)
    assert other.epoch == 2
    await other.close()
    await recorder.close()


async def test_a_restarted_coordinator_reclaims_at_once(database: str) -> None:
    _, recorder = await started(database)
    again = await second(database, holder=ME)
    assert again.epoch == 2
    await again.close()
    await recorder.close()


async def test_a_stopped_coordinator_that_wakes_up_is_fenced(database: str) -> None:
    run, zombie = await started(database)
    await fall_silent(database, 16)
    other = await second(database, takeover=True)
    with pytest.raises(Fenced):
        await zombie.commit(batch(run.run_key, evidence(101, 0)))
    with pytest.raises(Fenced):
        await zombie.finish("completed", None)
    assert await zombie.beat({}) is False
    assert await one(database, "SELECT count(*) FROM attempts") == (0,)
    assert (await other.commit(batch(run.run_key, evidence(102, 0)))).settled == {102}
    await other.close()
    await zombie.close()


async def test_a_claim_reports_what_stands(database: str) -> None:
    run, recorder = await started(database, cases=5)
    opened = (Intent(101, 0, "w1", IntentKind.LEASE), Intent(102, 1, "w1", IntentKind.EXTERNAL))
    await recorder.commit(CommitBatch(intents=(*opened, Intent(103, 2, "w1", IntentKind.LEASE))))
    await recorder.commit(replace(batch(run.run_key, priced(103, 2, 0.5), errored(104, 3)), closed_intents=(103,)))
    again = PostgresRecorder(database, "r1", ignore)
    claim = await again.claim(ME, takeover=False)
    assert (claim.epoch, claim.commit_seq, claim.total, claim.settled) == (2, 2, 5, 2)
    assert (claim.failures, claim.spent_usd) == (1, 0.5)
    assert [(i.attempt, i.case, i.worker, i.kind) for i in claim.open_intents] == [
        (101, 0, "w1", IntentKind.LEASE),
        (102, 1, "w1", IntentKind.EXTERNAL),
    ]
    assert [(each.arm, each.kind, each.code) for each in claim.recent] == [
        ("small", None, None),
        ("small", FailureKind.PROVIDER, "BOOM"),
    ]
    await again.close()
    await recorder.close()


async def test_a_lost_attempt_closes_its_intent(database: str) -> None:
    _, recorder = await started(database)
    await recorder.commit(CommitBatch(intents=(Intent(101, 0, "w1", IntentKind.LEASE),)))
    await recorder.commit(CommitBatch(lost=(lost(101, 0),)))
    assert await one(database, "SELECT count(*) FROM intents WHERE closed_at IS NULL") == (0,)
    await recorder.close()


async def test_a_run_that_does_not_exist_is_named(database: str) -> None:
    with pytest.raises(ConfigurationError, match="there is no run nope"):
        await second(database, "nope")


@pytest.mark.parametrize("status", ["completed", "cancelled", "limited"])
async def test_an_ended_run_is_claimed_only_by_a_resume(database: str, status: str) -> None:
    _, recorder = await started(database)
    await recorder.finish(status, "because")
    assert await one(database, "SELECT status::text, stop_reason, holder FROM runs") == (status, "because", None)
    with pytest.raises(RunHeld, match=f"run r1 is {status}"):
        await second(database, holder=ME)
    resumed = await second(database, takeover=True)
    assert await one(database, "SELECT status::text, stop_reason, finished_at FROM runs") == ("running", None, None)
    await resumed.close()
    await recorder.close()


# --- pages, beat, cancel --------------------------------------------------------------------------------------


async def test_pages_read_unsettled_cases_in_order(database: str) -> None:
    run, recorder = await started(database, cases=2500)
    done = batch(run.run_key, *(evidence(10_000 + case, case) for case in range(2500) if case not in (3, 1500, 2499)))
    await recorder.commit(done)
    assert [p.case.ordinal for p in await recorder.page(-1, 2)] == [3, 1500]
    assert [p.case.ordinal for p in await recorder.page(3, 10)] == [1500, 2499]
    assert [p.case.ordinal for p in await recorder.page(2499, 10)] == []
    await recorder.close()


async def test_a_page_returns_cases_as_they_were_planned(database: str) -> None:
    _, recorder = await started(database)
    planned = [case for case, _ in a_run().cases]
    assert [pending.case for pending in await recorder.page(-1, 10)] == planned
    await recorder.close()


async def test_cancelling_is_seen_and_outlives_a_restart_but_not_a_resume(database: str) -> None:
    _, recorder = await started(database)
    assert await recorder.cancel_requested() is False
    await execute(database, "UPDATE runs SET cancel_requested_at = now()")
    assert await recorder.cancel_requested() is True
    again = await second(database, holder=ME)
    assert await again.cancel_requested() is True
    resumed = await second(database, takeover=True, steal=True)
    assert await resumed.cancel_requested() is False
    for each in (recorder, again, resumed):
        await each.close()


async def test_a_superseded_row_keeps_what_it_found(database: str) -> None:
    run, recorder = await started(database)
    await recorder.commit(batch(run.run_key, evidence(101, 0)))
    await recorder.commit(batch(run.run_key, errored(102, 0)))
    stored = await one(database, "SELECT outcome::text, verdict::text, kind::text FROM attempts WHERE attempt = 102")
    assert stored == (Outcome.SUPERSEDED, Verdict.ERRORED, FailureKind.PROVIDER)
    await recorder.close()


# --- plans ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "given"),
    [
        (write_sql.WRITE_ATTEMPTS, {"commit_seq": 1}),
        (write_sql.PAGE, {"after": -1, "limit": 100}),
    ],
    ids=["write", "page"],
)
async def test_without_statistics_every_case_is_still_found_by_its_ordinal(
    database: str, statement: bytes, given: dict[str, int]
) -> None:
    """Tables that were empty a minute ago have no statistics; a plan over a whole run would make it quadratic."""
    async with await connect(database, autocommit=True) as connection:
        await connection.execute(write_sql.SESSION, prepare=False)
        await connection.execute(write_sql.STAGING, prepare=False)
        cursor = await connection.execute(b"EXPLAIN (FORMAT JSON) " + statement, {"run_key": 1, **given})
        row = await cursor.fetchone()
    assert row is not None
    scans = [
        node for node in walk(row[0][0]["Plan"]) if node.get("Relation Name") in ("cases", "attempts", "settlements")
    ]
    scans = [node for node in scans if "Scan" in node["Node Type"]]
    assert len(scans) >= 3
    for node in scans:
        assert "ordinal" in node.get("Index Cond", ""), node


def walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from walk(child)


async def test_what_commits_staged_takes_no_room_for_long(database: str) -> None:
    run, recorder = await started(database, 300)
    text = "".join(sha256(b"%d" % part) for part in range(60))  # 3,840 characters that don't compress
    for first in range(0, 300, 10):
        attempts = [evidence(case + 1, case, message=text) for case in range(first, first + 10)]
        assert len((await recorder.commit(batch(run.run_key, *attempts))).inserted) == 10
    staged = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relname LIKE 'stage\\_%' AND relkind = 'r'"
    (room,) = await one(database, staged)
    assert room < 600_000, "all of the commits staged twice of that"
    await recorder.close()
