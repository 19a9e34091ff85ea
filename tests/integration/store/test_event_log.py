"""Run events as the record store gives them: numbered for ever, and told only once they are facts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from evalfleet.errors import FailureKind, RunHeld
from evalfleet.model.record import CommitBatch, LostAttempt, SettleWithout
from evalfleet.model.run_events import BEGINNING, EventCursor, RunEvent
from evalfleet.model.verdict import CaseStatus, Outcome, Settlement, Verdict
from evalfleet.store.connection import connect
from evalfleet.store.creation import create_run
from evalfleet.store.event_log import EventLog
from evalfleet.store.lifecycle import delete_run, reopen
from evalfleet.store.planned import PlannedSuite, Presettled
from evalfleet.store.suites import beat, is_being_judged, is_open, write_suite_results
from evalfleet.store.transfer import export_run, import_run
from evalfleet.store.writer import PostgresRecorder
from tests.integration.store.samples import (
    ME,
    OTHER,
    a_case,
    a_run,
    batch,
    claimed,
    errored,
    evidence,
    ignore,
    resumed,
    started,
)
from tests.integration.store.sql import execute, one
from tests.unit.store.memory_artifacts import MemoryArtifacts

CARRIED = Presettled(how=Settlement.CARRIED, verdict=Verdict.PASSED, from_run="old", from_attempt=77)
BLOCKED = Presettled(how=Settlement.BLOCKED, code="EXTERNAL_WRITES_NOT_AUTHORIZED")


@asynccontextmanager
async def logged(url: str, page: int = 1000) -> AsyncGenerator[EventLog]:
    log = EventLog(url, "r1", page=page)
    try:
        yield log
    finally:
        await log.aclose()


async def told(url: str, after: EventCursor = BEGINNING, page: int = 1000) -> list[RunEvent]:
    """What somebody reads who comes just now."""
    async with logged(url, page) as log:
        return await rest(log, after)


async def rest(log: EventLog, after: EventCursor) -> list[RunEvent]:
    async with aclosing(log.news(after)) as pages:
        return [event async for each in pages for event in each]


def lines(events: Sequence[RunEvent]) -> list[str]:
    return [
        " ".join(str(part) for part in (event.type, event.case, event.attempt, event.status) if part is not None)
        for event in events
    ]


def died(attempt: int, case: int) -> LostAttempt:
    return LostAttempt(attempt, case, "w1", FailureKind.WORKER, "WORKER_DIED", 1_760_000_000.0, False)


async def test_a_run_tells_what_became_of_each_case(database: str) -> None:
    cases = [(a_case(n), {3: CARRIED, 4: BLOCKED}.get(n)) for n in range(6)]
    run, recorder = await claimed(database, cases)
    await recorder.commit(CommitBatch(lost=(died(101, 1),)))
    await recorder.commit(batch(run, evidence(102, 0), errored(103, 2), settles=True))
    given_up = SettleWithout(1, Settlement.ATTEMPT, Verdict.ERRORED, None, None, 101)
    not_needed = SettleWithout(5, Settlement.NOT_NEEDED, code="early_exit")
    await recorder.commit(CommitBatch(settled=(given_up, not_needed)))
    await recorder.finish("completed", None)
    await recorder.close()
    events = await told(database)
    assert lines(events) == [
        "run.started",
        "case.completed 4 blocked",
        "case.started 1 1",
        "case.started 0 1",
        "turn.completed 0 1",
        "case.completed 0 1 passed",
        "case.started 2 1",
        "turn.completed 2 1",
        "case.completed 2 1 errored",
        "case.completed 1 1 errored",
        "case.completed 5 not_needed",
        "run.completed completed",
    ]
    assert [event.sequence for event in events] == list(range(1, 13))
    assert [(event.kind, event.code) for event in events if event.status == "errored"] == [
        (FailureKind.PROVIDER, "BOOM"),
        (FailureKind.WORKER, "WORKER_DIED"),
    ]
    assert (events[3].eval_id, events[3].arm, events[3].at) == ("sql/0000", "small", 1_760_000_000.25)


async def test_nothing_is_told_of_a_run_that_nobody_has_begun(database: str) -> None:
    await create_run(database, replace(a_run(), cases=[(a_case(0), BLOCKED)]))
    assert await told(database) == []


async def test_turns_of_a_suite_name_their_step(database: str) -> None:
    suite = PlannedSuite(id="shop", document={"scenarios": [{"id": "refund", "steps": [{"id": "greet"}]}]})
    await create_run(database, a_run(suites=(suite,), cases=[(a_case(0, eval_id="shop/refund"), None)]))
    recorder = PostgresRecorder(database, "r1", ignore)
    claim = await recorder.claim(ME, takeover=False)
    await recorder.commit(batch(claim.run_key, evidence(101, 0, turns=2)))
    await recorder.close()
    assert [event.step for event in await told(database) if event.turn is not None] == ["greet", None]


async def test_a_run_is_completed_once_what_its_suites_ask_is_settled(database: str) -> None:
    suite = PlannedSuite(id="shop", document={"scenarios": [], "assertions": [{"id": "all"}]})
    run, recorder = await started(database, 1, suites=(suite,))
    await recorder.commit(batch(run.run_key, errored(101, 0)))
    assert not await is_open(database, "r1")
    await recorder.finish("completed", None)
    await recorder.finish("completed", None)
    before = await told(database)
    assert lines(before)[-1] == "case.completed 0 1 errored"
    assert await is_open(database, "r1") and await is_being_judged(database, "r1")
    await execute(database, "UPDATE runs SET beat = clock_timestamp() - interval '20 s'")
    assert not await is_being_judged(database, "r1"), "whoever was to judge them is gone"
    await beat(database, "r1")
    assert await is_being_judged(database, "r1")
    results = {("shop", "small"): [{"id": "all", "passed": True}]}
    await asyncio.gather(*(write_suite_results(database, "r1", results) for _ in range(3)))
    assert lines((await told(database))[len(before) :]) == ["run.completed completed"]
    assert not await is_open(database, "r1")
    await reopen(database, "r1", [CaseStatus.ERRORED], who="me", why="again")
    await write_suite_results(database, "r1", results)
    again = await resumed(database)
    await again.commit(batch(run.run_key, evidence(201, 0)))
    await again.finish("completed", None)
    assert lines(await told(database))[-1] == "case.completed 0 2 passed"
    await write_suite_results(database, "r1", results)
    assert lines(await told(database)).count("run.completed completed") == 2
    await again.close()
    await recorder.close()


async def test_a_coordinator_that_is_back_is_no_news_and_one_that_follows_is(database: str) -> None:
    _, recorder = await claimed(database, [(a_case(0), None)])
    await recorder.claim(ME, takeover=False)
    await recorder.finish("cancelled", "cancelled by request")
    await recorder.finish("cancelled", "cancelled by request")
    follower = await resumed(database)
    await follower.claim(OTHER, takeover=True)
    with pytest.raises(RunHeld):
        await recorder.claim(ME, takeover=False)
    await recorder.close()
    await follower.close()
    assert lines(await told(database)) == ["run.started", "run.completed cancelled", "run.resumed"]


async def test_numbers_stay_when_cases_are_reopened(database: str) -> None:
    run, recorder = await claimed(database, [(a_case(n), None) for n in range(2)])
    await recorder.commit(batch(run, errored(101, 0), evidence(102, 1)))
    await recorder.finish("completed", None)
    before = await told(database)
    assert await reopen(database, "r1", [CaseStatus.ERRORED], who="me", why="again") == 1
    assert await told(database) == before
    again = await resumed(database)
    await again.commit(batch(run, evidence(201, 0)))
    await again.commit(batch(run, evidence(202, 0)))
    await again.finish("completed", None)
    await again.close()
    await recorder.close()
    after = await told(database)
    assert after[: len(before)] == before
    assert lines(after[len(before) :]) == [
        "run.resumed",
        "case.started 0 2",
        "turn.completed 0 2",
        "case.completed 0 2 passed",
        "run.completed completed",
    ]


@pytest.mark.parametrize("seed", range(3))
async def test_what_anybody_read_at_any_time_is_the_beginning_of_what_everybody_reads_later(
    database: str, seed: int
) -> None:
    random = Random(seed)
    cases = 8
    run, recorder = await claimed(database, [(a_case(n), BLOCKED if n == 7 else None) for n in range(cases)])
    seen: list[list[RunEvent]] = []
    tried: list[list[int]] = [[] for _ in range(cases)]
    follower: list[RunEvent] = []
    for step in range(30):
        ids = iter(range(100 * step + 100, 100 * step + 200))
        chosen = random.sample(range(7), random.randint(1, 4))
        made = [(next(ids), case) for case in (*chosen, *chosen[:1])]
        for attempt, case in made:
            tried[case].append(attempt)
        act = random.choice(("settle", "fail", "lose", "give up", "stop", "reopen"))
        if act == "settle":
            await recorder.commit(batch(run, *(errored(a, c) if a % 3 else evidence(a, c) for a, c in made)))
        elif act == "fail":
            outcome = evidence(*made[0], outcome=Outcome.CANCELLED, verdict=Verdict.ERRORED, kind=FailureKind.CANCELLED)
            await recorder.commit(batch(run, outcome, *(errored(a, c) for a, c in made[1:]), settles=False))
        elif act == "lose":
            await recorder.commit(CommitBatch(lost=tuple(died(a, c) for a, c in made)))
        elif act == "give up":
            (attempt, case) = made[0]
            ending = SettleWithout(case, Settlement.ATTEMPT, Verdict.ERRORED, None, None, attempt)
            await recorder.commit(CommitBatch(lost=(died(attempt, case),), settled=(ending,)))
        else:
            await recorder.finish("cancelled", None)
            if act == "reopen":
                await reopen(database, "r1", [CaseStatus.ERRORED, CaseStatus.BLOCKED], who="me", why="again")
            await recorder.close()
            recorder = PostgresRecorder(database, "r1", ignore)
            await recorder.claim(replace(OTHER, id=f"actor-{step}"), takeover=True)
        seen.append(await told(database))
        follower += await told(database, follower[-1].cursor if follower else BEGINNING)
    await recorder.close()
    whole = await told(database, page=3)
    assert [event.sequence for event in whole] == list(range(1, len(whole) + 1))
    assert follower == whole
    for beginning in seen:
        assert beginning == whole[: len(beginning)]
    async with logged(database) as log:
        for event in whole:
            assert await rest(log, event.cursor) == whole[event.sequence :]
    _check_cases(whole)


def _check_cases(events: Sequence[RunEvent]) -> None:
    """In each case attempts start in turn, and nothing comes after its end until somebody resumed the run."""
    ended: set[int] = set()
    numbers: dict[int, int] = {}
    for event in events:
        if event.case is None:
            ended.clear()
            continue
        assert event.case not in ended, event
        if event.type == "case.started":
            assert event.attempt is not None and event.attempt > numbers.get(event.case, 0)
            numbers[event.case] = event.attempt
        elif event.type == "turn.completed":
            assert event.attempt == numbers[event.case]
        else:
            assert event.attempt is None or event.attempt == numbers[event.case]
            ended.add(event.case)


async def test_nobody_is_told_before_the_commit_is_done(database: str) -> None:
    during: list[list[RunEvent]] = []

    def failpoint(place: str) -> None:
        if place == "after_copy":
            looking = threading.Thread(target=lambda: during.append(asyncio.run(told(database))))
            looking.start()
            looking.join()

    run = await create_run(database, a_run(1))
    recorder = PostgresRecorder(database, "r1", failpoint)
    await recorder.claim(ME, takeover=False)
    await recorder.commit(batch(run.run_key, evidence(101, 0)))
    await recorder.close()
    assert [lines(events) for events in during] == [["run.started"]]
    assert len(await told(database)) == 4


async def test_whoever_listens_is_told_which_run_and_finds_what_it_did(database: str) -> None:
    run, recorder = await claimed(database, [(a_case(0), None)])
    await recorder.commit(batch(run, evidence(101, 0)))
    async with await connect(database, autocommit=True) as listening:
        await listening.execute("LISTEN evalfleet_run")
        await recorder.finish("completed", None)
        async with aclosing(listening.notifies(timeout=30.0)) as notices:
            notice = await anext(notices)
        assert notice.payload == "r1"
        assert lines(await told(database))[-1] == "run.completed completed"
    await recorder.close()


@pytest.mark.parametrize("older", [False, True], ids=["new", "older"])
async def test_an_imported_run_tells_the_same(database: str, tmp_path: Path, older: bool) -> None:
    run, recorder = await claimed(database, [(a_case(0), None), (a_case(1), BLOCKED), (a_case(2), None)])
    given_up = SettleWithout(2, Settlement.ATTEMPT, Verdict.ERRORED, None, None, 103)
    await recorder.commit(CommitBatch(lost=(died(101, 0), died(103, 2)), settled=(given_up,)))
    await recorder.commit(batch(run, evidence(102, 0)))
    await recorder.finish("completed", None)
    await recorder.close()
    before, artifacts = await told(database), MemoryArtifacts()
    if older:  # as it was written before runs had marks
        await execute(database, "DELETE FROM run_marks")
        await execute(database, "UPDATE runs SET marks = 0")
        await execute(database, "UPDATE settlements SET commit_seq = NULL")
    await export_run(database, "r1", tmp_path / "r1.evalfleet", artifacts)
    await delete_run(database, "r1", artifacts)
    assert await one(database, "SELECT count(*) FROM run_marks") == (0,)
    await import_run(database, tmp_path / "r1.evalfleet", artifacts)
    after = await told(database)
    assert [replace(event, at=None) for event in after] == [replace(event, at=None) for event in before]
    assert older or after == before


async def test_a_follower_goes_on_when_its_connection_is_lost(database: str) -> None:
    run, recorder = await claimed(database, [(a_case(0), None)])
    async with logged(database) as log:
        first = await rest(log, BEGINNING)
        waiting = asyncio.create_task(log.wait(60.0))
        await asyncio.sleep(0)
        await execute(
            database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND query LIKE 'LISTEN%'",
        )
        await recorder.commit(batch(run, evidence(101, 0)))
        await recorder.finish("completed", None)
        waiting.cancel()
        later = await rest(log, first[-1].cursor)
    await recorder.close()
    assert [event.sequence for event in later] == [2, 3, 4, 5]
