"""What a comparison reads of an arm: every case as headlines count it, and whose attempt its replies are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from evalfleet.errors import ConfigurationError, FailureKind
from evalfleet.model.case import Case
from evalfleet.model.comparison import SideCase
from evalfleet.model.ids import sha256
from evalfleet.model.verdict import CaseStatus, ScoreState, Settlement, Style, Verdict
from evalfleet.store.artifacts import FileArtifacts
from evalfleet.store.creation import create_run
from evalfleet.store.lifecycle import delete_run, reopen
from evalfleet.store.planned import Presettled
from evalfleet.store.reader import Reader
from tests.integration.store.judged_again import as_verdicts, judge_again
from tests.integration.store.samples import a_case, a_run, batch, claimed, errored, evidence, resumed, started


@pytest.fixture
async def reader(database: str) -> AsyncIterator[Reader]:
    reader = Reader(database)
    yield reader
    await reader.close()


def carried(run: str, attempt: int) -> Presettled:
    return Presettled(how=Settlement.CARRIED, verdict=Verdict.PASSED, from_run=run, from_attempt=attempt)


def facts(case: SideCase) -> tuple[object, ...]:
    return case.ordinal, case.status, case.kind, case.origin


async def test_every_case_of_the_arm_is_there_with_whose_attempt_it_stands_on(database: str, reader: Reader) -> None:
    blocked = Presettled(how=Settlement.BLOCKED, code="EXTERNAL_WRITES_NOT_AUTHORIZED")
    cases: list[tuple[Case, Presettled | None]] = [(a_case(n), None) for n in range(4)]
    cases += [(a_case(4), carried("old", 77)), (a_case(5), blocked), (a_case(6, arm="big"), None)]
    run, recorder = await claimed(database, cases)
    await recorder.commit(
        batch(run, evidence(101, 0), evidence(102, 1, verdict=Verdict.FAILED), errored(103, 2, FailureKind.AGENT))
    )
    await recorder.close()
    found = await reader.side("r1", "small")
    assert [facts(case) for case in found] == [
        (0, CaseStatus.PASSED, None, ("r1", 101)),
        (1, CaseStatus.FAILED, None, ("r1", 102)),
        (2, CaseStatus.ERRORED, FailureKind.AGENT, ("r1", 103)),
        (3, CaseStatus.PENDING, None, None),
        (4, CaseStatus.PASSED, None, ("old", 77)),
        (5, CaseStatus.BLOCKED, None, None),
    ]
    first = found[0]
    assert (first.definition, first.eval_id, first.repetition, first.style) == ("sql", "sql/0000", 0, Style.PASS)
    assert first.row == bytes.fromhex(sha256(b'{"n":0}'))
    assert [case.ordinal for case in await reader.side("r1", "big")] == [6]
    assert await reader.arms("r1") == ["small", "big"]


async def test_what_a_run_earned_is_read_by_the_grading_that_is_asked_for(
    database: str, reader: Reader, tmp_path: Path
) -> None:
    run, recorder = await started(database, 2)
    await recorder.commit(
        batch(run.run_key, evidence(101, 0, score_state=ScoreState.COMPLETE, earned=3.5), evidence(102, 1))
    )
    await recorder.finish("completed", None)
    await recorder.close()
    await judge_again(database, "r1", as_verdicts({1: Verdict.FAILED}), tmp_path)
    assert [(case.status, case.earned) for case in await reader.side("r1", "small", 0)] == [
        (CaseStatus.PASSED, 3.5),
        (CaseStatus.PASSED, None),
    ]
    judged = await reader.side("r1", "small")
    assert [case.status for case in judged] == [CaseStatus.PASSED, CaseStatus.FAILED]
    assert [case.origin for case in judged] == [("r1", 101), ("r1", 102)], "the same replies, judged again"


async def test_a_case_that_was_reopened_keeps_its_first_failure(database: str, reader: Reader) -> None:
    run, recorder = await started(database, 1)
    await recorder.commit(batch(run.run_key, evidence(101, 0, verdict=Verdict.FAILED)))
    await recorder.finish("completed", None)
    await recorder.close()
    await reopen(database, "r1", (CaseStatus.FAILED,), who="me", why="flaky")
    again = await resumed(database)
    await again.commit(batch(run.run_key, evidence(102, 0)))
    await again.close()
    assert [facts(case) for case in await reader.side("r1", "small")] == [(0, CaseStatus.FAILED, None, ("r1", 101))]


async def test_copies_of_one_attempt_are_known_when_its_run_is_gone(
    database: str, reader: Reader, tmp_path: Path
) -> None:
    run, recorder = await started(database, 2)
    await recorder.commit(batch(run.run_key, evidence(101, 0), evidence(102, 1, started_at=1_760_000_001.5)))
    await recorder.finish("completed", None)
    await recorder.close()
    for name in ("r2", "r3"):
        cases = [(a_case(0), carried("r1", 101)), (a_case(1), carried("r1", 102))]
        await create_run(database, a_run(id=name, cases=cases))
    await delete_run(database, "r1", FileArtifacts(str(tmp_path)), copy_evidence=True)
    origins = [[case.origin for case in await reader.side(name, "small")] for name in ("r2", "r3")]
    assert origins[0] == origins[1]
    assert None not in origins[0] and len(set(origins[0])) == 2


async def test_a_run_that_is_not_there_is_answered_with_one_like_it(database: str, reader: Reader) -> None:
    await create_run(database, a_run(id="7f3k2m0q1x"))
    with pytest.raises(ConfigurationError, match=r"there is no run '7f3k2m0q1y': did you mean 7f3k2m0q1x\?"):
        await reader.find_run("7f3k2m0q1y")
    with pytest.raises(ConfigurationError, match=r"there is no run '7g3': did you mean 7f3k2m0q1x\?"):
        await reader.find_run("7g3")
    with pytest.raises(ConfigurationError, match="there is no run 'zzz'; `orchestrate runs` lists them"):
        await reader.find_run("zzz")
