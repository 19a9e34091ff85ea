"""What an assertion looks at, when it is evaluated, and what its handle allows."""

from __future__ import annotations

import asyncio
import linecache
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from evalfleet.assertions.matchers import define_score_match, equals, includes, satisfies, similarity
from evalfleet.assertions.tools import event_match, tool_match
from evalfleet.errors import AttemptFailure, AuthoringError, FailureKind, SendFailure
from evalfleet.model.assertion import Result
from evalfleet.model.coverage import COMPLETE_COVERAGE, Channel, partial, unavailable
from evalfleet.model.events import (
    Event,
    InputOption,
    InputRequested,
    Message,
    OperationFinished,
    OperationKind,
    OperationStarted,
    OperationStatus,
    Role,
    SkillLoaded,
)
from evalfleet.model.turn import InputResponse, Turn, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.model.verdict import Outcome, ScoreState, Style, Verdict
from evalfleet.testing.fakes import FakeAdapter
from tests.unit.execution import failing_asserts as failing


def called(name: str) -> Turn:
    return Turn(reply=f"called {name}", events=(OperationStarted("1", name, {}), OperationFinished("1")))


def results(evidence: Any) -> list[tuple[str, str, str]]:
    return [(row.name, row.scope, row.outcome.result.value) for row in evidence.assertions]


# --- snapshots --------------------------------------------------------------------------------------------------


async def test_a_scope_is_frozen_at_the_call(attempt: Any) -> None:
    async def body(t: Any) -> None:
        t.not_called_tool("search")
        first = await t.send("a")
        t.not_called_tool("search")
        first.used_no_tools()
        other = t.new_session()
        other.max_tool_calls(0)
        await t.send("b")
        first.used_no_tools()
        other.max_tool_calls(0)
        t.not_called_tool("search")
        t.called_tool("search")

    evidence = await attempt(body, [Turn(reply="no tools"), called("search")])
    assert results(evidence) == [
        ("not_called_tool", "t", "matched"),
        ("not_called_tool", "t", "matched"),
        ("used_no_tools", "turn/0/0", "matched"),
        ("max_tool_calls", "session/1", "matched"),
        ("used_no_tools", "turn/0/0", "matched"),
        ("max_tool_calls", "session/1", "matched"),
        ("not_called_tool", "t", "mismatched"),
        ("called_tool", "t", "matched"),
    ]


def speaks_last(found: tuple[Event, ...]) -> bool:
    return isinstance(found[-1], Message)


async def test_every_scoped_assertion_exists_on_t_session_and_turn(attempt: Any) -> None:
    tools = [tool_match("a"), tool_match("b")]
    calls: list[tuple[str, Callable[[Any], Any], Result]] = [
        ("succeeded", lambda s: s.succeeded(), Result.MATCHED),
        ("parked", lambda s: s.parked(), Result.MISMATCHED),
        ("message_includes", lambda s: s.message_includes("done"), Result.MATCHED),
        ("called_tool", lambda s: s.called_tool(tool_match("a").exactly(1)), Result.MATCHED),
        ("not_called_tool", lambda s: s.not_called_tool("b"), Result.MISMATCHED),
        ("tool_order", lambda s: s.tool_order(*tools), Result.MATCHED),
        ("tool_order", lambda s: s.tool_order("b", "a"), Result.MISMATCHED),
        ("used_no_tools", lambda s: s.used_no_tools(), Result.MISMATCHED),
        ("max_tool_calls", lambda s: s.max_tool_calls(2), Result.MATCHED),
        ("no_failed_actions", lambda s: s.no_failed_actions(), Result.MISMATCHED),
        ("event", lambda s: s.event(event_match("message", role="assistant")), Result.MATCHED),
        ("not_event", lambda s: s.not_event("thinking"), Result.MATCHED),
        ("event_order", lambda s: s.event_order("message", "operation.started"), Result.MATCHED),
        ("events_satisfy", lambda s: s.events_satisfy("ends by speaking", speaks_last), Result.MATCHED),
        ("events_satisfy", lambda s: s.events_satisfy("is short", lambda found: len(found) < 3), Result.MISMATCHED),
        ("max_tokens", lambda s: s.max_tokens(14), Result.MISMATCHED),
        ("max_cost", lambda s: s.max_cost(0.5), Result.MATCHED),
        ("max_cost", lambda s: s.max_cost(0.1), Result.MISMATCHED),
        ("called_subagent", lambda s: s.called_subagent("researcher"), Result.MATCHED),
        ("called_subagent", lambda s: s.called_subagent("writer"), Result.MISMATCHED),
        ("loaded_skill", lambda s: s.loaded_skill("sql"), Result.MATCHED),
        ("output_matches", lambda s: s.output_matches({"city": "Brooklyn"}), Result.MATCHED),
        ("output_matches", lambda s: s.output_matches({"city": "Queens"}), Result.MISMATCHED),
        ("output_equals", lambda s: s.output_equals({"n": 1.0, "city": "Brooklyn"}), Result.MATCHED),
        ("output_equals", lambda s: s.output_equals({"city": "Brooklyn"}), Result.MISMATCHED),
        ("check", lambda s: s.check(s.reply, includes("done")), Result.MATCHED),
    ]

    async def body(t: Any) -> None:
        turn = await t.send("go")
        for subject in (t, turn):
            for _, call, _ in calls:
                call(subject)
        session = t.new_session()
        await session.send("go")
        for _, call, _ in calls:
            call(session)

    events = (
        OperationStarted("1", "a"),
        OperationStarted("2", "b"),
        OperationFinished("2", OperationStatus.FAILED),
        OperationFinished("1"),
        OperationStarted("1", "researcher", kind=OperationKind.SUBAGENT),
        OperationFinished("1", kind=OperationKind.SUBAGENT),
        SkillLoaded("sql"),
    )
    turn = Turn(
        reply="done", events=events, data={"city": "Brooklyn", "n": 1}, usage=Usage(input_tokens=10, output_tokens=5)
    )
    evidence = await attempt(body, [turn, turn], using={"price": lambda model, usage: 0.2})
    assert evidence.summary.outcome is Outcome.COMPLETED
    assert [(row.name, row.outcome.result) for row in evidence.assertions] == [
        (name, result) for name, _, result in calls
    ] * 3


async def test_a_send_in_flight_leaves_the_scope_open(attempt: Any) -> None:
    release = asyncio.Event()

    async def answer(turn: Any, ctx: Any) -> Turn:
        if turn.text == "slow":
            await release.wait()
        return Turn(reply="ok")

    async def body(t: Any) -> None:
        other = t.new_session()
        slow = asyncio.ensure_future(other.send("slow"))
        await asyncio.sleep(0)
        turn = await t.send("fast")
        t.used_no_tools().optional()
        turn.used_no_tools()
        release.set()
        await slow
        t.used_no_tools()

    evidence = await attempt(body, answer)
    assert [result for _, _, result in results(evidence)] == ["unavailable", "matched", "matched"]
    assert "scope-still-running" in evidence.assertions[0].outcome.reason
    assert [turn.sequence for turn in evidence.turns] == [0, 1]
    assert [turn.input.text for turn in evidence.turns] == ["slow", "fast"]


async def test_a_checked_value_is_taken_as_it_is(attempt: Any) -> None:
    async def body(t: Any) -> None:
        seen = [1]
        t.check(seen, equals([1]))
        seen.append(2)
        t.check(seen, equals([1, 2]))

    assert [result for _, _, result in results(await attempt(body))] == ["matched", "matched"]


async def test_an_agent_that_changes_what_it_returned_changes_no_evidence(attempt: Any) -> None:
    basket: dict[str, Any] = {"items": [1]}

    def answer(turn: Any, ctx: Any) -> Turn:
        basket["items"].append(len(basket["items"]) + 1)
        return Turn(data=basket, events=(OperationStarted("1", "add", basket),))

    async def body(t: Any) -> None:
        turn = await t.send("a")
        turn.called_tool(tool_match("add", input={"items": [1, 2]}))
        await t.send("b")
        t.check(turn.data["items"], equals([1, 2]))

    evidence = await attempt(body, answer)
    assert evidence.summary.verdict is Verdict.PASSED
    assert [turn.data for turn in evidence.turns] == [{"items": [1, 2]}, {"items": [1, 2, 3]}]


# --- coverage ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "channel"),
    [
        (lambda turn: turn.reply, Channel.MESSAGES),
        (lambda turn: turn.message, Channel.MESSAGES),
        (lambda turn: turn.data, Channel.DATA),
        (lambda turn: turn.status, Channel.STATUS),
        (lambda turn: turn.usage, Channel.USAGE),
    ],
)
async def test_values_read_off_a_turn_obey_their_channel(attempt: Any, read: Any, channel: Channel) -> None:
    async def body(t: Any) -> None:
        t.check(read(await t.send("x")), equals("not this"))

    coverage = COMPLETE_COVERAGE.downgrade({channel: partial("half of it")})
    evidence = await attempt(body, FakeAdapter([Turn(reply="x", data={})], coverage=coverage))
    [row] = evidence.assertions
    assert (row.outcome.result, row.outcome.reason) == (
        Result.UNAVAILABLE,
        f"coverage:{channel.value}=partial (half of it)",
    )
    assert (evidence.summary.verdict, evidence.summary.kind) == (Verdict.ERRORED, FailureKind.ADAPTER)


@pytest.mark.parametrize("holds", [True, False])
async def test_what_all_events_satisfy_is_not_known_of_some(attempt: Any, holds: bool) -> None:
    async def body(t: Any) -> None:
        (await t.send("x")).events_satisfy("says so", lambda _: holds)

    lossy = COMPLETE_COVERAGE.downgrade({Channel.EVENTS: partial("a lossy stream")})
    evidence = await attempt(body, FakeAdapter([Turn(reply="x")], coverage=lossy))
    assert evidence.assertions[0].outcome.reason == "coverage:events=partial (a lossy stream)"
    assert evidence.summary.code == "ASSERTION_UNAVAILABLE"


async def test_a_turn_may_downgrade_and_an_upgrade_is_clamped_and_noted(attempt: Any) -> None:
    declared = COMPLETE_COVERAGE.downgrade({Channel.ACTIONS: unavailable("not exposed")})
    turn = Turn(
        reply="x",
        coverage={Channel.MESSAGES: partial("cut"), Channel.ACTIONS: COMPLETE_COVERAGE.actions},
    )

    async def body(t: Any) -> None:
        (await t.send("x")).succeeded()

    evidence = await attempt(body, FakeAdapter([turn], coverage=declared))
    coverage = evidence.turns[0].coverage
    assert (coverage.messages, coverage.actions) == (partial("cut"), unavailable("not exposed"))
    assert evidence.diagnostics[0] == "turn 0: an upgrade of actions coverage was clamped"


async def test_after_a_failed_send_absence_can_not_be_proved(attempt: Any) -> None:
    async def answer(turn: Any, ctx: Any) -> Turn:
        raise SendFailure("down", kind=FailureKind.AGENT, code="CRASHED")

    async def body(t: Any) -> None:
        with pytest.raises(AttemptFailure):
            await t.send("x")
        t.not_called_tool("rm")
        t.succeeded()

    evidence = await attempt(body, answer)
    assert [result for _, _, result in results(evidence)] == ["unavailable", "mismatched"]


# --- or_stop and skip -------------------------------------------------------------------------------------------


def logging_match(log: list[str], name: str, holds: bool = True) -> Any:
    def predicate(value: Any) -> bool:
        log.append(name)
        return holds

    return satisfies(name, predicate)


async def test_or_stop_settles_what_came_before_in_source_order(attempt: Any) -> None:
    log: list[str] = []

    async def body(t: Any) -> None:
        t.check(1, logging_match(log, "first"))
        t.check(1, logging_match(log, "second", holds=False))
        handle = t.check(1, logging_match(log, "third"))
        t.check(1, logging_match(log, "fourth"))
        log.append("before")
        await handle.or_stop()
        log.append("after")

    evidence = await attempt(body)
    assert log == ["before", "first", "second", "third", "after", "fourth"]
    assert evidence.summary.verdict is Verdict.FAILED


@pytest.mark.parametrize("plain", [False, True])
async def test_or_stop_ends_the_body_and_no_handler_brings_it_back(attempt: Any, plain: bool) -> None:
    reached: list[str] = []

    async def body(t: Any) -> None:
        try:
            await t.check(1, equals(2)).or_stop()
        except BaseException:
            reached.append("caught")
        try:
            t.check(1, equals(1))
        except Exception:
            reached.append("never")
        reached.append("never")

    def plain_body(t: Any) -> None:
        try:
            t.check(1, equals(2)).or_stop()
        except BaseException:
            reached.append("caught")
        t.send("more")
        reached.append("never")

    evidence = await attempt(plain_body if plain else body)
    assert reached == ["caught"]
    assert (evidence.summary.outcome, evidence.summary.verdict) == (Outcome.COMPLETED, Verdict.FAILED)
    assert (len(evidence.assertions), evidence.summary.turns) == (1, 0)


async def test_or_stop_on_what_can_not_be_known_stops_too(attempt: Any) -> None:
    coverage = COMPLETE_COVERAGE.downgrade({Channel.ACTIONS: unavailable("hidden")})

    async def body(t: Any) -> None:
        await (await t.send("x")).used_no_tools().or_stop()
        raise AssertionError("not reached")

    evidence = await attempt(body, FakeAdapter([Turn()], coverage=coverage))
    assert (evidence.summary.verdict, evidence.summary.code) == (Verdict.ERRORED, "ASSERTION_UNAVAILABLE")
    assert len(evidence.assertions) == 1


async def test_or_stop_of_a_measurement_reads_its_threshold(attempt: Any) -> None:
    reached: list[float] = []

    async def body(t: Any) -> None:
        for minimum in (0.5, 0.9):
            await t.check("abcd", similarity("abcx")).at_least(minimum).or_stop()
            reached.append(minimum)

    evidence = await attempt(body)
    assert reached == [0.5] and evidence.summary.verdict is Verdict.PASSED


async def test_a_stop_inside_a_task_group_is_a_stop(attempt: Any) -> None:
    async def body(t: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(stop(t))

    async def stop(t: Any) -> None:
        await t.check(1, equals(2)).or_stop()

    summary = (await attempt(body)).summary
    assert (summary.outcome, summary.verdict) == (Outcome.COMPLETED, Verdict.FAILED)


async def test_an_error_while_stopping_is_an_error(attempt: Any) -> None:
    async def body(t: Any) -> None:
        try:
            await t.check(1, equals(2)).or_stop()
        finally:
            raise ValueError("cleanup of the author")

    assert (await attempt(body)).summary.code == "EVAL_RAISED"


async def test_two_tasks_that_stop_at_once_evaluate_each_assertion_once(attempt: Any) -> None:
    seen: list[str] = []

    async def slow(value: Any) -> bool:
        await asyncio.sleep(0.01)
        seen.append(value)
        return True

    async def body(t: Any) -> None:
        handles = [t.check(name, satisfies("slow", slow)) for name in ("a", "b", "c")]
        await asyncio.gather(*(handle.or_stop() for handle in reversed(handles)))

    assert (await attempt(body)).summary.verdict is Verdict.PASSED
    assert seen == ["a", "b", "c"]


async def test_a_skip_can_not_be_taken_back_and_a_failed_gate_comes_before_it(attempt: Any) -> None:
    async def skips(t: Any) -> None:
        try:
            t.skip("no key")
        except BaseException:
            await t.send("anyway")

    async def fails_first(t: Any) -> None:
        t.check(1, equals(2))
        t.skip("no key")

    evidence = await attempt(skips)
    assert (evidence.summary.verdict, evidence.summary.skip_reason, evidence.turns) == (Verdict.SKIPPED, "no key", ())
    assert (await attempt(fails_first)).summary.verdict is Verdict.FAILED


# --- plain asserts (D4) -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expression", "actual", "expected", "reason"),
    [
        (failing.compares, "reply == 'sun'", "rain", "sun", None),
        (failing.compares_attribute, "turn.status != 'completed'", "completed", "completed", "it was completed"),
        (failing.negates, "not found", [1, 2], None, None),
        (failing.calls, "len([1]) > 2", None, 2, None),
        (failing.spans_lines, "left == {'a': 2}", {"a": 1}, None, None),
        (failing.from_a_helper, "reply == wanted", "rain", "sun", "the helper's words"),
        (failing.plain_compares, "reply == 'sun'", "rain", "sun", None),
    ],
)
@pytest.mark.parametrize("style", list(Style))
async def test_a_failed_assert_is_a_failed_gate_with_its_values(
    attempt: Any, body: Any, expression: str, actual: Any, expected: Any, reason: Any, style: Style
) -> None:
    evidence = await attempt(body, style=style)
    [row] = evidence.assertions
    assert (row.name, row.holds, row.policy.gate) == ("assert", False, True)
    assert row.criterion == {"criterion": "assert", "expression": expression}
    assert (row.outcome.actual or None, row.outcome.expected or None) == (actual, expected)
    assert row.outcome.reason == reason
    file, line = row.source.split(":")
    assert file == "failing_asserts.py"
    assert "assert" in linecache.getline(failing.__file__, int(line))
    assert (evidence.summary.outcome, evidence.summary.verdict) == (Outcome.COMPLETED, Verdict.FAILED)


async def test_an_assert_ends_the_body_after_what_was_registered(attempt: Any) -> None:
    evidence = await attempt(failing.after_a_check, style=Style.SCORE)
    assert [row.name for row in evidence.assertions] == ["check", "assert"]
    summary = evidence.summary
    assert (summary.verdict, summary.score_state, summary.earned) == (Verdict.FAILED, ScoreState.COMPLETE, 2.0)


async def test_asserts_in_a_task_group_are_all_recorded(attempt: Any) -> None:
    evidence = await attempt(failing.two_in_a_group)
    assert [row.outcome.actual for row in evidence.assertions] == [1, 2]
    assert evidence.summary.verdict is Verdict.FAILED


# --- handles ----------------------------------------------------------------------------------------------------


def boolean(t: Any) -> Any:
    return t.check(1, equals(1))


def measurement(t: Any) -> Any:
    return t.check("abcd", similarity("abcx"))


@pytest.mark.parametrize(
    ("configure", "text"),
    [
        (lambda t: boolean(t).label("a").label("b"), "label is already set"),
        (lambda t: boolean(t).key("a").key("b"), "key is already set"),
        (lambda t: boolean(t).gate().gate(), "gate is already set"),
        (lambda t: boolean(t).optional().optional(), "optional is already set"),
        (lambda t: boolean(t).gate().optional(), "can't be optional"),
        (lambda t: boolean(t).optional().gate(), "can't be a gate"),
        (lambda t: boolean(t).gate(0.5), "takes no minimum"),
        (lambda t: boolean(t).at_least(0.5), "needs a measurement"),
        (lambda t: measurement(t).gate(), "needs a minimum"),
        (lambda t: measurement(t).gate(1.5), "from 0 to 1"),
        (lambda t: measurement(t).gate(float("nan")), "from 0 to 1"),
        (lambda t: measurement(t).gate(True), "from 0 to 1"),
        (lambda t: measurement(t).at_least(0.5).gate(0.6), "threshold is already set"),
        (lambda t: measurement(t).gate(0.5).at_least(0.6), "threshold is already set"),
        (lambda t: measurement(t).at_least(0.5).at_least(0.6), "threshold is already set"),
        (lambda t: boolean(t).score(1), "define_score_eval"),
        (lambda t: boolean(t).label(""), "printable text"),
        (lambda t: boolean(t).label("a\nb"), "printable text"),
        (lambda t: boolean(t).key("x" * 257), "printable text"),
        (lambda t: boolean(t).key(7), "printable text"),
        (lambda t: t.check(1, "not a matcher"), "takes a matcher"),
        (lambda t: t.check(boolean(t), equals(1)), "handle of another assertion"),
        (lambda t: t.skip(""), "needs a reason"),
        (lambda t: t.group("").__enter__(), "needs a title"),
        (lambda t: t.sandbox, "names a sandbox"),
        (lambda t: t.fixture, "PROMPT.md"),
        (lambda t: t.max_tool_calls(-1), "max_tool_calls"),
        (lambda t: t.called_tool(7), "called_tool"),
    ],
)
@pytest.mark.parametrize("caught", [False, True])
async def test_a_misuse_is_an_authoring_error_even_when_caught(
    attempt: Any, configure: Any, text: str, caught: bool
) -> None:
    async def body(t: Any) -> None:
        t.check(1, equals(1))
        try:
            configure(t)
        except AuthoringError:
            if not caught:
                raise

    summary = (await attempt(body)).summary
    if caught and text in ("max_tool_calls", "called_tool"):
        return  # refused by the criterion itself, which knows no attempt: nothing was registered
    assert (summary.verdict, summary.kind) == (Verdict.ERRORED, FailureKind.AUTHORING)
    assert text in summary.message


@pytest.mark.parametrize("points", [-1, float("inf"), float("nan"), True, "1"])
async def test_points_are_finite_and_not_negative(attempt: Any, points: Any) -> None:
    async def body(t: Any) -> None:
        t.check(1, equals(1)).score(points)

    assert (await attempt(body, style=Style.SCORE)).summary.code == "ASSERTION_MISCONFIGURED"


async def test_configuration_lands_in_the_row(attempt: Any) -> None:
    async def body(t: Any) -> None:
        with t.group("outer"), t.group("inner"):
            t.check("abcd", similarity("abcx")).label("close").key("k").gate(0.5).score(4)
        t.check(1, equals(2)).optional()

    evidence = await attempt(body, style=Style.SCORE)
    first, second = evidence.assertions
    assert (first.label, first.key, first.group) == ("close", "k", ("outer", "inner"))
    assert (first.policy.gate, first.policy.gate_min, first.policy.points) == (True, 0.5, 4)
    assert (first.outcome.measurement, first.earned, first.holds) == (0.75, 3.0, True)
    assert (second.group, second.policy.optional) == ((), True)
    assert (evidence.summary.verdict, evidence.summary.earned) == (Verdict.PASSED, 3.0)


async def test_a_pass_style_measurement_needs_a_use(attempt: Any) -> None:
    async def body(t: Any) -> None:
        measurement(t)

    assert (await attempt(body)).summary.code == "PASS_MEASUREMENT_THRESHOLD_MISSING"


async def test_configuring_after_evaluation_and_registering_after_the_end(attempt: Any) -> None:
    kept: list[Any] = []

    async def late(t: Any) -> None:
        handle = t.check(1, equals(1))
        await handle.or_stop()
        handle.label("too late")

    async def keeps(t: Any) -> None:
        kept.append(t)
        kept.append(t.check(1, equals(1)))

    assert "after the assertion was evaluated" in (await attempt(late)).summary.message
    evidence = await attempt(keeps)
    assert evidence.summary.verdict is Verdict.PASSED
    t, handle = kept
    for misuse in (
        lambda: t.check(1, equals(2)),
        lambda: t.succeeded(),
        lambda: handle.label("x"),
        lambda: t.new_session(),
    ):
        with pytest.raises(AuthoringError, match="after the test body has ended"):
            misuse()
    with pytest.raises(AuthoringError, match="after the test body has ended"):
        await t.send("x")
    assert len(evidence.assertions) == 1


async def test_registering_after_the_body_but_before_the_seal_errors_the_attempt(attempt: Any) -> None:
    async def stray(t: Any) -> None:
        await asyncio.sleep(0.02)
        with pytest.raises(AuthoringError):
            t.check(1, equals(1))

    strays: list[Any] = []

    async def slow(value: Any) -> bool:
        await asyncio.sleep(0.05)
        return True

    async def body(t: Any) -> None:
        strays.append(asyncio.ensure_future(stray(t)))
        t.check(1, satisfies("slow", slow))

    summary = (await attempt(body)).summary
    assert (summary.verdict, summary.code) == (Verdict.ERRORED, "AFTER_THE_END")
    await asyncio.gather(*strays)


async def test_what_is_never_awaited_is_named_with_its_line(attempt: Any) -> None:
    async def body(t: Any) -> None:
        t.send("forgotten")
        t.check(1, equals(1)).or_stop()

    summary = (await attempt(body)).summary
    assert (summary.kind, summary.code) == (FailureKind.AUTHORING, "NEVER_AWAITED")
    assert "test_snapshots_and_handles.py:" in summary.message


async def test_a_send_left_in_flight_is_an_authoring_error(attempt: Any) -> None:
    async def slow(turn: Any, ctx: Any) -> Turn:
        await asyncio.sleep(60)
        return Turn()

    left: list[Any] = []

    async def body(t: Any) -> None:
        t.check(1, equals(1))
        left.append(asyncio.ensure_future(t.send("x")))
        await asyncio.sleep(0.01)

    evidence = await attempt(body, slow)
    assert evidence.summary.code == "SEND_NOT_AWAITED"
    assert evidence.turns[0].failure == "the test body ended before the turn did"
    with pytest.raises(asyncio.CancelledError):
        await left[0]


async def test_one_send_at_a_time_per_session(attempt: Any) -> None:
    async def answer(turn: Any, ctx: Any) -> Turn:
        await asyncio.sleep(0.01)
        return Turn(reply=turn.text)

    async def clashes(t: Any) -> None:
        await asyncio.gather(t.send("a"), t.send("b"))

    async def side_by_side(t: Any) -> None:
        turns = await asyncio.gather(*(t.new_session().send(str(number)) for number in range(20)))
        for number, turn in enumerate(turns):
            t.check(turn.reply, equals(str(number)))

    summary = (await attempt(clashes, answer)).summary
    assert (summary.kind, summary.code) == (FailureKind.AUTHORING, "SEND_IN_FLIGHT")
    evidence = await attempt(side_by_side, answer)
    assert evidence.summary.verdict is Verdict.PASSED
    assert sorted(turn.session for turn in evidence.turns) == list(range(1, 21))


async def test_orders_on_t_need_one_session(attempt: Any) -> None:
    async def body(t: Any) -> None:
        await t.send("a")
        await t.new_session().send("b")
        t.tool_order("a", "b")

    assert "several sessions" in (await attempt(body)).summary.message


# --- matchers that break ----------------------------------------------------------------------------------------


def breaks(value: Any) -> bool:
    raise RuntimeError("bug")


def exits(value: Any) -> bool:
    raise SystemExit(1)


def loses_sandbox(value: Any) -> bool:
    raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_LOST", "gone")


@pytest.mark.parametrize(
    ("predicate", "kind"),
    [(breaks, FailureKind.GRADER), (exits, FailureKind.GRADER), (loses_sandbox, FailureKind.SANDBOX)],
)
async def test_a_matcher_that_breaks_leaves_the_others_standing(attempt: Any, predicate: Any, kind: Any) -> None:
    async def body(t: Any) -> None:
        t.check(1, satisfies("breaks", predicate))
        t.check(1, equals(1))

    evidence = await attempt(body)
    assert [row.outcome.result for row in evidence.assertions] == [Result.ERRORED, Result.MATCHED]
    assert (evidence.summary.verdict, evidence.summary.kind) == (Verdict.ERRORED, kind)


async def test_a_matcher_that_never_answers_is_given_up(attempt: Any) -> None:
    async def hangs(value: Any) -> bool:
        await asyncio.sleep(60)
        return True

    async def body(t: Any) -> None:
        t.check(1, equals(1))
        t.check(1, satisfies("hangs", hangs))

    evidence = await attempt(body)
    assert [row.outcome.result for row in evidence.assertions] == [Result.MATCHED, Result.UNAVAILABLE]
    assert (evidence.summary.kind, evidence.summary.code) == (FailureKind.GRADER, "EVALUATION_FAILED")


async def test_a_score_match_measures(attempt: Any) -> None:
    half = define_score_match("half", lambda value: 0.5)

    async def body(t: Any) -> None:
        t.check("x", half).score(10)

    assert (await attempt(body, style=Style.SCORE)).summary.earned == 5.0


# --- people in the loop -----------------------------------------------------------------------------------------


def asking(*requests: InputRequested) -> Turn:
    return Turn(status=TurnStatus.WAITING, events=requests)


APPROVE = InputRequested("r1", "Delete it?", "delete", options=(InputOption("yes"), InputOption("no")))
NAME = InputRequested("r2", "What name?", "ask")


@pytest.mark.parametrize(
    ("requests", "respond", "text", "responses"),
    [
        ([APPROVE], lambda t: t.respond("yes"), "yes", (InputResponse("r1", option_id="yes"),)),
        ([APPROVE], lambda t: t.respond("maybe"), "maybe", (InputResponse("r1", text="maybe"),)),
        ([APPROVE], lambda t: t.respond_all("no"), "no", (InputResponse("r1", option_id="no"),)),
        (
            [APPROVE, NAME],
            lambda t: t.respond(InputResponse("r2", text="Ann"), InputResponse("r1", option_id="no")),
            "Ann\nno",
            (InputResponse("r2", text="Ann"), InputResponse("r1", option_id="no")),
        ),
    ],
)
async def test_answers_reach_the_agent_by_request(
    attempt: Any, requests: Any, respond: Any, text: str, responses: Any
) -> None:
    async def body(t: Any) -> None:
        (await t.send("go")).parked()
        (await respond(t)).succeeded()

    adapter = FakeAdapter([asking(*requests), Turn(reply="done")])
    evidence = await attempt(body, adapter)
    assert evidence.summary.verdict is Verdict.PASSED
    sent = adapter.sessions[0].sent[1]
    assert (sent.text, sent.responses) == (text, responses)


@pytest.mark.parametrize(
    ("requests", "respond", "text"),
    [
        ([], lambda t: t.respond("yes"), "nothing waits"),
        ([APPROVE, NAME], lambda t: t.respond("yes"), "2 pending requests"),
        ([APPROVE], lambda t: t.respond(), "at least one answer"),
        ([APPROVE], lambda t: t.respond(InputResponse("r1", option_id="yse")), "has no option 'yse'; it has: yes, no"),
        ([APPROVE], lambda t: t.respond(InputResponse("r9", text="x")), "no pending request 'r9'; pending: r1"),
        ([APPROVE], lambda t: t.respond(InputResponse("r1")), "an option_id or a text"),
        ([APPROVE], lambda t: t.respond(InputResponse("r1", "yes", "x")), "an option_id or a text"),
        ([APPROVE], lambda t: t.respond(InputResponse("r1", "yes"), InputResponse("r1", "no")), "two answers"),
        ([InputRequested(None)], lambda t: t.respond("x"), "has no id"),
        ([APPROVE, NAME], lambda t: t.respond_all("yes"), "'r2' has no option 'yes'; it has: none"),
    ],
)
async def test_a_wrong_answer_is_refused_before_anything_is_sent(
    attempt: Any, requests: Any, respond: Any, text: str
) -> None:
    async def body(t: Any) -> None:
        await t.send("go")
        await respond(t)

    adapter = FakeAdapter([asking(*requests) if requests else Turn(reply="done")])
    summary = (await attempt(body, adapter)).summary
    assert (summary.kind, summary.code) == (FailureKind.AUTHORING, "INVALID_RESPONSE")
    assert text in summary.message and len(adapter.sessions[0].sent) == 1


@pytest.mark.parametrize(
    ("requests", "wanted", "verdict"),
    [
        ([APPROVE], {"action": "delete"}, Verdict.PASSED),
        ([APPROVE, NAME], {"prompt": includes("name")}, Verdict.PASSED),
        ([APPROVE, NAME], {"options": ["no", "yes"]}, Verdict.PASSED),
        ([APPROVE, NAME], {"request_id": "r2"}, Verdict.PASSED),
        ([APPROVE, NAME], {}, Verdict.FAILED),
        ([APPROVE], {"options": ["yes"]}, Verdict.FAILED),
        (
            [replace(APPROVE, input={"path": "/tmp/x", "force": True}), NAME],
            {"input": {"path": includes("tmp")}},
            Verdict.PASSED,
        ),
        ([replace(APPROVE, input={"path": "/home/x"})], {"input": {"path": includes("tmp")}}, Verdict.FAILED),
        ([APPROVE], {"input": {}}, Verdict.FAILED),
        ([], {}, Verdict.FAILED),
    ],
)
async def test_a_required_request_is_a_gate(attempt: Any, requests: Any, wanted: Any, verdict: Any) -> None:
    found: list[InputRequested] = []

    async def body(t: Any) -> None:
        await t.send("go")
        found.append(t.require_input_request(**wanted))

    evidence = await attempt(body, [asking(*requests)])
    assert evidence.summary.verdict is verdict
    assert len(found) == (verdict is Verdict.PASSED)
    assert [row.name for row in evidence.assertions] == ["require_input_request"]


# --- what the author reads --------------------------------------------------------------------------------------


async def test_t_reads_the_main_session_and_sums_all(attempt: Any) -> None:
    async def body(t: Any) -> None:
        assert (t.reply, t.events, t.usage.value) == ("", (), None)
        await t.send("one")
        other = t.new_session()
        await other.send("two")
        assert (t.reply, other.reply) == ("r-one", "r-two")
        assert t.usage.total_tokens == 6 and other.usage.total_tokens == 3
        assert [event.text for event in t.events] == ["one", "r-one", "two", "r-two"]
        assert other.data["n"] == "two" and t.data == {"n": "one"}
        assert (t.model, t.arm, t.flags, t.seed, t.repetition, t.variants) == ("m", "arm", {"f": 1}, 5, 0, {})
        t.log("a line")
        t.diagnostic("SLOW", "it was slow", data={"ms": 3})
        t.succeeded()

    def answer(turn: Any, ctx: Any) -> Turn:
        return Turn(
            reply=f"r-{turn.text}",
            data={"n": turn.text},
            usage=Usage(input_tokens=1, output_tokens=2),
        )

    evidence = await attempt(body, answer, flags={"f": 1})
    assert evidence.summary.verdict is Verdict.PASSED
    assert evidence.diagnostics == ("a line", "warning SLOW: it was slow {'ms': 3}")
    assert evidence.summary.usage == Usage(input_tokens=2, output_tokens=4)


async def test_tool_calls_are_paired(attempt: Any) -> None:
    async def body(t: Any) -> None:
        [call] = (await t.send("x")).tool_calls
        assert (call.name, call.status) == ("search", OperationStatus.COMPLETED)
        t.succeeded()

    assert (await attempt(body, [called("search")])).summary.verdict is Verdict.PASSED


async def test_files_and_a_schema_travel_with_a_send(attempt: Any, tmp_path: Any) -> None:
    class Answer(BaseModel):
        city: str

    (tmp_path / "map.png").write_bytes(b"png")

    async def body(t: Any) -> None:
        await t.send_file(tmp_path / "map.png", "look")
        (await t.send("where", output=Answer)).succeeded()

    adapter = FakeAdapter([Turn(reply="ok"), Turn(reply="ok")])
    await attempt(body, adapter)
    first, second = adapter.sessions[0].sent
    [file] = first.files
    assert (first.text, file.name, file.media_type, file.data) == ("look", "map.png", "image/png", b"png")
    assert second.output_schema["properties"]["city"] == {"title": "City", "type": "string"}


async def test_a_conversation_message_of_the_user_is_injected_in_front(attempt: Any) -> None:
    async def body(t: Any) -> None:
        turn = await t.send("hello")
        assert turn.events[0] == Message(Role.USER, "hello")
        turn.succeeded()

    assert (await attempt(body, [Turn(events=(Message(Role.ASSISTANT, "hi"),))])).summary.events == 2
