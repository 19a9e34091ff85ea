"""From planned to sealed: what an attempt becomes, whatever happens in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from evalfleet.assertions.matchers import equals, includes
from evalfleet.errors import Acceptance, AttemptFailure, FailureKind, SendFailure
from evalfleet.execution.attempt import AttemptControl, AttemptJob, AttemptServices, Stage, run_attempt
from evalfleet.execution.threads import AuthorThreads
from evalfleet.model.definition import SandboxSpec
from evalfleet.model.turn import Turn, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.model.verdict import Outcome, Verdict
from evalfleet.ports import AdapterContext, Session
from evalfleet.testing.fakes import FakeAdapter, FakeClock, FakeSandboxes


async def passes(t: Any) -> None:
    turn = await t.send("it is sunny")
    t.check(turn.reply, includes("sunny"))


def passes_plain(t: Any) -> None:
    turn = t.send("it is sunny")
    t.check(turn.reply, includes("sunny"))


@pytest.mark.parametrize("body", [passes, passes_plain])
async def test_async_and_plain_bodies_pass_the_same_way(attempt: Any, body: Any) -> None:
    evidence = await attempt(body)
    summary = evidence.summary
    assert (summary.outcome, summary.verdict, summary.kind) == (Outcome.COMPLETED, Verdict.PASSED, None)
    assert (summary.turns, summary.events, summary.assertions) == (1, 2, 1)
    assert (summary.attempt, summary.case, summary.reply) == (11, 7, "it is sunny")
    [turn] = evidence.turns
    assert [event.text for event in turn.events] == ["it is sunny", "it is sunny"]
    [row] = evidence.assertions
    assert (row.name, row.scope, row.holds) == ("check", "value", True)
    assert row.source is not None and row.source.startswith("test_attempt_lifecycle.py:")


async def fails(t: Any) -> None:
    t.check((await t.send("rain")).reply, includes("sunny"))


async def skips(t: Any) -> None:
    t.skip("not on this model")


async def asserts_nothing(t: Any) -> None:
    await t.send("hello")


async def raises(t: Any) -> None:
    raise ValueError("boom")


async def exits(t: Any) -> None:
    raise SystemExit(3)


class Strange(BaseException):
    pass


async def raises_base(t: Any) -> None:
    raise Strange("odd")


async def yields(t: Any) -> Any:
    yield await t.send("x")


def yields_plainly(t: Any) -> Any:
    yield t.send("x")


def returns_coroutine(t: Any) -> Any:
    return asyncio.sleep(0)


async def cancels_itself(t: Any) -> None:
    raise asyncio.CancelledError


async def cancels_its_task(t: Any) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def stops_the_iteration(t: Any) -> None:
    raise StopIteration


async def ends_the_generator(t: Any) -> None:
    raise GeneratorExit


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class Exiting(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


async def raises_exiting(t: Any) -> None:
    raise Exiting


async def raises_silent(t: Any) -> None:
    raise Silent


class Keyword(Exception):
    """RY-01: an exception that can't be rebuilt from its arguments."""

    def __init__(self, *, code: int) -> None:
        super().__init__("boom")
        self.lock = asyncio.Lock()


async def raises_keyword(t: Any) -> None:
    raise Keyword(code=3)


def blocks_signal(t: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("body", "verdict", "kind", "code", "text"),
    [
        (fails, Verdict.FAILED, None, None, "check"),
        (skips, Verdict.SKIPPED, None, None, "not on this model"),
        (asserts_nothing, Verdict.ERRORED, FailureKind.AUTHORING, "NO_ASSERTIONS", "no assertion"),
        (raises, Verdict.ERRORED, FailureKind.AUTHORING, "EVAL_RAISED", "ValueError: boom"),
        (exits, Verdict.ERRORED, FailureKind.AUTHORING, "EVAL_RAISED", "SystemExit: 3"),
        (raises_base, Verdict.ERRORED, FailureKind.AUTHORING, "EVAL_RAISED", "Strange: odd"),
        (yields, Verdict.ERRORED, FailureKind.AUTHORING, "INVALID_BODY", "yield"),
        (yields_plainly, Verdict.ERRORED, FailureKind.AUTHORING, "INVALID_BODY", "yield"),
        (returns_coroutine, Verdict.ERRORED, FailureKind.AUTHORING, "INVALID_BODY", "async def"),
        (cancels_itself, Verdict.ERRORED, FailureKind.AUTHORING, "BODY_CANCELLED", "from within"),
        (cancels_its_task, Verdict.ERRORED, FailureKind.AUTHORING, "BODY_CANCELLED", "its own task"),
        (stops_the_iteration, Verdict.ERRORED, FailureKind.AUTHORING, "EVAL_RAISED", "StopIteration"),
        (ends_the_generator, Verdict.ERRORED, FailureKind.AUTHORING, "EXECUTION_FAILED", "GeneratorExit"),
        (raises_silent, Verdict.ERRORED, FailureKind.AUTHORING, "EVAL_RAISED", "Silent: <no message"),
        (raises_exiting, Verdict.ERRORED, FailureKind.AUTHORING, "EVAL_RAISED", "Exiting: <no message"),
        (raises_keyword, Verdict.ERRORED, FailureKind.AUTHORING, "EVAL_RAISED", "Keyword: boom"),
        (blocks_signal, Verdict.ERRORED, FailureKind.AUTHORING, "EVAL_RAISED", "KeyboardInterrupt"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_how_a_body_ends(attempt: Any, body: Any, verdict: Any, kind: Any, code: Any, text: str) -> None:
    summary = (await attempt(body)).summary
    assert (summary.verdict, summary.kind, summary.code) == (verdict, kind, code)
    assert text in summary.message


def answers(error: BaseException) -> Callable[..., Any]:
    async def answer(turn: Any, ctx: Any) -> Turn:
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        (answers(SendFailure("down", kind=FailureKind.PROVIDER, code="HTTP_503")), FailureKind.PROVIDER, "HTTP_503"),
        (answers(SendFailure("crash", kind=FailureKind.AGENT, code="AGENT_RAISED")), FailureKind.AGENT, "AGENT_RAISED"),
        (answers(AttemptFailure(FailureKind.SANDBOX, "LOST", "gone")), FailureKind.SANDBOX, "LOST"),
        (answers(SendFailure("x", kind="nonsense")), FailureKind.ADAPTER, "ADAPTER_RAISED"),  # type: ignore[arg-type]
        (answers(AttemptFailure(FailureKind.AGENT, 5, "x")), FailureKind.ADAPTER, "ADAPTER_RAISED"),  # type: ignore[arg-type]
        (answers(RuntimeError("bug")), FailureKind.ADAPTER, "ADAPTER_RAISED"),
        (answers(AssertionError("bug")), FailureKind.ADAPTER, "ADAPTER_RAISED"),
        (answers(SystemExit(1)), FailureKind.ADAPTER, "ADAPTER_RAISED"),
        (answers(asyncio.CancelledError()), FailureKind.ADAPTER, "ADAPTER_CANCELLED"),
        (lambda turn, ctx: asyncio.sleep(0, "text"), FailureKind.ADAPTER, "INVALID_TURN"),
        (lambda turn, ctx: Turn(data={1, 2}), FailureKind.ADAPTER, "INVALID_TURN"),
    ],
)
async def test_whose_fault_a_failed_send_is(attempt: Any, answer: Any, kind: Any, code: str) -> None:
    evidence = await attempt(passes, answer)
    summary = evidence.summary
    assert (summary.outcome, summary.verdict) == (Outcome.ERRORED, Verdict.ERRORED)
    assert (summary.kind, summary.code) == (kind, code)
    [turn] = evidence.turns
    assert turn.status is TurnStatus.FAILED and turn.failure is not None and turn.failure.startswith(code)


class Closed(FakeAdapter):
    """Opens no session."""

    async def open(self, ctx: AdapterContext) -> Session:
        raise RuntimeError("bug")


async def test_a_session_that_can_not_be_opened_is_told_from_a_send_that_broke(attempt: Any) -> None:
    summary = (await attempt(passes, Closed(answers(RuntimeError("never asked"))))).summary
    assert (summary.kind, summary.code) == (FailureKind.ADAPTER, "SESSION_OPEN_FAILED")


async def test_a_caught_send_failure_is_still_the_attempts_failure(attempt: Any) -> None:
    async def swallows(t: Any) -> None:
        try:
            await t.send("x")
        except AttemptFailure:
            t.check(1, equals(1))

    summary = (await attempt(swallows, answers(SendFailure("down", kind=FailureKind.PROVIDER)))).summary
    assert (summary.verdict, summary.kind, summary.assertions) == (Verdict.ERRORED, FailureKind.PROVIDER, 1)


async def test_a_failed_session_stays_failed(attempt: Any) -> None:
    async def insists(t: Any) -> None:
        for _ in range(2):
            with pytest.raises(AttemptFailure, match="down"):
                await t.send("x")

    adapter = FakeAdapter(answers(SendFailure("down")))
    evidence = await attempt(insists, adapter)
    assert len(evidence.turns) == 1 and len(adapter.sessions[0].sent) == 1


async def test_a_failed_send_keeps_what_came_back_before_it(attempt: Any) -> None:
    partial = Turn(reply="so far", usage=Usage(input_tokens=3))
    evidence = await attempt(passes, answers(SendFailure("broke", partial=partial, retry_after=90)))
    assert evidence.turns[0].reply == "so far"
    assert evidence.summary.usage == Usage(input_tokens=3)
    assert evidence.summary.retry_after == 90


@pytest.mark.parametrize(
    ("asked", "kept"),
    [(0, 0), (7.5, 7.5), (10**30, 86_400), (float("inf"), None), (float("nan"), None), (-1, None), (True, None)],
)
async def test_an_adapter_may_ask_for_a_wait_of_a_day_at_most(attempt: Any, asked: Any, kept: float | None) -> None:
    evidence = await attempt(passes, answers(SendFailure("busy", kind=FailureKind.PROVIDER, retry_after=asked)))
    assert evidence.summary.retry_after == kept


async def none_leaked(threads: AuthorThreads) -> None:
    """Wait until everything that was left behind has ended by itself."""
    async with asyncio.timeout(5):
        while threads.leaked:  # noqa: ASYNC110 - what was left behind tells nobody when it ends
            await asyncio.sleep(0.01)


# --- time -------------------------------------------------------------------------------------------------------


async def hangs(t: Any) -> None:
    await asyncio.sleep(60)


async def hangs_in_send(t: Any) -> None:
    await t.send("x")


async def swallows_cancellation(t: Any) -> None:
    while True:
        try:
            await asyncio.sleep(0.3)
            return
        except asyncio.CancelledError:
            continue


def blocks(t: Any) -> None:
    time.sleep(0.4)
    t.check(1, equals(1))


async def slow_answer(turn: Any, ctx: Any) -> Turn:
    await asyncio.sleep(60)
    raise AssertionError


async def stubborn_answer(turn: Any, ctx: Any) -> Turn:
    for _ in range(4):
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            continue
    return Turn(reply="late")


@pytest.mark.parametrize(
    ("body", "answer", "leaks"),
    [
        (hangs, None, 0),
        (hangs_in_send, slow_answer, 0),
        (swallows_cancellation, None, 1),
        (hangs_in_send, stubborn_answer, 1),
        (blocks, None, 1),
    ],
)
async def test_the_attempt_deadline_settles_it(
    attempt: Any, threads: AuthorThreads, body: Any, answer: Any, leaks: int
) -> None:
    began = time.monotonic()
    evidence = await attempt(body, answer, timeout=0.05)
    assert time.monotonic() - began < 0.35  # deadline + grace
    summary = evidence.summary
    assert (summary.outcome, summary.kind, summary.code) == (Outcome.ERRORED, FailureKind.DEADLINE, "ATTEMPT_TIMEOUT")
    assert summary.message == "the attempt took longer than 0.05 s"
    assert threads.leaked == leaks
    await none_leaked(threads)
    assert evidence.assertions == ()


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(("answer", "leaks"), [(slow_answer, 0), (stubborn_answer, 1)])
async def test_the_turn_deadline_names_itself(
    attempt: Any, threads: AuthorThreads, plain: bool, answer: Any, leaks: int
) -> None:
    def waits_plainly(t: Any) -> None:
        t.send("x")

    evidence = await attempt(waits_plainly if plain else hangs_in_send, answer, turn_timeout=0.05, timeout=5)
    assert (evidence.summary.kind, evidence.summary.code) == (FailureKind.DEADLINE, "TURN_TIMEOUT")
    assert evidence.summary.message == "the turn took longer than 0.05 s"
    assert evidence.turns[0].failure == "TURN_TIMEOUT: the turn took longer than 0.05 s"
    if not plain:
        assert threads.leaked == leaks
    await none_leaked(threads)


@pytest.mark.parametrize("early", [0.0, 0.02])
@pytest.mark.parametrize(
    ("limits", "code", "message"),
    [
        ({"timeout": 5, "turn_timeout": 0.1}, "TURN_TIMEOUT", "the turn took longer than 0.1 s"),
        ({"timeout": 0.1, "turn_timeout": 5}, "ATTEMPT_TIMEOUT", "the attempt took longer than 0.1 s"),
        ({"timeout": 0.1}, "ATTEMPT_TIMEOUT", "the attempt took longer than 0.1 s"),
    ],
)
async def test_an_adapter_that_keeps_the_deadline_itself_names_the_same_limit(
    attempt: Any, early: float, limits: Any, code: str, message: str
) -> None:
    async def punctual(turn: Any, ctx: Any) -> Turn:
        await asyncio.sleep(max(0.0, ctx.deadline - early))
        raise SendFailure("no answer in time", kind=FailureKind.DEADLINE, partial=Turn(reply="so far"))

    evidence = await attempt(hangs_in_send, punctual, **limits)
    assert (evidence.summary.kind, evidence.summary.code) == (FailureKind.DEADLINE, code)
    assert evidence.summary.message == message


async def test_a_turn_deadline_counts_each_turn_alone(attempt: Any) -> None:
    async def answer(turn: Any, ctx: Any) -> Turn:
        assert 0 < ctx.deadline <= 0.2
        await asyncio.sleep(0.06)
        return Turn(reply="ok")

    async def three_turns(t: Any) -> None:
        for _ in range(3):
            (await t.send("x")).succeeded()

    assert (await attempt(three_turns, answer, turn_timeout=0.2)).summary.verdict is Verdict.PASSED


async def test_the_deadline_counts_down_for_the_agent(make_job: Any, make_services: Any) -> None:
    seen: list[float | None] = []
    clock = FakeClock()

    def answer(turn: Any, ctx: Any) -> Turn:
        seen.append(ctx.deadline)
        clock.advance(40)
        return Turn(reply="ok")

    async def two_turns(t: Any) -> None:
        seen.append(t.time_left)
        await t.send("x")
        (await t.send("y")).succeeded()

    job: AttemptJob = make_job(two_turns, answer, timeout=100.0)
    evidence = await run_attempt(job, make_services(clock=clock), AttemptControl())
    assert seen == [100.0, 100.0, 60.0]
    assert evidence.summary.duration == 80.0
    assert [turn.duration for turn in evidence.turns] == [40.0, 40.0]


async def test_what_was_recorded_before_the_deadline_is_kept(attempt: Any) -> None:
    async def answers_once(turn: Any, ctx: Any) -> Turn:
        if turn.text == "two":
            await asyncio.sleep(60)
        return Turn(reply="first")

    async def body(t: Any) -> None:
        (await t.send("one")).succeeded()
        await t.send("two")

    evidence = await attempt(body, answers_once, timeout=0.05)
    assert [(turn.reply, turn.failure is None) for turn in evidence.turns] == [("first", True), ("", False)]
    [row] = evidence.assertions
    assert (row.outcome.result, row.outcome.reason) == ("unavailable", "not-evaluated")


# --- cancelling -------------------------------------------------------------------------------------------------


async def cancelled_while(run: Any, control: AttemptControl) -> Any:
    task = asyncio.ensure_future(run)
    await asyncio.sleep(0.03)
    control.cancel("the run was cancelled")
    return await task


async def test_a_cancelled_attempt_says_why(attempt: Any) -> None:
    control = AttemptControl()
    evidence = await cancelled_while(attempt(hangs_in_send, slow_answer, control=control), control)
    assert (evidence.summary.outcome, evidence.summary.kind) == (Outcome.CANCELLED, FailureKind.CANCELLED)
    assert evidence.summary.message == "the run was cancelled"
    assert evidence.turns[0].failure == "CANCELLED: the run was cancelled"
    assert control.stage is Stage.SEALED


async def test_an_attempt_cancelled_before_it_began_runs_nothing(attempt: Any) -> None:
    control, adapter = AttemptControl(), FakeAdapter([])
    control.cancel("too late")
    evidence = await attempt(passes, adapter, control=control)
    assert evidence.summary.outcome is Outcome.CANCELLED and adapter.sessions == []


async def test_cancelling_a_stubborn_body_gives_it_up(attempt: Any, threads: AuthorThreads) -> None:
    control = AttemptControl()
    evidence = await cancelled_while(attempt(swallows_cancellation, control=control), control)
    assert evidence.summary.outcome is Outcome.CANCELLED and threads.leaked == 1


async def test_a_plain_body_is_released_when_cancelled(attempt: Any, threads: AuthorThreads) -> None:
    def waits(t: Any) -> None:
        t.send("x")

    control = AttemptControl()
    evidence = await cancelled_while(attempt(waits, slow_answer, control=control), control)
    assert evidence.summary.outcome is Outcome.CANCELLED
    await none_leaked(threads)


async def test_cancelling_after_the_end_changes_nothing(attempt: Any) -> None:
    control = AttemptControl()
    evidence = await attempt(passes, control=control)
    control.cancel("late")
    assert evidence.summary.outcome is Outcome.COMPLETED and control.reason is None


async def test_a_cancelled_lane_cleans_up_and_stays_cancelled(attempt: Any) -> None:
    adapter = FakeAdapter(slow_answer)
    task = asyncio.ensure_future(attempt(hangs_in_send, adapter))
    await asyncio.sleep(0.03)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert adapter.sessions[0].closed


async def test_the_stages_are_seen_in_order(attempt: Any) -> None:
    control, seen = AttemptControl(), [Stage.PLANNED]

    async def body(t: Any) -> None:
        seen.append(control.stage)
        (await t.send("x")).succeeded()

    async def closing() -> None:
        seen.append(control.stage)

    class Watched(FakeSandboxes):
        async def create(self, spec: SandboxSpec, owner: str) -> Any:
            seen.append(control.stage)
            return await super().create(spec, owner)

    adapter = FakeAdapter([Turn(reply="ok")])
    adapter.on_close = closing
    await attempt(body, adapter, control=control, sandbox=(Watched(), SandboxSpec()))
    assert [*seen, control.stage] == [Stage.PLANNED, Stage.OPENING, Stage.RUNNING, Stage.RECORDED, Stage.SEALED]
    assert control.started_at is not None


# --- cleaning up ------------------------------------------------------------------------------------------------


async def close_raises() -> None:
    raise OSError("connection reset")


async def close_hangs() -> None:
    await asyncio.sleep(60)


async def close_ignores_cancellation() -> None:
    for _ in range(8):
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            continue


@pytest.mark.parametrize("on_close", [close_raises, close_hangs, close_ignores_cancellation])
@pytest.mark.parametrize(("body", "before"), [(passes, "passed"), (fails, "failed"), (skips, "skipped")])
async def test_a_failed_cleanup_is_errored_and_keeps_the_earlier_outcome(
    attempt: Any, on_close: Any, body: Any, before: str
) -> None:
    adapter = FakeAdapter(lambda turn, ctx: Turn(reply=turn.text))
    adapter.on_close = on_close

    async def sends_first(t: Any) -> None:
        await t.send("x")
        await body(t)

    summary = (await attempt(sends_first, adapter)).summary
    assert (summary.outcome, summary.verdict) == (Outcome.ERRORED, Verdict.ERRORED)
    assert (summary.kind, summary.code) == (FailureKind.ADAPTER, "SESSION_CLOSE_FAILED")
    assert summary.extra == {"outcome_before_cleanup": before}


async def test_an_earlier_failure_stays_the_failure(attempt: Any) -> None:
    adapter = FakeAdapter(answers(SendFailure("down", kind=FailureKind.PROVIDER)))
    adapter.on_close = close_raises
    summary = (await attempt(passes, adapter)).summary
    assert (summary.kind, summary.extra) == (FailureKind.PROVIDER, {"outcome_before_cleanup": "errored"})


@pytest.mark.parametrize("body", [passes, raises, hangs, swallows_cancellation])
async def test_everything_opened_is_closed_whatever_the_body_does(attempt: Any, body: Any) -> None:
    adapter, sandboxes = FakeAdapter(lambda turn, ctx: Turn(reply=turn.text)), FakeSandboxes()

    async def two_sessions(t: Any) -> None:
        await t.send("a")
        await t.new_session().send("b")
        await body(t)

    await attempt(two_sessions, adapter, sandbox=(sandboxes, SandboxSpec()), timeout=0.05)
    assert [session.closed for session in adapter.sessions] == [True, True]
    assert [sandbox.closed for sandbox in sandboxes.made] == [1]


async def test_a_session_that_does_not_close_does_not_keep_the_others_open(attempt: Any) -> None:
    closed: list[int] = []

    async def closing() -> None:
        closed.append(len(closed))
        if len(closed) == 1:
            await asyncio.sleep(60)

    adapter, sandboxes = FakeAdapter(lambda turn, ctx: Turn(reply="ok")), FakeSandboxes()
    adapter.on_close = closing

    async def body(t: Any) -> None:
        await t.send("a")
        (await t.new_session().send("b")).succeeded()

    evidence = await attempt(body, adapter, sandbox=(sandboxes, SandboxSpec()))
    assert evidence.summary.code == "SESSION_CLOSE_FAILED"
    assert closed == [0, 1] and sandboxes.made[0].closed == 1


async def test_a_session_opened_after_it_was_given_up_is_closed(attempt: Any, threads: AuthorThreads) -> None:
    class Late(FakeAdapter):
        async def open(self, ctx: Any) -> Any:
            for _ in range(5):
                try:
                    await asyncio.sleep(0.06)
                except asyncio.CancelledError:
                    continue
            return await super().open(ctx)

    adapter = Late([Turn(reply="ok")])
    evidence = await attempt(hangs_in_send, adapter, timeout=0.02)
    assert evidence.summary.code == "ATTEMPT_TIMEOUT" and threads.leaked == 1
    await none_leaked(threads)
    assert adapter.sessions[0].closed and adapter.sessions[0].sent == []


# --- what a repeated attempt must know --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("external", "body", "answer", "unknown"),
    [
        (True, passes, None, False),  # completed: it settles its case
        (True, raises, None, False),  # nothing was sent
        (True, passes, answers(SendFailure("?")), True),
        (False, passes, answers(SendFailure("?")), False),
    ],
)
async def test_when_an_external_write_may_have_happened(
    attempt: Any, external: bool, body: Any, answer: Any, unknown: bool
) -> None:
    assert (await attempt(body, answer, external=external)).summary.acceptance_unknown is unknown


async def test_a_refused_external_send_is_known_not_to_have_happened(attempt: Any) -> None:
    refused = answers(SendFailure("429", acceptance=Acceptance.REJECTED, kind=FailureKind.PROVIDER))
    assert (await attempt(passes, refused, external=True)).summary.acceptance_unknown is False


async def test_cost_is_estimated_from_usage_and_a_broken_price_list_costs_no_attempt(attempt: Any) -> None:
    turns = [Turn(reply="it is sunny", usage=Usage(input_tokens=10, output_tokens=5))]

    def price(model: str | None, usage: Usage) -> float:
        return usage.total_tokens / 100 if usage.total_tokens else 0.0

    def broken(model: str | None, usage: Usage) -> float:
        raise KeyError(model)

    assert (await attempt(passes, turns, using={"price": price})).summary.estimated_usd == 0.15
    evidence = await attempt(passes, turns, using={"price": broken})
    assert evidence.summary.estimated_usd is None and evidence.summary.verdict is Verdict.PASSED


async def test_services_are_shared_by_many_attempts_at_once(make_job: Any, make_services: Any) -> None:
    services: AttemptServices = make_services()
    jobs = [make_job(passes if number % 2 else passes_plain) for number in range(40)]
    results = await asyncio.gather(*(run_attempt(job, services, AttemptControl()) for job in jobs))
    assert {evidence.summary.verdict for evidence in results} == {Verdict.PASSED}


async def test_a_send_that_is_held_back_begins_when_it_is_let_go(attempt: Any) -> None:
    control, adapter = AttemptControl(), FakeAdapter([Turn(reply="sunny")])
    control.hold(back=True)
    running = asyncio.ensure_future(attempt(passes, adapter, control=control))
    await asyncio.sleep(0.05)
    assert not adapter.sessions and not running.done()
    control.hold(back=False)
    assert (await running).summary.verdict is Verdict.PASSED


async def test_an_attempt_that_is_held_back_can_be_cancelled(attempt: Any) -> None:
    control = AttemptControl()
    control.hold(back=True)
    running = asyncio.ensure_future(attempt(passes, FakeAdapter([]), control=control))
    await asyncio.sleep(0)
    control.cancel("its lease is over")
    assert (await running).summary.outcome is Outcome.CANCELLED
