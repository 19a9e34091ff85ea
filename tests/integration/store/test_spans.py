"""Spans in the record store: written once however often that is tried, and of one life with their run."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalfleet.errors import StoreError
from evalfleet.model.verdict import Settlement, Verdict
from evalfleet.store.artifacts import FileArtifacts
from evalfleet.store.creation import create_run
from evalfleet.store.lifecycle import delete_run
from evalfleet.store.planned import Presettled
from evalfleet.store.reader import Reader
from evalfleet.store.spans import SpanBatch, SpanCounts, SpanStore
from evalfleet.store.transfer import export_run, import_run
from tests.integration.store.samples import a_case, a_run, batch, evidence, started
from tests.integration.store.sql import one, rows

FIRST = SpanBatch(101, 1, 2, 0, b"two spans " * 50)
SECOND = SpanBatch(101, 2, 1, 1, b'{"one":1}')
COUNTS = SpanCounts(3, 1, {"bad_span": 2}, {"too_large": 1})


async def test_batches_are_read_in_their_order_and_a_write_that_is_repeated_adds_nothing(database: str) -> None:
    run, recorder = await started(database)
    store = SpanStore(database, run.run_key, 77)
    for _ in range(2):
        assert await store.write([FIRST, SECOND, SpanBatch(102, 3, 5, 0, b"others")], COUNTS)
    other = SpanStore(database, run.run_key, 78)
    assert await other.write([SpanBatch(101, 1, 9, 0, b"of another process")], SpanCounts(9))
    reader = Reader(database)
    found = await reader.spans("r1", 101)
    assert found == [(0, FIRST.body, 2), (1, SECOND.body, 1), (0, b"of another process", 9)]
    assert await reader.span_counts("r1") == SpanCounts(12, 1, {"bad_span": 2}, {"too_large": 1})
    assert (await one(database, "SELECT sum(octet_length(body)) < 300 FROM span_batches"))[0]
    for each in (store, other, reader, recorder):
        await each.close()


async def test_a_connection_that_is_cut_doubles_nothing(database: str) -> None:
    run, recorder = await started(database)
    store = SpanStore(database, run.run_key, 77)
    await store.write([FIRST], SpanCounts(2))
    await rows(
        database,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
        "AND datname = current_database() AND query LIKE '%%span_%%'",
    )
    assert await store.write([FIRST, SECOND], SpanCounts(3))
    assert await one(database, "SELECT count(*), sum(spans) FROM span_batches") == (2, 3)
    await store.close()
    await recorder.close()


async def test_spans_of_a_run_that_is_gone_are_written_nowhere(database: str, tmp_path: Path) -> None:
    run, recorder = await started(database)
    await recorder.close()
    store = SpanStore(database, run.run_key, 77)
    await store.write([FIRST], SpanCounts(2))
    await delete_run(database, "r1", FileArtifacts(str(tmp_path)))
    assert await one(database, "SELECT count(*) FROM span_batches") == (0,)
    assert await one(database, "SELECT count(*) FROM span_counts") == (0,)
    assert not await store.write([SECOND], SpanCounts(3))
    await store.close()


async def test_a_store_that_stays_away_is_told() -> None:
    store = SpanStore("postgresql://nobody@127.0.0.1:1/nothing", 1, 77, patience=0.1)
    with pytest.raises(StoreError):
        await store.write([FIRST], SpanCounts(2))
    await store.close()


async def test_an_exported_run_brings_its_spans(database: str, tmp_path: Path) -> None:
    artifacts = FileArtifacts(str(tmp_path / "objects"))
    run, recorder = await started(database)
    store = SpanStore(database, run.run_key, 77)
    await store.write([FIRST, SECOND], COUNTS)
    await store.close()
    await recorder.close()
    await export_run(database, "r1", tmp_path / "r1.evalfleet", artifacts)
    await delete_run(database, "r1", artifacts)
    await import_run(database, tmp_path / "r1.evalfleet", artifacts)
    reader = Reader(database)
    assert await reader.spans("r1", 101) == [(0, FIRST.body, 2), (1, SECOND.body, 1)]
    assert await reader.span_counts("r1") == COUNTS
    await reader.close()


async def test_who_carries_an_attempt_keeps_its_spans(database: str, tmp_path: Path) -> None:
    run, recorder = await started(database)
    await recorder.commit(batch(run.run_key, evidence(101, 0)))
    await recorder.close()
    store = SpanStore(database, run.run_key, 77)
    await store.write([FIRST], SpanCounts(2))
    await store.close()
    carried = Presettled(how=Settlement.CARRIED, verdict=Verdict.PASSED, from_run="r1", from_attempt=101)
    await create_run(database, a_run(id="r2", cases=[(a_case(0), carried)]))
    await delete_run(database, "r1", FileArtifacts(str(tmp_path)), copy_evidence=True)
    reader = Reader(database)
    (case,) = await reader.cases("r2")
    assert case.carried_from is not None
    assert await reader.spans(*case.carried_from) == [(0, FIRST.body, 2)]
    await reader.close()
