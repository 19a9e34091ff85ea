"""What lists, reports and views see of a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from evalfleet.errors import ConfigurationError, FailureKind
from evalfleet.model.events import MISSING, Message, Role
from evalfleet.model.record import CommitBatch, Intent, IntentKind, LostAttempt, SettleWithout
from evalfleet.model.sandbox import SandboxUse
from evalfleet.model.usage import Usage
from evalfleet.model.verdict import CaseStatus, Outcome, RunKind, RunStatus, ScoreState, Settlement, Style, Verdict
from evalfleet.store.creation import create_run
from evalfleet.store.lifecycle import reopen
from evalfleet.store.planned import Presettled
from evalfleet.store.reader import CaseFilter, Reader
from tests.integration.store.samples import a_case, a_run, batch, claimed, errored, evidence, priced, resumed, started
from tests.integration.store.sql import execute


@asynccontextmanager
async def reading(url: str) -> AsyncGenerator[Reader]:
    reader = Reader(url)
    try:
        yield reader
    finally:
        await reader.close()


CARRIED = Presettled(how=Settlement.CARRIED, verdict=Verdict.PASSED, from_run="old", from_attempt=77)
BLOCKED = Presettled(how=Settlement.BLOCKED, code="EXTERNAL_WRITES_NOT_AUTHORIZED")


# --- runs -----------------------------------------------------------------------------------------------------


async def test_runs_are_listed_newest_first_and_in_pages(database: str) -> None:
    for name in ("a1", "a2", "b1"):
        await create_run(database, a_run(id=name))
    await create_run(database, a_run(id="t1", kind=RunKind.TRY))
    async with reading(database) as reader:
        assert [run.id for run in await reader.runs()] == ["b1", "a2", "a1"]
        assert [run.id for run in await reader.runs(tries=True)] == ["t1", "b1", "a2", "a1"]
        assert [run.id for run in await reader.runs(limit=1, before="b1")] == ["a2"]


async def test_a_run_is_found_by_an_unambiguous_prefix(database: str) -> None:
    for name in ("abc", "abd", "ab", "x_1", "xy1"):
        await create_run(database, a_run(id=name))
    async with reading(database) as reader:
        assert (await reader.find_run("abc")).id == "abc"
        assert (await reader.find_run("ab")).id == "ab", "an exact id wins"
        assert (await reader.find_run("x_")).id == "x_1", "an underscore is no wildcard"
        with pytest.raises(ConfigurationError, match="'a' begins several runs: ab, abc, abd"):
            await reader.find_run("a")
        for absent in ("zzz", ""):
            with pytest.raises(ConfigurationError, match="there is no run"):
                await reader.find_run(absent)


async def test_reading_cases_does_not_read_what_the_run_was_planned_from(database: str) -> None:
    await create_run(database, a_run())
    await execute(database, "UPDATE runs SET lock = 'no JSON'")
    async with reading(database) as reader:
        page = await reader.cases("r1")
        assert [case.ordinal for case in page] == [0, 1, 2]
        assert [case.ordinal async for case, _ in reader.records("r1", page)] == [0, 1, 2]
        with pytest.raises(ValueError, match="Expecting value"):
            await reader.find_run("r1")


async def test_a_run_says_what_was_planned(database: str) -> None:
    await create_run(database, a_run(derived_from="old"))
    async with reading(database) as reader:
        info = await reader.find_run("r1")
    assert (info.status, info.total, info.kind, info.derived_from) == (RunStatus.QUEUED, 3, RunKind.SWEEP, "old")
    assert (info.experiment, info.lock, info.project) == ({"name": "sweep"}, {"python": "3.11"}, "shop")
    assert info.started_at is info.beat is info.holder is None and not info.interrupted


async def test_a_run_whose_coordinator_fell_silent_reads_as_interrupted(database: str) -> None:
    _, recorder = await started(database)
    async with reading(database) as reader:
        info = await reader.find_run("r1")
        assert (info.status, info.interrupted, info.holder) == (
            RunStatus.RUNNING,
            False,
            {"id": "actor-1", "host": "here", "pid": 11},
        )
        await execute(database, "UPDATE runs SET beat = clock_timestamp() - interval '16 s'")
        assert (await reader.find_run("r1")).interrupted
        await recorder.finish("completed", None)
        assert not (await reader.find_run("r1")).interrupted
    await recorder.close()


# --- aggregate ------------------------------------------------------------------------------------------------


async def test_classes_are_exclusive_and_sum_to_the_plan(database: str) -> None:
    decided = {8: CARRIED, 9: BLOCKED}
    cases = [(a_case(n, arm="big" if n == 11 else "small"), decided.get(n)) for n in range(12)]
    run, recorder = await claimed(database, cases)
    await recorder.commit(
        batch(
            run,
            priced(101, 0, 0.5, duration=1.0),
            evidence(102, 1, verdict=Verdict.FAILED, duration=2.0),
            errored(103, 2, FailureKind.AGENT),
            errored(104, 3, FailureKind.DEADLINE),
            errored(105, 4, FailureKind.PROVIDER),
            evidence(106, 5, verdict=Verdict.SKIPPED, contradicted=True),
            priced(107, 0, 0.25),
        )
    )
    stopped = evidence(108, 6, outcome=Outcome.CANCELLED, verdict=Verdict.ERRORED, kind=FailureKind.CANCELLED)
    await recorder.commit(batch(run, stopped, settles=False))
    died = LostAttempt(109, 7, "w1", FailureKind.WORKER, "WORKER_DIED", 1_760_000_000.0, False)
    not_needed = SettleWithout(10, Settlement.NOT_NEEDED, code="early_exit")
    await recorder.commit(CommitBatch(lost=(died,), settled=(not_needed,)))
    async with reading(database) as reader:
        small, big = (await reader.aggregate("r1")).arms
        views = await reader.cases("r1")
    assert (big.arm, big.planned, big.pending) == ("big", 1, 1)
    assert small.planned == 11
    found = {name: getattr(small, name) for name in _CLASSES}
    assert found == {
        "passed": 2,
        "failed": 1,
        "errored_own": 2,
        "errored_other": 1,
        "skipped": 1,
        "blocked": 1,
        "not_needed": 1,
        "cancelled": 1,
        "pending": 1,
    }
    assert (small.carried, small.attempts, small.cost_usd, small.unknown_cost) == (1, 9, 0.75, 7)
    assert small.failures_by_kind == {"agent": 1, "deadline": 1, "provider": 1, "cancelled": 1, "worker": 1}
    assert (small.input_tokens, small.output_tokens, small.unknown_usage) == (20, 10, 7)
    assert (small.contradicted, big.contradicted) == (1, 0)
    assert small.seconds == {"p50": 0.5, "p95": 2.0, "max": 2.0}
    assert small.by_eval == {(1, 1, 1): 2, (1, 1, 0): 3, (1, 0, 0): 4, (0, 0, 0): 2}
    assert [view.status.value for view in views] == [
        "passed", "failed", "errored", "errored", "errored", "skipped", "cancelled", "pending", "passed", "blocked",
        "not_needed", "pending",
    ]  # fmt: skip
    await recorder.close()


async def test_a_case_given_up_after_lost_attempts_counts_as_errored(database: str) -> None:
    run, recorder = await claimed(database, [(a_case(n), None) for n in range(2)])
    died = LostAttempt(101, 0, "w1", FailureKind.WORKER, "WORKER_DIED", 1_760_000_000.0, True)
    await recorder.commit(CommitBatch(lost=(died,)))
    given_up = SettleWithout(0, Settlement.ATTEMPT, Verdict.ERRORED, None, None, 101)
    await recorder.commit(CommitBatch(settled=(given_up,)))
    await recorder.commit(batch(run, evidence(102, 1)))
    async with reading(database) as reader:
        arm = (await reader.aggregate("r1")).arms[0]
    assert (arm.passed, arm.errored_other, arm.pending) == (1, 1, 0)
    await recorder.close()


async def test_the_largest_counts_add_up(database: str) -> None:
    run, recorder = await claimed(database, [(a_case(n), None) for n in range(3)])
    most = Usage(input_tokens=2**63 - 1, output_tokens=2**63 - 1)
    done = await recorder.commit(batch(run, *(evidence(101 + n, n, usage=most) for n in range(3))))
    assert done.settled == {101, 102, 103}
    async with reading(database) as reader:
        arm = (await reader.aggregate("r1")).arms[0]
    assert (arm.input_tokens, arm.output_tokens, arm.passed) == (3 * (2**63 - 1), 3 * (2**63 - 1), 3)
    await recorder.close()


_CLASSES = (
    "passed", "failed", "errored_own", "errored_other", "skipped", "blocked", "not_needed", "cancelled", "pending",
)  # fmt: skip


async def test_repetitions_are_grouped_by_eval(database: str) -> None:
    """Two evals three times each: (counted, answered, passed) is (3, 3, 2) and, one being skipped, (2, 1, 1)."""
    cases = [(a_case(n, eval_id=f"e{n // 3}", repetition=n % 3), None) for n in range(6)]
    run, recorder = await claimed(database, cases)
    verdicts = [Verdict.PASSED, Verdict.PASSED, Verdict.FAILED, Verdict.PASSED, Verdict.SKIPPED]
    await recorder.commit(batch(run, *(evidence(100 + n, n, verdict=v) for n, v in enumerate(verdicts))))
    async with reading(database) as reader:
        assert (await reader.aggregate("r1")).arms[0].by_eval == {(3, 3, 2): 1, (2, 1, 1): 1}
    await recorder.close()


async def test_scores_add_up_where_they_are_complete(database: str) -> None:
    cases = [(a_case(n, style=Style.SCORE), None) for n in range(4)]
    run, recorder = await claimed(database, cases)
    await recorder.commit(
        batch(
            run,
            evidence(101, 0, score_state=ScoreState.COMPLETE, earned=2.5),
            evidence(102, 1, score_state=ScoreState.COMPLETE, earned=0.0, verdict=Verdict.FAILED),
            evidence(103, 2, score_state=ScoreState.PARTIAL, earned=9.0),
            evidence(104, 3, score_state=ScoreState.COMPLETE, earned=float("nan")),
        )
    )
    async with reading(database) as reader:
        arm = (await reader.aggregate("r1")).arms[0]
        assert (arm.style, arm.earned_sum, arm.score_complete) == (Style.SCORE, 2.5, 3)
        assert (await reader.cases("r1"))[3].earned is None
    await recorder.close()


async def test_a_case_reopened_after_a_failure_keeps_its_first_verdict_in_the_headline(database: str) -> None:
    run, recorder = await started(database)
    first = batch(run.run_key, evidence(101, 0, verdict=Verdict.FAILED), errored(102, 1), evidence(103, 2))
    await recorder.commit(first)
    await recorder.finish("completed", None)
    assert await reopen(database, "r1", (CaseStatus.FAILED, CaseStatus.ERRORED), who="me", why="flaky") == 2
    async with reading(database) as reader:
        open_again = (await reader.aggregate("r1")).arms[0]
        assert (open_again.failed, open_again.errored_other, open_again.pending) == (1, 0, 1)
        await recorder.close()
        again = await resumed(database)
        assert [(p.case.ordinal, p.attempts, p.last_attempt) for p in await again.page(-1, 9)] == [
            (0, 0, None),
            (1, 0, None),
        ]
        await again.commit(batch(run.run_key, evidence(201, 0), evidence(202, 1)))
        arm = (await reader.aggregate("r1")).arms[0]
        assert (arm.passed, arm.failed, arm.errored_other, arm.retried_verdict) == (2, 1, 0, 1)
        views = await reader.cases("r1")
        assert [(view.status.value, view.attempt, view.attempts) for view in views] == [
            ("failed", 101, 2),
            ("passed", 202, 2),
            ("passed", 103, 1),
        ]
        assert [(a.number, a.verdict, a.settles) for a in await reader.attempts("r1", 0)] == [
            (1, Verdict.FAILED, False),
            (2, Verdict.PASSED, True),
        ]
        await again.close()


# --- cases and attempts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("which", "ordinals"),
    [
        (CaseFilter(), [0, 1, 2, 3, 4]),
        (CaseFilter(statuses=(CaseStatus.PASSED,)), [0, 2]),
        (CaseFilter(statuses=(CaseStatus.FAILED, CaseStatus.PENDING)), [1, 3, 4]),
        (CaseFilter(arm="big"), [4]),
        (CaseFilter(arm="none"), []),
        (CaseFilter(prefix="sql/000"), [0, 1, 2, 3]),
        (CaseFilter(prefix="100%_"), [4]),
        (CaseFilter(prefix="100%__"), []),
        (CaseFilter(tag="slow"), [2]),
        (CaseFilter(tag="slow", statuses=(CaseStatus.FAILED,)), []),
    ],
)
async def test_cases_are_filtered(database: str, which: CaseFilter, ordinals: list[int]) -> None:
    special = [a_case(2, tags=("slow", "net")), a_case(3), a_case(4, arm="big", eval_id="100%_sure")]
    run, recorder = await claimed(database, [(case, None) for case in (a_case(0), a_case(1), *special)])
    await recorder.commit(batch(run, evidence(101, 0), evidence(102, 1, verdict=Verdict.FAILED), evidence(103, 2)))
    async with reading(database) as reader:
        assert [view.ordinal for view in await reader.cases("r1", which)] == ordinals
    await recorder.close()


async def test_cases_come_in_pages(database: str) -> None:
    await create_run(database, a_run(5))
    async with reading(database) as reader:
        assert [view.ordinal for view in await reader.cases("r1", after=1, limit=2)] == [2, 3]


async def test_a_leased_case_reads_as_running_while_its_coordinator_lives(database: str) -> None:
    _, recorder = await started(database)
    await recorder.commit(CommitBatch(intents=(Intent(101, 1, "w1", IntentKind.LEASE),)))
    async with reading(database) as reader:
        assert [view.status.value for view in await reader.cases("r1")] == ["pending", "running", "pending"]
        await execute(database, "UPDATE runs SET beat = clock_timestamp() - interval '16 s'")
        assert [view.status.value for view in await reader.cases("r1")] == ["pending"] * 3
    await recorder.close()


async def test_a_carried_case_names_who_executed_it(database: str) -> None:
    await create_run(database, replace(a_run(), cases=[(a_case(0), CARRIED)]))
    async with reading(database) as reader:
        (view,) = await reader.cases("r1")
        assert (view.status, view.settlement, view.carried_from) == (
            CaseStatus.PASSED,
            Settlement.CARRIED,
            ("old", 77),
        )


async def test_evidence_reads_back_exactly_through_the_database(database: str) -> None:
    weird = "nul \0, lone \ud800, emoji \U0001f600, " + "x" * 300
    use = SandboxUse(backend="local", starts=1, making=0.25, using=3.5, closing=0.125)
    unbounded = Usage(input_tokens=10**30)
    base = evidence(101, 0, message=weird, reply=weird, earned=float("nan"), usage=unbounded, sandbox=use)
    events = (Message(Role.USER, weird), Message(Role.ASSISTANT, weird))
    turn = replace(base.turns[0], events=events, data={weird: [10**400, float("inf"), None]})
    found = replace(base, turns=(turn, replace(turn, data=None), replace(turn, data=MISSING)), diagnostics=(weird,))
    run, recorder = await started(database)
    done = await recorder.commit(batch(run.run_key, found, evidence(102, 1)))
    assert done.inserted == {101, 102}
    async with reading(database) as reader:
        detail = await reader.attempt_detail("r1", 101)
        assert (detail.turns, detail.assertions) == (found.turns, found.assertions)
        assert (detail.diagnostics, detail.view.message, detail.sandbox) == (found.diagnostics, weird, use)
        assert (await reader.attempt_detail("r1", 102)).sandbox is None
        assert detail.view.text_sanitised
        assert detail.view.reply == "nul \ufffd, lone \ufffd, emoji \U0001f600, " + "x" * 256
        assert detail.view.usage is None or detail.view.usage.input_tokens is None
    await recorder.close()


async def test_events_are_read_by_range(database: str) -> None:
    base = evidence(101, 0)
    many = tuple(Message(Role.USER, f"{n} " * 200) for n in range(2000))
    turns = (replace(base.turns[0], events=many[:1500]), replace(base.turns[0], sequence=1, events=many[1500:]))
    run, recorder = await started(database)
    await recorder.commit(batch(run.run_key, replace(base, turns=turns), evidence(102, 1)))
    async with reading(database) as reader:
        assert await reader.events("r1", 101, 1498, 1501) == [(n, many[n]) for n in range(1498, 1502)]
        assert [number for number, _ in await reader.events("r1", 101, 1999, 99_999)] == [1999]
        assert await reader.events("r1", 102, 1, 1) == [(1, Message(Role.ASSISTANT, "answer 1"))]
        assert (await reader.attempt_detail("r1", 101)).turns == turns
    await recorder.close()


async def test_an_interrupted_attempt_is_shown_without_evidence(database: str) -> None:
    _, recorder = await started(database)
    died = LostAttempt(101, 0, "w9", FailureKind.WORKER, "WORKER_DIED", 1_760_000_000.0, True)
    await recorder.commit(CommitBatch(lost=(died,)))
    async with reading(database) as reader:
        detail = await reader.attempt_detail("r1", 101)
        assert (detail.view.outcome, detail.view.worker, detail.view.kind) == (
            Outcome.INTERRUPTED,
            "w9",
            FailureKind.WORKER,
        )
        assert detail.turns == () and await reader.events("r1", 101, 0, 9) == []
        with pytest.raises(ConfigurationError, match="has no attempt 999"):
            await reader.attempt_detail("r1", 999)
    await recorder.close()


# --- watching -------------------------------------------------------------------------------------------------


async def test_a_watcher_sees_each_beat_and_the_end(database: str) -> None:
    _, recorder = await started(database)
    body = {
        "total": 3,
        "settled": 0,
        "passed": 0,
        "failed": 0,
        "errored": 0,
        "running": 1,
        "rate": 0.0,
        "cost_usd": 0.0,
    }
    seen: asyncio.Queue[tuple[str, int | None]] = asyncio.Queue()

    async def look(reader: Reader) -> None:
        async for info, progress in reader.watch("r1", every=30.0):
            seen.put_nowait((info.status.value, None if progress is None else progress.settled))

    async with reading(database) as reader:
        watching = asyncio.create_task(look(reader))
        assert await seen.get() == ("running", None)
        assert await recorder.beat({**body, "settled": 2, "unknown_field": 1})
        assert await seen.get() == ("running", 2)
        await recorder.finish("completed", None)
        await asyncio.wait_for(watching, 10)
    assert seen.get_nowait() == ("completed", 2)
    await recorder.close()
