"""What is kept of an attempt between its recording and its verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evalfleet.errors import StoreError
from evalfleet.grading.judge_prompts import Question
from evalfleet.model.events import Message, Role
from evalfleet.model.ids import sha256
from evalfleet.model.record import CommitBatch, Intent, IntentKind, Recording
from evalfleet.model.sandbox import SandboxUse
from evalfleet.store.artifacts import FileArtifacts
from evalfleet.store.recordings import Recordings
from evalfleet.store.writer import PostgresRecorder
from tests.integration.store.samples import OTHER, a_case, batch, evidence, resumed, started
from tests.integration.store.sql import execute, one
from tests.unit.store.test_rows import CHANGES


def recordings(url: str, run_key: int, folder: Path) -> Recordings:
    return Recordings(url, run_key, "r1", FileArtifacts(str(folder)))


async def test_a_recording_is_read_back_as_it_was(database: str, tmp_path: Path) -> None:
    run, recorder = await started(database)
    kept = recordings(database, run.run_key, tmp_path)
    use = SandboxUse(backend="local", starts=1, making=0.25, using=3.5, closing=0.125, kept="r1%2F101")
    given = replace(evidence(101, 1, skip_reason="no \ud800 network", sandbox=use), attribution=CHANGES)
    asked = {
        0: [Question(recipe="closed_qa", text="Is it?", material={"input": "a", "output": "\ud800"})],
        3: [
            Question(recipe="custom", text="Which?", choices={"a": 1.0, "b": 0.5}),
            Question(recipe="custom", text="And?", choices={"a": 1.0}),
        ],
    }
    await recorder.commit(CommitBatch(recordings=(Recording(101, 1, await kept.encode(given, asked)),)))
    found = await kept.read(1)
    assert (found.evidence.turns, found.evidence.assertions) == (given.turns, given.assertions)
    assert (found.started_at, found.duration) == (given.summary.started_at, given.summary.duration)
    assert (found.skip_reason, found.questions) == (given.summary.skip_reason, asked)
    other = found.as_evidence(102, a_case(1))
    assert (other.summary.sandbox, other.attribution) == (use, CHANGES)
    await kept.close()
    await recorder.close()


async def test_a_large_one_stands_in_the_artifact_store(database: str, tmp_path: Path) -> None:
    run, recorder = await started(database)
    kept = recordings(database, run.run_key, tmp_path)
    given = evidence(101, 1)
    said = tuple(Message(Role.ASSISTANT, sha256(b"%d" % number)) for number in range(3000))
    given = replace(given, turns=(replace(given.turns[0], events=said),))
    body = await kept.encode(given, {})
    assert len(body) < 100
    await recorder.commit(CommitBatch(recordings=(Recording(101, 1, body),)))
    assert (await kept.read(1)).evidence.turns == given.turns
    await kept.close()
    await recorder.close()


async def test_the_first_recording_stays_and_a_claim_and_a_page_know_it(database: str, tmp_path: Path) -> None:
    run, recorder = await started(database)
    kept = recordings(database, run.run_key, tmp_path)
    first, second = await kept.encode(evidence(101, 1), {}), await kept.encode(evidence(102, 1, duration=9.0), {})
    intent = Intent(101, 1, "w1", IntentKind.EXTERNAL)
    await recorder.commit(CommitBatch(intents=(intent,), recordings=(Recording(101, 1, first),)))
    await recorder.commit(CommitBatch(recordings=(Recording(102, 1, second),)))
    assert (await kept.read(1)).duration == 0.5
    assert [pending.recorded for pending in await recorder.page(-1, 10)] == [False, True, False]
    await execute(database, "UPDATE runs SET beat = clock_timestamp() - interval '20 s'")
    later = await resumed(database)
    claim = await later.claim(OTHER, takeover=True)
    assert [(one.case, one.recorded) for one in claim.open_intents] == [(1, True)]
    for each in (kept, later, recorder):
        await each.close()


async def test_a_beginning_gives_way_to_a_longer_one_and_to_a_whole_recording(database: str, tmp_path: Path) -> None:
    run, recorder = await started(database)
    kept = recordings(database, run.run_key, tmp_path)

    async def commit(
        attempt: int, duration: float, turns: int | None, by: PostgresRecorder = recorder
    ) -> tuple[float, bool, bool]:
        body = await kept.encode(evidence(attempt, 1, duration=duration), {})
        await by.commit(CommitBatch(recordings=(Recording(attempt, 1, body, turns),)))
        pending = (await by.page(-1, 10))[1]
        return (await kept.read(1)).duration, pending.recorded, pending.begun

    assert await commit(101, 1.0, 1) == (1.0, False, True)
    assert await commit(101, 2.0, 2) == (2.0, False, True)
    assert await commit(102, 9.0, 1) == (2.0, False, True), "an older one arrived late"
    intent = Intent(103, 1, "w1", IntentKind.LEASE)
    await recorder.commit(CommitBatch(intents=(intent,)))
    await execute(database, "UPDATE runs SET beat = clock_timestamp() - interval '20 s'")
    later = await resumed(database)
    claim = await later.claim(OTHER, takeover=True)
    assert [(one.case, one.recorded) for one in claim.open_intents] == [(1, False)]
    assert await commit(103, 3.0, None, later) == (3.0, True, False)
    assert await commit(103, 9.0, 5, later) == (3.0, True, False)
    for each in (kept, later, recorder):
        await each.close()


async def test_the_verdict_takes_the_recording_with_it(database: str, tmp_path: Path) -> None:
    run, recorder = await started(database)
    kept = recordings(database, run.run_key, tmp_path)
    body = await kept.encode(evidence(101, 1), {})
    sealed = batch(run.run_key, evidence(101, 1))
    # also when both come in one batch
    await recorder.commit(replace(sealed, recordings=(Recording(101, 1, body),), spent_recordings=(1,)))
    assert await one(database, "SELECT count(*) FROM recordings") == (0,)
    with pytest.raises(StoreError, match="has no recording of case 1"):
        await kept.read(1)
    await kept.close()
    await recorder.close()
