"""Judge calls in the record store: exact in the record, queryable as rows, gone with their run, and their own cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalfleet.errors import StoreError
from evalfleet.model.grading import Basis, Regrading
from evalfleet.model.judge import JudgeCall, JudgeMessage, Ruling
from evalfleet.model.record import AttemptEvidence
from evalfleet.model.usage import Usage
from evalfleet.model.verdict import Settlement, Verdict
from evalfleet.store.artifacts import FileArtifacts
from evalfleet.store.creation import create_run
from evalfleet.store.gradings import RecordedAttempt
from evalfleet.store.judge_cache import PostgresJudgeCache
from evalfleet.store.lifecycle import delete_run
from evalfleet.store.planned import Presettled
from evalfleet.store.reader import Reader
from evalfleet.store.transfer import export_run, import_run
from evalfleet.store.writer import PostgresRecorder
from tests.integration.store.judged_again import judge_again, kept
from tests.integration.store.samples import OTHER, a_case, a_run, batch, evidence, ignore, priced, started
from tests.integration.store.sql import execute, one, rows

WEIRD = "nul \0, lone \ud800, emoji \U0001f600"
ANSWERED = JudgeCall(
    assertion=1,
    repetition=0,
    vote=0,
    recipe="closed_qa",
    version=1,
    model="judge-m",
    request="ab" * 32,
    prompt="cd" * 32,
    messages=(JudgeMessage("system", "Judge."), JudgeMessage("user", WEIRD)),
    started_at=1_760_000_000.5,
    latency=0.25,
    tries=2,
    reply='{"verdict": "yes"} ' + WEIRD,
    ruling=Ruling(score=1.0, label="yes", rationale=WEIRD, repairs=("no ticket", "code fence")),
    usage=Usage(input_tokens=2**70, output_tokens=5, cache_read_tokens=3),
    cost_usd=0.002,
)
FAILED = replace(
    ANSWERED, vote=1, reply=None, ruling=None, usage=None, cost_usd=None, code="judge-call-failed", message="HTTP 500"
)
UNREADABLE = replace(ANSWERED, vote=2, reply="Yes.", ruling=None, code="judge-invalid-response", message="no verdict")
CACHED = replace(ANSWERED, vote=3, cached=True, tries=0, cost_usd=0.0, usage=None)


def judged(attempt: int, case: int, *calls: JudgeCall) -> AttemptEvidence:
    return replace(evidence(attempt, case), judge_calls=calls or (ANSWERED, FAILED, UNREADABLE, CACHED))


@pytest.fixture
def artifacts(tmp_path: Path) -> FileArtifacts:
    return FileArtifacts(str(tmp_path / "artifacts"))


async def test_calls_read_back_exactly_and_stand_in_rows(database: str) -> None:
    run, recorder = await started(database)
    given = judged(101, 0)
    await recorder.commit(batch(run.run_key, given, judged(102, 1, ANSWERED)))
    await recorder.close()
    reader = Reader(database)
    assert (await reader.attempt_detail("r1", 101)).judge_calls == given.judge_calls
    await reader.close()
    found = await rows(
        database,
        "SELECT call, grading, assertion, vote, recipe, version, model, tries, cached, score, label, rationale, "
        "repairs, code, message, cost_usd, output_tokens, number_marks, encode(request, 'hex') "
        "FROM judge_calls WHERE attempt = 101 ORDER BY call",
    )
    shown = WEIRD.replace("\0", "\ufffd").replace("\ud800", "\ufffd")
    key, mark = "ab" * 32, f"input_tokens={hex(2**70)}"
    ruled: tuple[Any, ...] = (1.0, "yes", shown, "no ticket, code fence")
    none = (None, None, None, None)
    assert found == [
        (0, 0, 1, 0, "closed_qa", 1, "judge-m", 2, False, *ruled, None, None, 0.002, 5, mark, key),
        (1, 0, 1, 1, "closed_qa", 1, "judge-m", 2, False, *none, FAILED.code, "HTTP 500", None, None, None, key),
        (2, 0, 1, 2, "closed_qa", 1, "judge-m", 2, False, *none, UNREADABLE.code, "no verdict", 0.002, 5, mark, key),
        (3, 0, 1, 3, "closed_qa", 1, "judge-m", 0, True, *ruled, None, None, 0.0, None, None, key),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("draw", "found"),
    [
        (("ab" * 32, 0, 0), True),
        (("ef" * 32, 0, 0), False),
        (("ab" * 32, 1, 0), False),  # another repetition is another draw
        (("ab" * 32, 0, 9), False),
        (("ab" * 32, 0, 1), False),  # a failed call
        (("ab" * 32, 0, 2), False),  # a reply that nobody could read
        (("ab" * 32, 0, 3), False),  # a copy of another call's
    ],
)
async def test_a_reply_is_found_by_its_request_and_its_draw(
    database: str, draw: tuple[str, int, int], found: bool
) -> None:
    run, recorder = await started(database)
    await recorder.commit(batch(run.run_key, judged(101, 0)))
    await recorder.close()
    cache = PostgresJudgeCache(database)
    reply = await cache.find(*draw)
    await cache.close()
    assert (None if reply is None else reply.text) == (ANSWERED.reply if found else None)


async def test_the_first_reply_of_a_draw_is_the_one_that_counts(database: str) -> None:
    run, recorder = await started(database)
    later = replace(ANSWERED, started_at=ANSWERED.started_at + 9, reply="later")
    await recorder.commit(batch(run.run_key, judged(101, 0, later), judged(102, 1, ANSWERED)))
    await recorder.close()
    cache = PostgresJudgeCache(database)
    assert (reply := await cache.find("ab" * 32, 0, 0)) is not None and reply.text == ANSWERED.reply
    await cache.close()


async def test_what_judges_cost_is_counted_once_apart_from_the_agents(database: str) -> None:
    run, recorder = await started(database)
    unpriced = replace(ANSWERED, cost_usd=None)
    given = batch(run.run_key, judged(101, 0), judged(102, 1, ANSWERED, unpriced), priced(103, 2, 1.0))
    for _ in range(2):
        await recorder.commit(given)
    sealed = [(write.sealed.judge_usd, write.sealed.unknown_judge_cost) for write in given.attempts]
    # of the first four calls one failed without a figure and one was cached
    assert sealed == [(0.004, 1), (0.002, 1), (0, 0)]
    counted = "SELECT spent_usd, judge_usd, unknown_judge_cost FROM runs"
    assert await one(database, counted) == (1.0, pytest.approx(0.006), 2)
    await recorder.close()
    again = PostgresRecorder(database, "r1", ignore)
    claim = await again.claim(OTHER, takeover=True, steal=True)
    assert (claim.spent_usd, claim.judge_usd, claim.unknown_judge_cost) == (1.0, pytest.approx(0.006), 2)
    await again.close()


async def test_what_a_grading_asked_is_told_apart_and_counted_in_the_run(database: str) -> None:
    run, recorder = await started(database)
    await recorder.commit(batch(run.run_key, judged(101, 0, ANSWERED), judged(102, 1, ANSWERED)))
    await recorder.finish("completed", None)
    await recorder.close()
    unpriced = replace(ANSWERED, cost_usd=None)

    def asked_again(found: RecordedAttempt) -> Regrading:
        if found.case.ordinal:
            return kept(found)
        return Regrading(evidence=replace(found.evidence, judge_calls=(ANSWERED, unpriced)), basis=Basis.REPLAYED)

    assert await judge_again(database, "r1", asked_again) == 1
    reader = Reader(database)
    (graded, _), (sealed, _) = (await reader.aggregate("r1")).arms, (await reader.aggregate("r1", 0)).arms
    await reader.close()
    assert graded.judge == sealed.judge is not None and sealed.judge_again is None
    assert (sealed.judge.calls, sealed.judge.cost_usd, sealed.judge.unknown_cost) == (2, 0.004, 0)
    again = graded.judge_again
    assert again is not None and (again.calls, again.cost_usd, again.unknown_cost) == (2, 0.002, 1)
    assert await one(database, "SELECT judge_usd, unknown_judge_cost FROM runs") == (pytest.approx(0.006), 1)


async def test_a_store_that_is_away_is_a_store_error(database: str) -> None:
    cache = PostgresJudgeCache(database.replace("dbname=", "dbname=absent_"))
    with pytest.raises(StoreError):
        await cache.find("ab" * 32, 0, 0)
    await cache.close()


async def test_calls_travel_with_their_run_and_go_with_it(
    database: str, other_database: str, artifacts: FileArtifacts, tmp_path: Path
) -> None:
    run, recorder = await started(database)
    await recorder.commit(batch(run.run_key, judged(101, 0)))
    await recorder.close()
    await export_run(database, "r1", tmp_path / "r1.zip", artifacts)
    await import_run(other_database, tmp_path / "r1.zip", FileArtifacts(str(tmp_path / "there")))
    columns = "attempt, call, grading, assertion, reply, score, cached, started_at"
    query = f"SELECT {columns} FROM judge_calls ORDER BY call"
    assert await rows(other_database, query) == await rows(database, query)
    await execute(database, "UPDATE runs SET holder = NULL")
    await delete_run(database, "r1", artifacts)
    assert await one(database, "SELECT count(*) FROM judge_calls") == (0,)


async def test_a_carried_case_keeps_its_own_copy_of_the_calls_and_of_every_grading(
    database: str, artifacts: FileArtifacts
) -> None:
    run, recorder = await started(database, 1)
    await recorder.commit(batch(run.run_key, judged(101, 0)))
    await recorder.finish("completed", None)
    await recorder.close()
    again = "SELECT attempt, run_key, 1, index, result, optional, name, scope FROM assertions"
    await execute(
        database, f"INSERT INTO assertions (attempt, run_key, grading, index, result, optional, name, scope) {again}"
    )
    carried = Presettled(how=Settlement.CARRIED, verdict=Verdict.PASSED, from_run="r1", from_attempt=101)
    await create_run(database, a_run(id="r2", cases=[(a_case(0), carried)]))
    await delete_run(database, "r1", artifacts, copy_evidence=True)
    assert await rows(database, "SELECT attempt, call FROM judge_calls ORDER BY call") == [(-1, n) for n in range(4)]
    assert await rows(database, "SELECT attempt, grading, index FROM assertions ORDER BY 2") == [
        (-1, 0, 0),
        (-1, 1, 0),
    ]
