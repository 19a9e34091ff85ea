"""Attempts judged again: kept apart by grading, seen only once whole, and read by all that reads verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalfleet.errors import ConfigurationError, FailureKind, RunHeld
from evalfleet.model.events import Message, Role
from evalfleet.model.grading import Basis, Regrading
from evalfleet.model.record import AttemptEvidence, CommitBatch
from evalfleet.model.verdict import CaseStatus, Outcome, ScoreState, Settlement, Style, Verdict
from evalfleet.store.artifacts import FileArtifacts
from evalfleet.store.connection import connect
from evalfleet.store.creation import create_run
from evalfleet.store.gradings import RecordedAttempt, Regrader
from evalfleet.store.history import resembling, settled_before
from evalfleet.store.lifecycle import delete_run, reopen
from evalfleet.store.planned import Presettled
from evalfleet.store.reader import CaseFilter, Reader
from evalfleet.store.rows import EvidenceEncoder
from evalfleet.store.transfer import export_run, import_run
from tests.integration.store.judged_again import as_verdicts, judge_again, kept
from tests.integration.store.samples import (
    OTHER,
    a_case,
    a_run,
    batch,
    claimed,
    errored,
    evidence,
    priced,
    resumed,
    started,
)
from tests.integration.store.sql import one, rows
from tests.unit.store.test_rows import CHANGES

WEIRD = "nul \0, lone \ud800, emoji \U0001f600"
PASSED, FAILED, ERRORED = Verdict.PASSED, Verdict.FAILED, Verdict.ERRORED


async def finished(url: str, *attempts: AttemptEvidence, cases: int = 4, **changes: Any) -> int:
    """The key of a completed run of these attempts."""
    run, recorder = await started(url, cases, **changes)
    await recorder.commit(batch(run.run_key, *attempts))
    await recorder.finish("completed", None)
    await recorder.close()
    return run.run_key


def unavailable(attempt: int, case: int, **changes: Any) -> AttemptEvidence:
    given = {"verdict": ERRORED, "kind": FailureKind.JUDGE, "code": "ASSERTION_UNAVAILABLE"}
    return evidence(attempt, case, **{**given, **changes})


@pytest.fixture
async def reader(database: str) -> AsyncIterator[Reader]:
    opened = Reader(database)
    yield opened
    await opened.close()


async def verdicts(reader: Reader, grading: int | None = None, run: str = "r1") -> list[Verdict | None]:
    return [view.verdict for view in await reader.cases(run, grading=grading)]


async def test_a_grading_is_read_by_default_and_the_sealed_verdicts_stay(database: str, reader: Reader) -> None:
    await finished(database, *(priced(100 + n, n, 0.5) for n in range(4)))
    assert await judge_again(database, "r1", as_verdicts({0: FAILED, 1: FAILED})) == 1
    assert (await reader.find_run("r1")).grading == 1
    assert await verdicts(reader) == [FAILED, FAILED, PASSED, PASSED]
    assert await verdicts(reader, 0) == [PASSED] * 4
    assert [view.message for view in await reader.cases("r1")] == ["now failed", "now failed", None, None]
    assert [view.status for view in await reader.cases("r1", CaseFilter(statuses=(CaseStatus.FAILED,)))] == [
        CaseStatus.FAILED
    ] * 2
    (now,), (before,) = (await reader.aggregate("r1")).arms[:1], (await reader.aggregate("r1", 0)).arms[:1]
    assert (now.passed, now.failed, before.passed, before.failed) == (2, 2, 4, 0)
    assert (now.cost_usd, now.attempts, now.seconds) == (before.cost_usd, before.attempts, before.seconds)
    assert now.by_eval != before.by_eval
    (attempt,) = await reader.attempts("r1", 0)
    assert (attempt.verdict, attempt.message, attempt.outcome) == (FAILED, "now failed", Outcome.COMPLETED)


async def test_two_gradings_are_kept_apart_with_their_assertions(database: str, reader: Reader) -> None:
    await finished(database, *(evidence(100 + n, n) for n in range(4)))
    await judge_again(database, "r1", as_verdicts({0: FAILED}))
    await judge_again(database, "r1", as_verdicts({1: FAILED}))
    found = [await verdicts(reader, number) for number in (0, 1, 2)]
    assert found == [
        [PASSED] * 4,
        [FAILED, PASSED, PASSED, PASSED],
        [FAILED, FAILED, PASSED, PASSED],  # the first was kept from the grading before
    ]
    details = [await reader.attempt_detail("r1", 100, number) for number in (0, 1, 2)]
    assert [detail.assertions[0].label for detail in details] == [None, "renamed", "renamed"]
    assert [(detail.basis, detail.view.message) for detail in details] == [
        (None, None),
        (Basis.REPLAYED, "now failed"),
        (Basis.KEPT, "now failed"),
    ]
    assert [detail.turns for detail in details] == [details[0].turns] * 3
    assert details[2].kept_because == "not-recorded: a test says so"
    told = [(each.number, each.who, each.why, each.evaluation, each.sources) for each in await reader.gradings("r1")]
    assert told == [(number, "ann", "stricter", 1, {"sql": "ab" * 32}) for number in (1, 2)]
    with pytest.raises(ConfigurationError, match="run r1 has no grading 3, only 0 to 2"):
        await reader.cases("r1", grading=3)
    assert await rows(
        database, "SELECT attempt, grading, label FROM assertions WHERE attempt IN (100, 101) ORDER BY 1, 2"
    ) == [(100, 0, None), (100, 1, "renamed"), (101, 0, None), (101, 2, "renamed")]


async def test_records_in_bulk_say_what_single_ones_say(database: str, reader: Reader) -> None:
    await finished(database, *(evidence(100 + n, n) for n in range(4)))
    await judge_again(database, "r1", as_verdicts({0: FAILED, 2: FAILED}))
    for grading in (None, 0, 1):
        cases = await reader.cases("r1", grading=grading)
        bulk = [detail async for _, detail in reader.records("r1", cases, grading)]
        assert bulk == [await reader.attempt_detail("r1", 100 + n, grading) for n in range(4)]


async def test_everything_of_a_judgement_reads_back_exactly(database: str, reader: Reader) -> None:
    await finished(database, evidence(100, 0))

    def judge(found: RecordedAttempt) -> Regrading:
        summary = replace(found.evidence.summary, verdict=FAILED, message=WEIRD, earned=float("inf"))
        summary = replace(summary, score_state=ScoreState.COMPLETE)
        row = replace(found.evidence.assertions[0], label=WEIRD, criterion=[float("nan"), 2**70])
        judged = replace(found.evidence, summary=summary, assertions=(row,), diagnostics=(WEIRD,))
        return Regrading(evidence=judged, basis=Basis.FOLDED)

    await judge_again(database, "r1", judge)
    detail = await reader.attempt_detail("r1", 100)
    assert (detail.view.message, detail.diagnostics, detail.basis) == (WEIRD, (WEIRD,), Basis.FOLDED)
    assert detail.view.text_sanitised
    assert (detail.assertions[0].label, repr(detail.assertions[0].criterion)) == (WEIRD, f"[nan, {2**70}]")
    found = await one(database, "SELECT sanitised, number_marks, earned FROM judgements")
    assert found == (True, "earned=inf", None)


async def test_what_is_read_to_be_judged_is_what_was_recorded(database: str, tmp_path: Path) -> None:
    artifacts = FileArtifacts(str(tmp_path))
    noise = "".join(chr(0x4E00 + (n * n * 2654435761 >> 7) % 20000) for n in range(700_000))
    large = evidence(100, 0, message=WEIRD, skip_reason="why", score_state=ScoreState.PARTIAL, earned=2.5)
    large = replace(large, turns=(replace(large.turns[0], events=(Message(Role.USER, noise + WEIRD),)),))
    large = replace(large, attribution=CHANGES)
    case = a_case(0, tags=("t",), variants={"v": "x"}, style=Style.SCORE, repetition=0)
    run_key, recorder = await claimed(database, [(case, None)])
    sealed = await EvidenceEncoder(run_key, artifacts, "r1").encode(large)
    write = batch(run_key, large).attempts[0]
    await recorder.commit(CommitBatch((replace(write, sealed=sealed),)))
    await recorder.finish("completed", None)
    await recorder.close()
    regrader = await Regrader.open(database, "r1", artifacts)
    pages = [page async for page in regrader.pages()]
    await regrader.close()
    ((found,),) = pages
    listed = replace(large, summary=replace(large.summary, reply=None))  # what only a listing shows is not read
    assert found == RecordedAttempt(case, listed, PASSED)


# --- which attempts -------------------------------------------------------------------------------------------


async def test_pages_bring_every_settled_attempt_once(database: str) -> None:
    count = 1_203
    run, recorder = await started(database, count)
    await recorder.commit(batch(run.run_key, *(evidence(1_000 + n, n) for n in range(count) if n % 5)))
    await recorder.finish("limited", "budget")
    await recorder.close()
    regrader = await Regrader.open(database, "r1", FileArtifacts("/nowhere"))
    found = [[each.case.ordinal for each in page] async for page in regrader.pages()]
    await regrader.close()
    assert [ordinal for page in found for ordinal in page] == [n for n in range(count) if n % 5]
    assert max(map(len, found)) == 500


async def test_only_what_a_judge_or_missing_evidence_kept_open_is_judged_again(database: str, reader: Reader) -> None:
    kinds = {"kind": FailureKind.ADAPTER, "code": "ASSERTION_UNAVAILABLE"}
    broken = {"kind": FailureKind.GRADER, "code": "EVALUATION_FAILED", "outcome": Outcome.ERRORED}
    attempts = [
        unavailable(100, 0),
        unavailable(101, 1, **kinds),
        unavailable(102, 2, kind=FailureKind.GRADER, code="ASSERTION_ERRORED"),
        unavailable(103, 3, **broken),
        errored(104, 4),
        evidence(105, 5),
        unavailable(106, 6, kind=FailureKind.AUTHORING, code="NO_ASSERTIONS"),
    ]
    await finished(database, *attempts, cases=7)
    everywhere = as_verdicts(dict.fromkeys(range(7), PASSED))
    await judge_again(database, "r1", everywhere, only_unavailable=True)
    assert await verdicts(reader) == [PASSED] * 4 + [ERRORED, PASSED, ERRORED]
    assert [(await reader.attempt_detail("r1", 100 + n)).basis for n in range(7)] == [
        *[Basis.REPLAYED] * 4,
        *[Basis.KEPT] * 3,
    ]
    kinds_kept = [(view.kind, view.code) for view in (await reader.cases("r1"))[4:]]
    assert kinds_kept == [(FailureKind.PROVIDER, "BOOM"), (None, None), (FailureKind.AUTHORING, "NO_ASSERTIONS")]
    regrader = await Regrader.open(database, "r1", FileArtifacts("/nowhere"))
    assert [page async for page in regrader.pages(only_unavailable=True)] == [], "by the grading that counts now"
    await regrader.close()


async def test_interrupted_and_unsettled_cases_and_carried_ones_are_left_alone(database: str, reader: Reader) -> None:
    carried = Presettled(how=Settlement.CARRIED, verdict=PASSED, from_run="old", from_attempt=5)
    run_key, recorder = await claimed(database, [(a_case(0), None), (a_case(1), carried), (a_case(2), None)])
    await recorder.commit(batch(run_key, evidence(100, 0)))
    await recorder.finish("cancelled", None)
    await recorder.close()
    await judge_again(database, "r1", as_verdicts(dict.fromkeys(range(3), FAILED)))
    assert await verdicts(reader) == [FAILED, PASSED, None]
    assert await rows(database, "SELECT attempt FROM judgements") == [(100,)]


async def test_a_first_failure_that_was_retried_is_judged_again_too(database: str, reader: Reader) -> None:
    run_key = await finished(database, evidence(100, 0, verdict=FAILED), evidence(101, 1), cases=2)
    await reopen(database, "r1", (CaseStatus.FAILED,), who="ann", why="flaky")
    recorder = await resumed(database)
    await recorder.commit(batch(run_key, evidence(102, 0)))
    await recorder.finish("completed", None)
    await recorder.close()
    assert await verdicts(reader) == [FAILED, PASSED], "the first verdict counts"

    def all_pass(found: RecordedAttempt) -> Regrading:
        return as_verdicts({0: PASSED, 1: PASSED})(found)

    await judge_again(database, "r1", all_pass)
    assert await verdicts(reader) == [PASSED, PASSED]
    arms = [(await reader.aggregate("r1", grading)).arms[0] for grading in (0, 1)]
    assert [(arm.passed, arm.failed, arm.retried_verdict) for arm in arms] == [(1, 1, 1), (2, 0, 0)]


# --- when -----------------------------------------------------------------------------------------------------


async def test_a_run_that_is_worked_on_is_refused_with_who_does(database: str) -> None:
    _, recorder = await started(database)
    with pytest.raises(RunHeld, match=r"run r1 is being worked on by process 11 on here; cancel it or wait"):
        await Regrader.open(database, "r1", FileArtifacts("/nowhere"))
    await recorder.close()
    with pytest.raises(ConfigurationError, match="there is no run nobody"):
        await Regrader.open(database, "nobody", FileArtifacts("/nowhere"))


async def test_nothing_of_a_pass_is_seen_before_its_end_or_ever_without(database: str, reader: Reader) -> None:
    await finished(database, *(evidence(100 + n, n) for n in range(4)))
    regrader = await Regrader.open(database, "r1", FileArtifacts("/nowhere"))
    async for page in regrader.pages():
        await regrader.add([regrader.encode(as_verdicts({0: FAILED})(found)) for found in page])
    assert await verdicts(reader) == [PASSED] * 4
    assert await one(database, "SELECT count(*) FROM judgements") == (0,)
    await regrader.close()
    assert (await reader.find_run("r1")).grading == 0
    assert await one(database, "SELECT count(*) FROM gradings") == (0,)


async def gathered(url: str, verdict: Verdict) -> Regrader:
    regrader = await Regrader.open(url, "r1", FileArtifacts("/nowhere"))
    async for page in regrader.pages():
        await regrader.add([regrader.encode(as_verdicts({0: verdict})(found)) for found in page])
    return regrader


async def committed(regrader: Regrader) -> int | str:
    try:
        return await regrader.commit(who="ann", why="x", evaluation=1, sources={})
    except RunHeld as error:
        return str(error)


async def test_of_two_passes_at_once_one_wins_and_the_other_says_so(database: str, reader: Reader) -> None:
    await finished(database, *(evidence(100 + n, n) for n in range(4)))
    passes = [await gathered(database, FAILED), await gathered(database, ERRORED)]
    answers = await asyncio.gather(*map(committed, passes))
    for each in passes:
        await each.close()
    assert sorted(map(str, answers))[0] == "1"
    assert "somebody else judged it; nothing was kept (orchestrate rescore r1 does it again)" in str(
        next(answer for answer in answers if answer != 1)
    )
    winner = (FAILED, ERRORED)[answers.index(1)]
    assert (await verdicts(reader))[0] is winner
    assert await one(database, "SELECT count(*) FROM judgements") == (4,)
    assert await one(database, "SELECT count(*) FROM gradings") == (1,)


async def test_a_run_that_went_on_or_was_reopened_meanwhile_is_not_graded(database: str, reader: Reader) -> None:
    run_key = await finished(database, evidence(100, 0, verdict=FAILED), cases=2)
    late = await gathered(database, PASSED)
    recorder = await resumed(database)
    await recorder.commit(batch(run_key, evidence(101, 1)))
    await recorder.finish("completed", None)
    await recorder.close()
    assert "it went on, was reopened" in str(await committed(late))
    again = await gathered(database, PASSED)
    await reopen(database, "r1", (CaseStatus.FAILED,), who="ann", why="flaky")
    assert "it went on, was reopened" in str(await committed(again))
    for each in (late, again):
        await each.close()
    assert (await reader.find_run("r1")).grading == 0


async def test_what_a_run_adds_after_a_grading_is_judged_as_it_is_sealed(database: str, reader: Reader) -> None:
    run_key = await finished(database, evidence(100, 0), cases=2)
    await judge_again(database, "r1", as_verdicts({0: FAILED}))
    recorder = await resumed(database)
    await recorder.commit(batch(run_key, evidence(101, 1)))
    await recorder.close()
    assert await verdicts(reader) == [FAILED, PASSED]
    arm = (await reader.aggregate("r1")).arms[0]
    assert (arm.passed, arm.failed) == (1, 1)


# --- who reads verdicts ---------------------------------------------------------------------------------------


async def test_a_reopening_goes_by_the_grading_that_counts(database: str, reader: Reader) -> None:
    await finished(database, evidence(100, 0, verdict=FAILED), evidence(101, 1), cases=2)
    await judge_again(database, "r1", as_verdicts({0: PASSED, 1: FAILED}))
    assert await reopen(database, "r1", (CaseStatus.FAILED,), who="ann", why="flaky") == 1
    assert await rows(database, "SELECT ordinal FROM settlements WHERE superseded_at IS NOT NULL") == [(1,)]


async def test_a_run_that_goes_on_counts_by_the_grading_that_counts(database: str) -> None:
    judges_fault = [unavailable(100, 0), unavailable(101, 1), evidence(102, 2), evidence(103, 3)]
    run_key = await finished(database, *judges_fault, cases=6)
    await judge_again(database, "r1", as_verdicts({0: PASSED, 2: ERRORED, 3: FAILED}))
    recorder = await resumed(database)
    claim = await recorder.claim(OTHER, takeover=True)
    assert (claim.tallies, claim.failures, claim.settled) == ({"passed": 1, "errored": 2, "failed": 1}, 0, 4)
    await recorder.commit(batch(run_key, unavailable(104, 4)))
    claim = await recorder.claim(OTHER, takeover=True)
    assert (claim.tallies, claim.failures) == ({"passed": 1, "errored": 3, "failed": 1}, 1), "a limit counts its own"
    await recorder.finish("limited", "max_failures")
    assert await reopen(database, "r1", (CaseStatus.ERRORED,), who="ann", why="mended") == 3
    claim = await recorder.claim(OTHER, takeover=True)
    assert (claim.tallies, claim.failures) == ({"passed": 1, "failed": 1}, 0)
    await recorder.close()


async def test_reuse_takes_the_grading_that_counts_and_its_evidence(database: str, reader: Reader) -> None:
    lock = {"parts": {"evals": {"sql": {"source": "ab" * 32}}}}
    await finished(database, *(evidence(100 + n, n) for n in range(2)), cases=2, lock=lock)
    await judge_again(database, "r1", as_verdicts({0: FAILED}))
    keys = [(a_case(n).fingerprint or "", 0) for n in range(2)]
    async with await connect(database, autocommit=True) as connection:
        past = await settled_before(connection, "shop", keys)
        alike = await resembling(connection, "shop", "sweep")
    found = [past[key] for key in keys]
    assert [(each.verdict, each.grading, each.attempt) for each in found] == [(FAILED, 1, 100), (PASSED, 1, 101)]
    assert [(each.verdict, each.grading) for each in alike.values()] == [(FAILED, 1), (PASSED, 1)]
    carried = Presettled(how=Settlement.CARRIED, verdict=FAILED, from_run="r1", from_attempt=100, from_grading=1)
    await create_run(database, a_run(id="r2", cases=[(a_case(0), carried)]))
    await judge_again(database, "r1", as_verdicts({0: PASSED, 1: PASSED}))
    (view,) = await reader.cases("r2")
    assert (view.carried_from, view.carried_grading, view.verdict) == (("r1", 100), 1, FAILED)
    (pair,) = [each async for each in reader.records("r2", [view])]
    assert pair[1] is not None
    assert (pair[1].view.verdict, pair[1].assertions[0].label) == (FAILED, "renamed")


async def test_what_another_version_of_the_eval_judged_is_not_carried(database: str) -> None:
    lock = {"parts": {"evals": {"sql": {"source": "cd" * 32}}}}
    await finished(database, *(evidence(100 + n, n) for n in range(2)), cases=2, lock=lock)
    await judge_again(database, "r1", as_verdicts({0: FAILED}))
    keys = [(a_case(n).fingerprint or "", 0) for n in range(2)]
    async with await connect(database, autocommit=True) as connection:
        past = await settled_before(connection, "shop", keys)
    assert {key: found.verdict for key, found in past.items()} == {keys[1]: PASSED}, "which was kept as it was sealed"


async def test_evidence_that_is_copied_brings_its_gradings(database: str, reader: Reader, tmp_path: Path) -> None:
    await finished(database, *(evidence(100 + n, n) for n in range(2)), cases=2)
    await judge_again(database, "r1", as_verdicts({0: FAILED}))
    await judge_again(database, "r1", kept)
    carried = Presettled(how=Settlement.CARRIED, verdict=FAILED, from_run="r1", from_attempt=100, from_grading=2)
    await create_run(database, a_run(id="r2", cases=[(a_case(0), carried)]))
    (before,) = [detail async for _, detail in reader.records("r2", await reader.cases("r2"))]
    await delete_run(database, "r1", FileArtifacts(str(tmp_path)), copy_evidence=True)
    (after,) = [detail async for _, detail in reader.records("r2", await reader.cases("r2"))]
    assert before is not None and after is not None
    assert (after.assertions, after.basis, after.view.verdict) == (before.assertions, before.basis, FAILED)
    assert await one(database, "SELECT count(*) FROM judgements") == (2,)


async def test_gradings_travel_with_a_run(database: str, other_database: str, reader: Reader, tmp_path: Path) -> None:
    await finished(database, *(evidence(100 + n, n) for n in range(4)))
    await judge_again(database, "r1", as_verdicts({0: FAILED}))
    await judge_again(database, "r1", as_verdicts({1: FAILED}))
    artifacts = FileArtifacts(str(tmp_path / "artifacts"))
    await export_run(database, "r1", tmp_path / "r1.evalfleet", artifacts)
    await import_run(other_database, tmp_path / "r1.evalfleet", artifacts)
    there = Reader(other_database)
    for grading in (None, 0, 1, 2):
        assert await there.cases("r1", grading=grading) == await reader.cases("r1", grading=grading)
        assert await there.attempt_detail("r1", 100, grading) == await reader.attempt_detail("r1", 100, grading)
    assert await there.gradings("r1") == await reader.gradings("r1")
    await there.close()


async def test_a_deleted_run_leaves_no_grading(database: str, tmp_path: Path) -> None:
    await finished(database, evidence(100, 0))
    await judge_again(database, "r1")
    await delete_run(database, "r1", FileArtifacts(str(tmp_path)))
    for table in ("gradings", "judgements", "assertions"):
        assert await one(database, f"SELECT count(*) FROM {table}") == (0,)
