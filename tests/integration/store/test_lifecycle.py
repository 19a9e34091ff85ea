"""What people do to runs: cancel, reopen, delete; and what later runs find of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evalfleet.errors import ConfigurationError, DefinitionError, Fenced, RunHeld, StoreError
from evalfleet.model.events import Message, Role
from evalfleet.model.ids import sha256
from evalfleet.model.record import AttemptEvidence, CommitBatch, SettleWithout
from evalfleet.model.verdict import CaseStatus, RunKind, RunStatus, Settlement, Verdict
from evalfleet.store.artifacts import FileArtifacts
from evalfleet.store.connection import connect
from evalfleet.store.creation import create_run
from evalfleet.store.history import resembling, settled_before, unfinished_run
from evalfleet.store.lifecycle import delete_old_tries, delete_run, reopen, request_cancel
from evalfleet.store.planned import PlannedDataset, Presettled
from evalfleet.store.reader import Reader
from evalfleet.store.rows import EvidenceEncoder
from evalfleet.store.writer import PostgresRecorder
from tests.integration.store.samples import (
    ME,
    a_case,
    a_run,
    batch,
    errored,
    evidence,
    ignore,
    priced,
    resumed,
    started,
)
from tests.integration.store.sql import execute, one, rows

FINGERPRINT = sha256(b"fingerprint 0")


@pytest.fixture
def artifacts(tmp_path: Path) -> FileArtifacts:
    return FileArtifacts(str(tmp_path / "artifacts"))


async def settle(url: str, run: str, *attempts: AttemptEvidence, **changes: object) -> None:
    """A finished run with these attempts."""
    made = await create_run(url, replace(a_run(), id=run, **changes))
    recorder = PostgresRecorder(url, run, ignore)
    await recorder.claim(ME, takeover=False)
    await recorder.commit(batch(made.run_key, *attempts))
    await recorder.finish("completed", None)
    await recorder.close()


def carried(run: str, attempt: int) -> Presettled:
    return Presettled(how=Settlement.CARRIED, verdict=Verdict.PASSED, from_run=run, from_attempt=attempt)


# --- creation -------------------------------------------------------------------------------------------------


async def test_the_same_request_makes_one_run(database: str) -> None:
    first = await create_run(database, a_run(idempotency_key="request 1"))
    again = await create_run(database, a_run(id="r2", idempotency_key="request 1"))
    other = await create_run(database, a_run(id="r3", idempotency_key="request 2"))
    assert (first.created, again.created, other.created) == (True, False, True)
    assert again.id == "r1" and again.run_key == first.run_key
    assert await one(database, "SELECT count(*) FROM cases") == (6,)


async def test_a_taken_id_and_a_broken_plan_leave_nothing(database: str) -> None:
    await create_run(database, a_run())
    with pytest.raises(StoreError, match="already holds a run r1"):
        await create_run(database, a_run())
    with pytest.raises(DefinitionError, match="UNSTORABLE"):
        await create_run(database, replace(a_run(id="r2"), cases=[(a_case(0, eval_id="nul \0"), None)]))
    with pytest.raises(ValueError, match="case 1 stands where ordinal 0 was due"):
        await create_run(database, replace(a_run(id="r3"), cases=[(a_case(1), None)]))
    assert await rows(database, "SELECT id FROM runs") == [("r1",)]


async def test_long_ids_differ_however_long_they_are(database: str) -> None:
    """A unique index on long text fails only for what doesn't compress; nothing of ours has one."""
    noise = "".join(sha256(b"%d" % n) for n in range(60))
    cases = [a_case(0, eval_id=noise + "1", tags=(noise,)), a_case(1, eval_id=noise + "2", variants={"v": noise})]
    await create_run(
        database, replace(a_run(idempotency_key=noise, name=noise), cases=[(case, None) for case in cases])
    )
    recorder = PostgresRecorder(database, "r1", ignore)
    await recorder.claim(ME, takeover=False)
    assert [pending.case for pending in await recorder.page(-1, 9)] == cases
    await recorder.close()


async def test_datasets_are_recorded(database: str) -> None:
    dataset = PlannedDataset(definition="sql", uri="file:rows.jsonl", revision=None, sha256=sha256(b"d"), rows=2**33)
    await create_run(database, a_run(datasets=(dataset,)))
    assert await one(database, "SELECT uri, rows FROM datasets") == ("file:rows.jsonl", 2**33)


# --- reopening ------------------------------------------------------------------------------------------------


async def test_reopening_keeps_who_when_why_and_what_was(database: str) -> None:
    blocked = SettleWithout(2, Settlement.BLOCKED, code="X")
    run, recorder = await started(database, cases=4)
    await recorder.commit(replace(batch(run.run_key, errored(101, 0), evidence(102, 1)), settled=(blocked,)))
    await recorder.finish("completed", None)
    await recorder.close()
    assert await reopen(database, "r1", (CaseStatus.ERRORED, CaseStatus.BLOCKED), who="ann", why="outage") == 2
    assert await rows(database, "SELECT who, why, retry, cases FROM reopenings") == [
        ("ann", "outage", "errored,blocked", 2)
    ]
    assert await rows(
        database, "SELECT ordinal, how::text, superseded_at IS NULL, reopening FROM settlements ORDER BY ordinal"
    ) == [(0, "attempt", False, 1), (1, "attempt", True, None), (2, "blocked", False, 1)]
    assert await one(database, "SELECT status::text, failures FROM runs") == ("queued", 0)
    again = await resumed(database)
    assert [pending.case.ordinal for pending in await again.page(-1, 9)] == [0, 2, 3]
    await again.commit(batch(run.run_key, errored(201, 0)))
    await again.finish("completed", None)
    await again.close()
    assert await reopen(database, "r1", (CaseStatus.ERRORED,), who="bob", why="again") == 1
    assert await one(database, "SELECT max(reopening), count(*) FROM reopenings") == (2, 2)


async def test_reopening_nothing_changes_nothing(database: str) -> None:
    await settle(database, "r1", evidence(101, 0))
    assert await reopen(database, "r1", (CaseStatus.ERRORED,), who="ann", why="") == 0
    assert await one(database, "SELECT status::text FROM runs") == ("completed",)
    assert await rows(database, "SELECT * FROM reopenings") == []


async def test_a_run_at_work_is_not_reopened(database: str) -> None:
    _, recorder = await started(database)
    with pytest.raises(RunHeld):
        await reopen(database, "r1", (CaseStatus.FAILED,), who="ann", why="")
    with pytest.raises(ConfigurationError, match="passed cases can't be retried"):
        await reopen(database, "r1", (CaseStatus.PASSED,), who="ann", why="")
    await recorder.close()


async def test_an_old_attempt_that_arrives_again_does_not_settle_a_reopened_case(database: str) -> None:
    run, recorder = await started(database)
    late = batch(run.run_key, errored(101, 0))
    await recorder.commit(late)
    await recorder.finish("completed", None)
    await recorder.close()
    await reopen(database, "r1", (CaseStatus.ERRORED,), who="ann", why="")
    again = await resumed(database)
    done = await again.commit(late)
    assert not done.inserted and not done.settled
    assert [pending.case.ordinal for pending in await again.page(-1, 9)] == [0, 1, 2]
    await again.close()


async def test_cancelling_reaches_only_a_run_that_has_not_ended(database: str) -> None:
    _, recorder = await started(database)
    assert await request_cancel(database, "r1") is True
    assert await recorder.cancel_requested() is True
    await recorder.finish("cancelled", None)
    await recorder.close()
    assert await request_cancel(database, "r1") is False


# --- history --------------------------------------------------------------------------------------------------


async def past(url: str, project: str = "shop", repetition: int = 0) -> tuple[str, str, str | None] | None:
    async with await connect(url) as connection:
        found = await settled_before(connection, project, [(FINGERPRINT, repetition), (sha256(b"unknown"), 0)])
    if not found:
        return None
    (result,) = found.values()
    return result.run, result.how.value, None if result.verdict is None else result.verdict.value


async def test_the_latest_run_that_settled_a_fingerprint_counts_even_when_it_failed(database: str) -> None:
    assert await past(database) is None
    await settle(database, "r1", evidence(101, 0))
    assert await past(database) == ("r1", "attempt", "passed")
    await settle(database, "r2", evidence(101, 0, verdict=Verdict.FAILED))
    assert await past(database) == ("r2", "attempt", "failed"), "never an older pass"
    await create_run(database, a_run(id="r3"))
    assert await past(database) == ("r2", "attempt", "failed"), "a run that settled nothing is no answer"


async def test_history_never_crosses_projects_tries_repetitions_and_deleted_runs(database: str) -> None:
    await settle(database, "r1", evidence(101, 0))
    await settle(database, "t1", evidence(101, 0, verdict=Verdict.FAILED), kind=RunKind.TRY)
    await settle(database, "o1", evidence(101, 0, verdict=Verdict.FAILED), project="other")
    assert await past(database) == ("r1", "attempt", "passed")
    assert await past(database, "none") is None
    assert await past(database, repetition=1) is None
    await execute(database, "UPDATE runs SET deleted_at = now() WHERE id = 'r1'")
    assert await past(database) is None


async def test_a_carried_result_names_the_run_that_executed_it(database: str) -> None:
    await settle(database, "r1", evidence(101, 0))
    await create_run(database, a_run(id="r2", cases=[(a_case(0), carried("r1", 101))]))
    async with await connect(database) as connection:
        found = (await settled_before(connection, "shop", [(FINGERPRINT, 0)]))[FINGERPRINT, 0]
        assert (found.run, found.how, found.executed_by, found.attempt) == ("r2", Settlement.CARRIED, "r1", 101)
        alike = await resembling(connection, "shop", "sweep")
        assert alike["small", "sql/0000", 0].executed_by == "r1"


async def test_an_unfinished_run_of_the_same_definitions_is_found(database: str) -> None:
    run, recorder = await started(database)
    await recorder.commit(batch(run.run_key, evidence(101, 0)))
    async with await connect(database, autocommit=True) as connection:
        found = await unfinished_run(connection, "shop", a_run().digest)
        assert found is not None and (found.id, found.settled, found.total) == ("r1", 1, 3)
        assert await unfinished_run(connection, "shop", "another digest") is None
        await recorder.finish("completed", None)
        assert await unfinished_run(connection, "shop", a_run().digest) is None
    await recorder.close()


# --- deleting -------------------------------------------------------------------------------------------------


async def test_deleting_fences_a_live_coordinator_and_leaves_no_row(database: str, artifacts: FileArtifacts) -> None:
    run, recorder = await started(database)
    await recorder.commit(batch(run.run_key, evidence(101, 0)))
    await recorder.beat({})
    await artifacts.put("r1", b"body")
    assert await delete_run(database, "r1", artifacts) == ["r1"]
    with pytest.raises(Fenced):
        await recorder.commit(batch(run.run_key, evidence(102, 1)))
    assert await recorder.cancel_requested() is True
    tables = await rows(database, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    for (table,) in tables:
        if table != "alembic_version":
            assert await one(database, f"SELECT count(*) FROM {table}") == (0,), table
    assert [digest async for digest in artifacts.list_run("r1")] == []
    with pytest.raises(ConfigurationError, match="there is no run r1"):
        await delete_run(database, "r1", artifacts)
    await recorder.close()


async def test_tries_are_kept_for_a_week(database: str, artifacts: FileArtifacts) -> None:
    for name, kind, days in (("t1", RunKind.TRY, 8), ("t2", RunKind.TRY, 6), ("s1", RunKind.SWEEP, 8)):
        await create_run(database, a_run(id=name, kind=kind))
        await execute(database, f"UPDATE runs SET created_at = now() - interval '{days} days' WHERE id = '{name}'")
    assert await delete_old_tries(database, artifacts) == ["t1"]
    assert await rows(database, "SELECT id FROM runs ORDER BY 1") == [("s1",), ("t2",)]


async def test_a_run_that_others_carry_from_is_kept(database: str, artifacts: FileArtifacts) -> None:
    await settle(database, "r1", evidence(101, 0))
    await create_run(database, a_run(id="r2", cases=[(a_case(0), carried("r1", 101))]))
    with pytest.raises(ConfigurationError, match="run r1 is carried by r2"):
        await delete_run(database, "r1", artifacts)
    assert await one(database, "SELECT count(*) FROM runs WHERE deleted_at IS NULL") == (2,)


async def test_dependants_go_too_when_asked_for_also_those_of_dependants(
    database: str, artifacts: FileArtifacts
) -> None:
    await settle(database, "r1", evidence(101, 0))
    await settle(database, "r2", evidence(101, 1), cases=[(a_case(0), carried("r1", 101)), (a_case(1), None)])
    await create_run(database, a_run(id="r3", cases=[(a_case(0), carried("r2", 101))]))
    assert await delete_run(database, "r1", artifacts, with_dependants=True) == ["r3", "r2", "r1"]
    assert await rows(database, "SELECT id FROM runs") == []


async def test_copied_evidence_outlives_the_run_that_made_it(database: str, artifacts: FileArtifacts) -> None:
    noise = "".join(chr(0x4E00 + (n * n * 2654435761 >> 7) % 20000) for n in range(700_000))
    base = priced(101, 0, 2.0)
    found = replace(base, turns=(replace(base.turns[0], events=(Message(Role.USER, noise),)),))
    run, recorder = await started(database)
    sealed = await EvidenceEncoder(run.run_key, artifacts, "r1").encode(found)
    whole = batch(run.run_key, base).attempts[0]
    await recorder.commit(CommitBatch((replace(whole, sealed=sealed),)))
    await recorder.finish("completed", None)
    await recorder.close()
    await create_run(database, a_run(id="r2", cases=[(a_case(0), carried("r1", 101)), (a_case(1), None)]))
    await delete_run(database, "r1", artifacts, copy_evidence=True)
    reader = Reader(database, artifacts)
    view = (await reader.cases("r2"))[0]
    assert (view.status, view.attempts) == (CaseStatus.PASSED, 0)
    assert view.carried_from is not None and view.carried_from[0] == "r2"
    detail = await reader.attempt_detail(*view.carried_from)
    assert (detail.turns, detail.assertions) == (found.turns, found.assertions)
    arm = (await reader.aggregate("r2")).arms[0]
    assert (arm.carried, arm.attempts, arm.cost_usd) == (1, 0, 0.0), "what r1 paid is not paid again"
    assert (await reader.find_run("r2")).status is RunStatus.QUEUED
    await reader.close()
