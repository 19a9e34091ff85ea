"""Reading the evidence of many cases at once: the same values as one by one, in bounded memory, for any statistics."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalfleet.api.handle import RunHandle
from evalfleet.api.options import CaseFilter
from evalfleet.api.session import Session
from evalfleet.errors import ConfigurationError, FailureKind, StoreError
from evalfleet.model.events import Event, Message, OperationFinished, OperationStarted, OperationStatus, Role
from evalfleet.model.record import AttemptEvidence, AttemptWrite, CommitBatch, LostAttempt, SettleWithout
from evalfleet.model.report import AttemptDetail, CaseView
from evalfleet.model.verdict import CaseStatus, Outcome, Settlement, Verdict
from evalfleet.settings import Settings
from evalfleet.store import read_sql
from evalfleet.store.artifacts import FileArtifacts
from evalfleet.store.connection import connect
from evalfleet.store.creation import create_run
from evalfleet.store.evidence import EvidenceReader
from evalfleet.store.lifecycle import delete_run, reopen
from evalfleet.store.planned import Presettled
from evalfleet.store.records import PAGE_BYTES, Origin, RecordReader
from evalfleet.store.rows import EvidenceEncoder
from evalfleet.store.writer import PostgresRecorder
from tests.integration.store.judged_again import judge_again
from tests.integration.store.samples import ME, a_case, a_run, batch, errored, evidence, ignore, resumed
from tests.integration.store.sql import execute

Record = tuple[CaseView, AttemptDetail | None]

WEIRD = "nul \0, lone \ud800, emoji \U0001f600, " + "x" * 300


@pytest.fixture
def artifacts(tmp_path: Path) -> FileArtifacts:
    return FileArtifacts(str(tmp_path / "artifacts"))


@asynccontextmanager
async def opened(url: str, run: str, folder: Path) -> AsyncGenerator[RunHandle]:
    settings = Settings(state_dir=folder, artifacts=str(folder / "artifacts"), database_url=url)
    async with RunHandle(await Session.open(settings), run) as handle:
        yield handle


def noise(size: int) -> str:
    """Text that no compression makes smaller than this many bytes; the same each time."""
    return random.Random(size).randbytes(size).hex()


def with_events(base: AttemptEvidence, *turns: Sequence[Event]) -> AttemptEvidence:
    """The attempt with one turn for each of these."""
    return replace(
        base,
        turns=tuple(
            replace(base.turns[0], index=number, sequence=number, events=tuple(events))
            for number, events in enumerate(turns)
        ),
    )


def multi_turn(attempt: int, case: int) -> AttemptEvidence:
    call = OperationStarted("1", "search", {"q": WEIRD}), OperationFinished("1", OperationStatus.COMPLETED, [1, None])
    base = with_events(
        evidence(attempt, case, message=WEIRD, reply=WEIRD), [Message(Role.USER, WEIRD), *call], [], call
    )
    return replace(base, diagnostics=(WEIRD,))


def paged(attempt: int, case: int) -> AttemptEvidence:
    """Events of some hundred kilobytes, which stand in pages beside the attempt."""
    many = [Message(Role.USER, f"{number} " * 200) for number in range(2000)]
    return with_events(evidence(attempt, case), many[:1500], [], many[1500:])


def in_artifacts(attempt: int, case: int) -> AttemptEvidence:
    """A record and a page that are too large for the database."""
    base = with_events(evidence(attempt, case), [Message(Role.ASSISTANT, noise(700_000) + WEIRD)])
    return replace(base, turns=(replace(base.turns[0], data=noise(700_000)),))


async def sealed(run_key: int, run: str, artifacts: FileArtifacts, *attempts: AttemptEvidence) -> CommitBatch:
    encoder = EvidenceEncoder(run_key, artifacts, run)
    return CommitBatch(tuple([AttemptWrite(await encoder.encode(one), "w1", True) for one in attempts]))


async def held(url: str, run: str, cases: list[tuple[Any, Presettled | None]]) -> tuple[int, PostgresRecorder]:
    created = await create_run(url, replace(a_run(id=run), cases=cases))
    recorder = PostgresRecorder(url, run, ignore)
    await recorder.claim(ME, takeover=False)
    return created.run_key, recorder


def carried(attempt: int, run: str) -> Presettled:
    return Presettled(how=Settlement.CARRIED, verdict=Verdict.PASSED, from_run=run, from_attempt=attempt)


async def every_kind_of_case(url: str, artifacts: FileArtifacts) -> None:
    """Run r1 with every way in which a case may have come by evidence or not, carrying from the runs old and older."""
    for run in ("old", "older"):
        key, recorder = await held(url, run, [(a_case(number), None) for number in range(3)])
        await recorder.commit(await sealed(key, run, artifacts, in_artifacts(7, 0), paged(8, 1), multi_turn(9, 2)))
        await recorder.finish("completed", None)
        await recorder.close()
    decided = {
        4: carried(7, "old"),
        5: carried(8, "older"),
        6: Presettled(how=Settlement.BLOCKED, code="EXTERNAL_WRITES_NOT_AUTHORIZED"),
        7: carried(9, "old"),
    }
    key, recorder = await held(url, "r1", [(a_case(number), decided.get(number)) for number in range(14)])
    failed = errored(102, 1), evidence(108, 8, outcome=Outcome.CANCELLED, verdict=Verdict.ERRORED)
    await recorder.commit(batch(key, *failed, settles=False))
    of_agent = errored(104, 3, FailureKind.AGENT)
    await recorder.commit(
        await sealed(key, "r1", artifacts, multi_turn(101, 0), evidence(103, 1), paged(105, 2), of_agent)
    )
    died = LostAttempt(109, 9, "w9", FailureKind.WORKER, "WORKER_DIED", 1_760_000_000.0, True)
    await recorder.commit(CommitBatch(lost=(died,), settled=(SettleWithout(10, Settlement.NOT_NEEDED, code="early"),)))
    await recorder.commit(batch(key, evidence(111, 11, verdict=Verdict.FAILED), errored(112, 12)))
    await recorder.finish("limited", "budget")
    await recorder.close()
    assert await reopen(url, "r1", (CaseStatus.FAILED,), who="ann", why="flaky") == 1
    again = await resumed(url)
    await again.commit(await sealed(key, "r1", artifacts, in_artifacts(211, 11)))
    await again.close()


async def one_by_one(handle: RunHandle, which: CaseFilter | None = None) -> list[Record]:
    found: list[Record] = []
    async for case in handle.cases(which):
        found.append((case, await handle.attempt(case.ordinal) if case.has_evidence else None))
    return found


# --- the same values ------------------------------------------------------------------------------------------


async def test_a_run_reads_in_bulk_exactly_as_case_by_case(
    database: str, artifacts: FileArtifacts, tmp_path: Path
) -> None:
    await every_kind_of_case(database, artifacts)
    async with opened(database, "r1", tmp_path) as handle:
        found = [record async for record in handle.records()]
        assert found == await one_by_one(handle)
    assert [None if detail is None else detail.view.attempt for _, detail in found] == [
        101, 103, 105, 104, 7, 8, None, 9, 108, 109, None, 211, 112, None,
    ]  # fmt: skip
    details = [detail for _, detail in found if detail is not None]
    sizes = [[len(turn.events) for turn in detail.turns] for detail in details]
    assert sizes[0] == [3, 0, 2] and sizes[2] == [1500, 0, 500] and sizes[4] == [1]
    assert (details[0].turns, details[0].view.message, details[0].diagnostics) == (
        multi_turn(101, 0).turns,
        WEIRD,
        (WEIRD,),
    )
    assert [details[4].turns, details[-2].turns] == [in_artifacts(7, 0).turns, in_artifacts(211, 11).turns]
    assert [len([body async for body in artifacts.list_run(run)]) for run in ("old", "r1")] == [2, 2], "it stands there"


@pytest.mark.parametrize(
    ("which", "ordinals"),
    [
        (CaseFilter(statuses=(CaseStatus.ERRORED,)), [3, 12]),
        (CaseFilter(prefix="sql/000", limit=2), [0, 1]),
        (CaseFilter(ordinal=5), [5]),
        (CaseFilter(ordinal=99), []),
    ],
)
async def test_what_is_read_in_bulk_can_be_narrowed(
    database: str, artifacts: FileArtifacts, tmp_path: Path, which: CaseFilter, ordinals: list[int]
) -> None:
    await every_kind_of_case(database, artifacts)
    async with opened(database, "r1", tmp_path) as handle:
        found = [record async for record in handle.records(which)]
        assert [case.ordinal for case, _ in found] == ordinals
        assert found == await one_by_one(handle, which)


async def test_evidence_that_was_copied_from_a_deleted_run_is_read_from_the_copy(
    database: str, artifacts: FileArtifacts, tmp_path: Path
) -> None:
    await every_kind_of_case(database, artifacts)
    async with opened(database, "r1", tmp_path) as handle:
        before = [detail async for _, detail in handle.records() if detail is not None]
        for run in ("old", "older"):
            await delete_run(database, run, artifacts, copy_evidence=True)
        found = [record async for record in handle.records()]
        assert found == await one_by_one(handle)
    assert [detail.turns for _, detail in found if detail is not None] == [detail.turns for detail in before]


async def test_a_run_of_more_cases_than_a_page_is_read_whole(database: str, tmp_path: Path) -> None:
    key, recorder = await held(database, "r1", [(a_case(number), None) for number in range(1203)])
    await recorder.commit(batch(key, *(evidence(5000 - number, number) for number in range(1203))))
    async with opened(database, "r1", tmp_path) as handle:
        found = [(case.ordinal, detail and detail.view.attempt) async for case, detail in handle.records()]
    assert found == [(number, 5000 - number) for number in range(1203)]
    await recorder.close()


async def test_evidence_that_is_not_there_is_no_empty_evidence(database: str, tmp_path: Path) -> None:
    _, recorder = await held(database, "r1", [(a_case(0), carried(7, "gone"))])
    await recorder.close()
    async with opened(database, "r1", tmp_path) as handle:
        with pytest.raises(ConfigurationError, match="there is no run 'gone'"):
            await anext(handle.records())
    await create_run(database, a_run(1, id="gone"))
    async with opened(database, "r1", tmp_path) as handle:
        with pytest.raises(ConfigurationError, match="run gone has no attempt 7"):
            await anext(handle.records())


async def test_a_page_that_is_lost_is_reported(database: str, artifacts: FileArtifacts, tmp_path: Path) -> None:
    await every_kind_of_case(database, artifacts)
    await execute(database, "DELETE FROM event_pages WHERE attempt = 105 AND page = 1")
    async with opened(database, "r1", tmp_path) as handle:
        with pytest.raises(StoreError, match=r"an attempt of run r1 has \d+ of its 2000 events"):
            [record async for record in handle.records()]


# --- bounded memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_number", [False, True])
async def test_a_question_brings_so_many_bytes_and_the_attempt_that_exceeds_them(
    database: str, by_number: bool
) -> None:
    sizes = [100, 3_000_000, 3_000_000, 3_000_000, 100, PAGE_BYTES, 100, 3_000_000]
    key, recorder = await held(database, "r1", [(a_case(number), None) for number in range(len(sizes))])
    attempts = [
        with_events(evidence(100 + number, number), [Message(Role.USER, noise(size))])
        for number, size in enumerate(sizes)
    ]
    for one in attempts:
        await recorder.commit(batch(key, one))
    await recorder.close()
    brought: list[list[int]] = []
    async with await connect(database, autocommit=True) as connection:

        async def ask(statement: bytes, given: Any) -> Sequence[tuple[Any, ...]]:
            cursor = connection.cursor(binary=True)
            rows = await (await cursor.execute(statement, given)).fetchall()
            brought.append([len(record) + sum(map(len, pages or ())) for *_, record, pages in rows])
            return rows

        reading = RecordReader(ask, EvidenceReader(None))
        origins = [Origin(key, "r1", 100 + number) for number in range(len(sizes))]
        source = reading.by_number(origins) if by_number else reading.of_cases(key, "r1", range(len(sizes)))
        found = [detail async for detail in source]
    assert [detail.turns for detail in found] == [one.turns for one in attempts]
    assert [len(rows) for rows in brought] == [4, 2, 2]
    assert all(sum(rows[:-1]) < PAGE_BYTES for rows in brought)


# --- any statistics -------------------------------------------------------------------------------------------


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


def looked_at(node: dict[str, Any]) -> float:
    removed = sum(value for name, value in node.items() if name.startswith("Rows Removed by"))
    return (node["Actual Rows"] + removed) * node["Actual Loops"]


@pytest.mark.parametrize("known", [False, True], ids=["unknown to the statistics", "analysed"])
@pytest.mark.parametrize("reopened", [False, True], ids=["as run", "reopened"])
@pytest.mark.parametrize("graded", [False, True], ids=["as sealed", "judged again"])
async def test_no_statement_passes_over_a_run_once_for_each_of_its_cases(
    database: str, known: bool, reopened: bool, graded: bool
) -> None:
    """Statistics say nothing of a run that was just written: a planner then expects one row of it."""
    count = 600
    for table in ("cases", "settlements", "attempts"):
        await execute(database, f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
    for run in ("old", "r1"):
        cases = [(a_case(number), carried(7, "old") if number % 2 else None) for number in range(count)]
        key, recorder = await held(database, run, cases)
        await recorder.commit(batch(key, *(evidence(100 + n, n, verdict=Verdict.FAILED) for n in range(0, count, 2))))
        await recorder.finish("completed", None)
        await recorder.close()
        if graded:
            for _ in range(2):  # a table of few pages is rightly read whole
                await judge_again(database, run)
        if run == "old" or known:
            await execute(database, "ANALYZE")
    if reopened:
        await reopen(database, "r1", (CaseStatus.FAILED,), who="ann", why="flaky")
    given: dict[str, Any] = {"run_key": key, "after": -1, "limit": 500}
    given |= {"arm": "small", "prefix": "sql%", "tag": None, "statuses": None}
    given |= {"ordinals": [*range(count)], "run_keys": [key] * count, "attempts": [*range(100, 100 + count)]}
    given |= {"grading": 2 * graded, "gradings": [2 * graded] * count}
    texts = (read_sql.WITHOUT_ATTEMPT, read_sql.CANCELLED)
    statements = [read_sql.cases(reopened, graded), read_sql.by_eval(reopened, graded), *map(str.encode, texts)]
    statements += [read_sql.classes(graded), read_sql.retried(graded)]
    statements += [read_sql.records_of_cases(graded), read_sql.records_by_number(graded)]
    async with await connect(database, autocommit=True) as connection:
        await connection.execute(read_sql.PLANS)
        for statement in statements:
            cursor = await connection.execute(b"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) " + statement, given)
            ((plans,),) = await cursor.fetchall()
            most = max(map(looked_at, nodes(plans[0]["Plan"])))
            assert most <= 10 * count, f"{most} rows in one place of {statement.decode()}"
