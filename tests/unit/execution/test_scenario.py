"""Playing a declared scenario: what is sent, what is checked of it, what ends it, and what is left on the record.

The numbers are those of the conformance tests of the suite format.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from evalfleet.errors import FailureKind, SendFailure
from evalfleet.execution.job import AttemptControl
from evalfleet.execution.state import AttemptState
from evalfleet.model.assertion import Result
from evalfleet.model.coverage import COMPLETE_COVERAGE, Channel, partial
from evalfleet.model.record import AttemptEvidence
from evalfleet.model.suite import DeclaredScenario
from evalfleet.model.turn import Stop, StopKind, Turn, TurnInput
from evalfleet.model.verdict import Outcome, Verdict
from evalfleet.suites.matrix import turn_id
from evalfleet.suites.parse import parse_suite
from evalfleet.testing.fakes import FakeAdapter

RunAttempt = Callable[..., Any]


def check(identifier: str, path: Sequence[str | int], operator: str, *value: Any) -> dict[str, Any]:
    told = {"value": value[0]} if value else {}
    return {"id": identifier, "kind": "check", "path": list(path), "operator": operator, **told}


def scenario(
    *steps: Mapping[str, Any], final: Sequence[Any] = (), evaluators: Mapping[str, Any] | None = None, version: int = 1
) -> DeclaredScenario:
    """A scenario whose steps are called a, b, … and send `{"text": …}` where they say nothing else."""
    named = [{"id": chr(97 + at), "input": {"text": chr(97 + at)}, **step} for at, step in enumerate(steps)]
    one = {"id": "buy", "name": "Buy", "writePolicy": "read_only", "steps": named, "assertions": list(final)}
    suite = parse_suite({"schemaVersion": version, "id": "shop", "name": "Shop", "scenarios": [one]})
    return DeclaredScenario(suite=suite, scenario=suite.scenarios[0], evaluators=evaluators or {})


def seeing(*observations: Any) -> Callable[[TurnInput, Any], Turn]:
    """An agent that shows one observation after the other, or returns or raises what is no observation."""
    left = list(observations)

    def answer(turn: TurnInput, _: Any) -> Turn:
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, Turn) else Turn(observation=found)

    return answer


@pytest.fixture
def play(attempt: RunAttempt) -> RunAttempt:
    async def run(declared: DeclaredScenario, adapter: Any, **options: Any) -> AttemptEvidence:
        return await attempt(declared, adapter, allow_no_assertions=True, **options)

    return run


def results(evidence: AttemptEvidence) -> list[tuple[str | None, Result]]:
    return [(row.key, row.outcome.result) for row in evidence.assertions]


async def test_inputs_go_out_whole_and_what_comes_back_is_checked(play: RunAttempt) -> None:
    seen: list[TurnInput] = []

    def agent(turn: TurnInput, _: Any) -> Turn:
        seen.append(turn)
        return Turn(observation={"heard": dict(turn.value or {})})

    steps = [
        {"assertions": [check("text", ["heard", "text"], "equals", "a")]},
        {"input": {"selection": {"optionIndex": 0}}, "assertions": [check("index", ["heard"], "equals", {})]},
    ]
    evidence = await play(scenario(*steps), agent)
    assert [given.text for given in seen] == ["a", '{"selection":{"optionIndex":0}}']
    assert seen[1].value == {"selection": {"optionIndex": 0}}
    assert results(evidence) == [("text", Result.MATCHED), ("index", Result.MISMATCHED)]
    assert [row.scope for row in evidence.assertions] == ["turn/0/0", "turn/0/1"]
    assert evidence.summary.verdict is Verdict.FAILED


async def test_an_attempt_leaves_no_cycle_behind(play: RunAttempt) -> None:
    """What a worker can't let go of by itself stays until the collector comes, which is told to come seldom."""
    called = {"id": "seen", "kind": "custom", "evaluator": "seen", "parameters": {}}
    steps = {"assertions": [check("n", ["n"], "equals", 1)]}

    async def seen(*_: Any) -> dict[str, Any]:
        return {"passed": True}

    declared = scenario(steps, final=[called], evaluators={"seen": seen})
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        assert results(await play(declared, seeing({"n": 1}))) == [("n", Result.MATCHED), ("seen", Result.MATCHED)]
        gc.collect()
        assert not [found for found in gc.garbage if isinstance(found, AttemptState)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def test_6_a_failed_step_does_not_keep_the_next_from_running_and_the_session_is_closed_once(
    play: RunAttempt,
) -> None:
    adapter = FakeAdapter(seeing({"n": 1}, {"n": 2}))
    declared = scenario(
        {"assertions": [check("one", ["n"], "equals", 9)]},
        {"assertions": [check("two", ["n"], "equals", 2)]},
        final=[check("last", ["n"], "equals", 2)],
    )
    evidence = await play(declared, adapter)
    assert results(evidence) == [("one", Result.MISMATCHED), ("two", Result.MATCHED), ("last", Result.MATCHED)]
    assert [turn.input.text for turn in evidence.turns] == ["a", "b"]
    assert [session.closed for session in adapter.sessions] == [True]


@pytest.mark.parametrize("last", [True, False])
async def test_17_the_word_that_the_conversation_is_over_is_no_harm_at_the_last_step(
    play: RunAttempt, last: bool
) -> None:
    done = Turn(observation={"n": 1}, stop=Stop(StopKind.COMPLETED, "sold"))
    steps = [{}] if last else [{}, {}]
    evidence = await play(scenario(*steps, final=[check("n", ["n"], "equals", 2)]), seeing(done))
    if last:
        assert results(evidence) == [("n", Result.MISMATCHED)]
        assert evidence.summary.verdict is Verdict.FAILED
    else:
        assert results(evidence) == []
        assert evidence.summary.code == "EVALUATION_EARLY_COMPLETION"
        assert evidence.summary.message == "the agent ended the conversation after 1 of 2 steps"
        assert evidence.summary.kind is FailureKind.ADAPTER


@pytest.mark.parametrize("kind", StopKind)
@pytest.mark.parametrize("steps", [1, 2])
async def test_27_a_stop_never_hides_a_failed_turn(play: RunAttempt, kind: StopKind, steps: int) -> None:
    ended = Turn(observation={"n": 1}, stop=Stop(kind, "enough"))
    failing = {"assertions": [check("n", ["n"], "equals", 2)]}
    evidence = await play(scenario(*[failing] * steps, final=[check("end", ["n"], "equals", 1)]), seeing(ended))
    assert evidence.summary.verdict is Verdict.FAILED
    assert evidence.summary.skip_reason is None
    is_over = kind is StopKind.SKIPPED or steps == 2
    assert results(evidence) == [("n", Result.MISMATCHED), *([] if is_over else [("end", Result.MATCHED)])]


@pytest.mark.parametrize("steps", [1, 2])
async def test_a_case_that_the_agent_leaves_out_is_skipped_for_its_reason(play: RunAttempt, steps: int) -> None:
    left = Turn(observation={}, stop=Stop(StopKind.SKIPPED, "no stock in this region"))
    evidence = await play(scenario(*[{}] * steps, final=[check("n", ["n"], "exists")]), seeing(left))
    assert (evidence.summary.verdict, evidence.summary.skip_reason) == (Verdict.SKIPPED, "no stock in this region")
    assert results(evidence) == []


async def test_18_a_send_that_never_ends_is_a_turn_out_of_time(play: RunAttempt) -> None:
    async def hangs(turn: TurnInput, _: Any) -> Turn:
        await asyncio.sleep(60)
        return Turn()

    evidence = await play(scenario({}, {}), FakeAdapter(hangs), turn_timeout=0.05)
    assert evidence.summary.code == "TURN_TIMEOUT"
    assert [turn.failure is not None for turn in evidence.turns] == [True]


async def test_a_criterion_that_can_not_be_judged_ends_the_conversation_and_dominates_a_failure(
    play: RunAttempt,
) -> None:
    def breaks(context: Any, parameters: Any) -> Any:
        raise RuntimeError("a private text")

    custom = {"id": "odd", "kind": "custom", "evaluator": "breaks", "parameters": {}}
    declared = scenario(
        {"assertions": [check("n", ["n"], "equals", 9), custom]},
        {},
        final=[check("end", ["n"], "equals", 1)],
        evaluators={"breaks": breaks},
    )
    evidence = await play(declared, seeing({"n": 1}))
    assert results(evidence) == [("n", Result.MISMATCHED), ("odd", Result.ERRORED)]
    assert evidence.summary.verdict is Verdict.ERRORED
    assert evidence.summary.kind is FailureKind.GRADER
    shown = repr(evidence.assertions) + repr(evidence.summary)
    assert "a private text" not in shown
    assert any("a private text" in line for line in evidence.diagnostics)


async def test_what_takes_longer_than_a_turn_is_not_judged_and_its_observation_stays(play: RunAttempt) -> None:
    async def sleeps(context: Any, parameters: Any) -> Any:
        await asyncio.sleep(60)

    custom = {"id": "slow", "kind": "custom", "evaluator": "sleeps", "parameters": {}}
    declared = scenario({"assertions": [custom]}, evaluators={"sleeps": sleeps})
    evidence = await play(declared, seeing({"n": 1}), turn_timeout=0.2)
    (row,) = evidence.assertions
    assert row.criterion["result"]["errorCode"] == "EVALUATION_TIMEOUT"
    assert evidence.turns[0].observation == {"n": 1}
    assert evidence.turns[0].failure is None


async def test_advisory_criteria_decide_nothing_and_end_nothing(play: RunAttempt) -> None:
    wrong = {**check("wrong", ["n"], "equals", 9), "severity": "advisory"}
    missing = {"id": "odd", "kind": "custom", "evaluator": "nobody", "parameters": {}, "severity": "advisory"}
    declared = scenario({"assertions": [wrong, missing]}, {}, version=2)
    evidence = await play(declared, seeing({"n": 1}, {"n": 1}))
    assert results(evidence) == [("wrong", Result.MISMATCHED), ("odd", Result.ERRORED)]
    assert len(evidence.turns) == 2
    assert evidence.summary.verdict is Verdict.PASSED


async def test_missing_telemetry_is_no_proof(play: RunAttempt) -> None:
    coverage = {Channel.ACTIONS: partial("only the last call is shown")}
    quiet = Turn(reply="done", coverage=coverage)
    declared = scenario({"assertions": [check("none", ["toolCalls"], "length", 0), check("said", ["reply"], "exists")]})
    evidence = await play(declared, FakeAdapter(lambda *_: quiet, coverage=COMPLETE_COVERAGE))
    assert results(evidence) == [("none", Result.UNAVAILABLE), ("said", Result.MATCHED)]
    assert evidence.assertions[0].outcome.reason == "coverage:actions=partial (only the last call is shown)"
    assert evidence.summary.verdict is Verdict.ERRORED


async def test_evaluators_see_the_turns_before_and_who_asks(play: RunAttempt) -> None:
    seen: list[Any] = []

    def looks(context: Any, parameters: Any) -> Any:
        history = [turn["stepId"] for turn in context.history]
        seen.append((context.scope, context.step_id, history, dict(parameters), context.scenario["id"]))
        return {"passed": True, "evidence": {"turns": len(history)}}

    custom = {"id": "look", "kind": "custom", "evaluator": "looks", "parameters": {"of": 1}}
    declared = scenario({"assertions": [custom]}, {"assertions": [custom]}, final=[custom], evaluators={"looks": looks})
    evidence = await play(declared, seeing({"n": 1}, {"n": 2}))
    assert seen == [
        ("turn", "a", [], {"of": 1}, "buy"),
        ("turn", "b", ["a"], {"of": 1}, "buy"),
        ("scenario", None, ["a", "b"], {"of": 1}, "buy"),
    ]
    assert [row.criterion["result"]["evidence"] for row in evidence.assertions] == [{"turns": n} for n in (0, 1, 2)]


async def test_a_send_that_fails_keeps_what_was_judged_before(play: RunAttempt) -> None:
    failure = SendFailure("the line is down", code="LINE_DOWN")
    declared = scenario({"assertions": [check("n", ["n"], "equals", 1)]}, {}, final=[check("end", [], "exists")])
    evidence = await play(declared, seeing({"n": 1}, failure))
    assert results(evidence) == [("n", Result.MATCHED)]
    assert (evidence.summary.outcome, evidence.summary.code) == (Outcome.ERRORED, "LINE_DOWN")


class Counting(FakeAdapter):
    """An agent that counts its turns, and can go on from a count in another process."""

    def __init__(self) -> None:
        self.count = 0
        super().__init__(self._next)

    def _next(self, turn: TurnInput, _: Any) -> Turn:
        self.count += 1
        return Turn(observation={"n": self.count}, session_state={"count": self.count})

    async def reopen(self, state: Mapping[str, Any], ctx: Any) -> Any:
        self.count = state["count"]
        return await self.open(ctx)


THREE = [{"assertions": [check("n", ["n"], "equals", n)]} for n in (1, 2, 3)]


async def begun(play: RunAttempt, adapter: FakeAdapter, **options: Any) -> list[AttemptEvidence]:
    """What was recorded of a conversation of three steps before its end."""
    recorded: list[AttemptEvidence] = []
    control = AttemptControl()

    async def record(evidence: AttemptEvidence) -> None:
        recorded.append(evidence)

    control.record_beginning = record
    evidence = await play(scenario(*THREE), adapter, control=control, **options)
    assert evidence.summary.verdict is Verdict.PASSED
    return recorded


async def test_16_a_lost_conversation_goes_on_with_the_next_step_in_the_same_session(play: RunAttempt) -> None:
    recorded = await begun(play, Counting())
    assert [len(each.turns) for each in recorded] == [1, 2], "after each step but the last"
    adapter = Counting()
    evidence = await play(scenario(*THREE), adapter, begun=recorded[0].turns, begun_by=4)
    assert evidence.begun_by == 4, "its thread is that of the attempt that began it"
    assert [given.text for session in adapter.sessions for given in session.sent] == ["b", "c"]
    assert results(evidence) == [("n", Result.MATCHED)] * 3
    assert evidence.turns[0] == recorded[0].turns[0]
    assert [(turn.index, turn.sequence) for turn in evidence.turns] == [(0, 0), (1, 1), (2, 2)]
    assert evidence.summary.code is None


async def test_a_continued_conversation_can_be_continued_again(play: RunAttempt) -> None:
    first = await begun(play, Counting())
    second = await begun(play, Counting(), begun=first[0].turns)
    assert [len(each.turns) for each in second] == [2]
    evidence = await play(scenario(*THREE), Counting(), begun=second[0].turns)
    assert results(evidence) == [("n", Result.MATCHED)] * 3


async def test_what_can_not_be_continued_is_not_recorded_half_way(play: RunAttempt) -> None:
    stateless = FakeAdapter(seeing({"n": 1}, {"n": 2}, {"n": 3}))
    assert await begun(play, stateless) == []
    assert await begun(play, Counting(), external=True) == []


async def test_an_adapter_that_can_not_go_on_is_told_so_before_anything_is_sent(play: RunAttempt) -> None:
    (first, _) = await begun(play, Counting())
    adapter = FakeAdapter(seeing({"n": 2}))
    evidence = await play(scenario(*THREE), adapter, begun=first.turns)
    assert (evidence.summary.code, adapter.sessions) == ("TURN_RESUME_NOT_SUPPORTED", [])
    unsafe = replace(first.turns[0], session_state=None)
    evidence = await play(scenario(*THREE), Counting(), begun=(unsafe,))
    assert evidence.summary.code == "TURN_RESUME_UNSAFE"


async def test_adapters_are_told_the_names_of_reports(play: RunAttempt) -> None:
    told: list[tuple[str, str, str]] = []

    class Telling(Counting):
        def _next(self, turn: TurnInput, ctx: Any) -> Turn:
            told.append((ctx.thread_id, ctx.step_id, ctx.turn_id))
            return super()._next(turn, ctx)

    (first, _) = await begun(play, Telling())
    fresh = [("run:11", step, turn_id("run:11", step)) for step in "abc"]
    assert (told, first.begun_by) == (fresh, None)
    told.clear()
    evidence = await play(scenario(*THREE), Telling(), begun=first.turns, begun_by=4)
    assert told == [("run:4", step, turn_id("run:4", step)) for step in "bc"], "those of the attempt that began it"
    assert evidence.begun_by == 4


@pytest.mark.parametrize("state", [{"of": {1}}, ["a list"], {"text": object()}], ids=["set", "list", "object"])
async def test_edge_4_a_session_state_that_is_none_keeps_the_observation_and_prevents_going_on(
    play: RunAttempt, state: Any
) -> None:
    turns = [Turn(observation={"n": n}, session_state=state) for n in (1, 2, 3)]
    recorded: list[AttemptEvidence] = []
    control = AttemptControl()

    async def record(evidence: AttemptEvidence) -> None:
        recorded.append(evidence)

    control.record_beginning = record
    adapter = Counting()
    adapter.answer = seeing(*turns)
    evidence = await play(scenario(*THREE), adapter, control=control)
    assert (evidence.summary.verdict, [turn.observation for turn in evidence.turns]) == (
        Verdict.PASSED,
        [{"n": 1}, {"n": 2}, {"n": 3}],
    )
    assert recorded == [], "nothing to go on from"
    assert evidence.diagnostics[0].startswith("this conversation can't be continued after a loss: session_state")


class Late(FakeAdapter):
    """Takes its time to open a session, whatever it is told meanwhile."""

    async def open(self, ctx: Any) -> Any:
        for _ in range(3):
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                continue
        return await super().open(ctx)


async def test_29_a_session_that_opens_after_its_deadline_is_closed(play: RunAttempt) -> None:
    adapter, closed = Late(seeing({"n": 1})), asyncio.Event()

    async def close() -> None:
        closed.set()

    adapter.on_close = close
    evidence = await play(scenario({}), adapter, turn_timeout=0.05)
    assert evidence.summary.code == "TURN_TIMEOUT"
    await asyncio.wait_for(closed.wait(), 5)
    assert [len(session.sent) for session in adapter.sessions] == [0], "and nothing is sent in it"


@pytest.mark.parametrize("scope", ["scenario", "turn"])
async def test_31_an_abort_while_criteria_are_evaluated_leaves_the_case_cancelled(play: RunAttempt, scope: str) -> None:
    control = AttemptControl()

    async def aborts(context: Any, parameters: Any) -> Any:
        control.cancel("stopped by somebody")
        await asyncio.sleep(60)

    custom = {"id": "slow", "kind": "custom", "evaluator": "aborts", "parameters": {}}
    late = check("late", ["n"], "equals", 1)
    lists: dict[str, Any] = {"step": {}, "final": [custom, late]}
    if scope == "turn":
        lists = {"step": {"assertions": [custom, late]}, "final": []}
    declared = scenario(lists["step"], final=lists["final"], evaluators={"aborts": aborts})
    evidence = await play(declared, seeing({"n": 1}), control=control)
    assert (evidence.summary.outcome, evidence.summary.kind) == (Outcome.CANCELLED, FailureKind.CANCELLED)
    assert Result.MATCHED not in [row.outcome.result for row in evidence.assertions]


async def test_another_input_than_the_recorded_one_is_not_taken_for_it(play: RunAttempt) -> None:
    (first, _) = await begun(play, Counting())
    changed = [{**THREE[0], "input": {"text": "A"}}, *THREE[1:]]
    evidence = await play(scenario(*changed), Counting(), begun=first.turns)
    assert evidence.summary.code == "REPLAY_DIVERGED"


async def test_28_a_session_that_can_not_be_closed_is_an_error_after_all_passed(play: RunAttempt) -> None:
    async def stuck() -> None:
        raise RuntimeError("stuck")

    adapter = FakeAdapter(seeing({"n": 1}))
    adapter.on_close = stuck
    evidence = await play(scenario({}), adapter)
    assert (evidence.summary.verdict, evidence.summary.code) == (Verdict.ERRORED, "SESSION_CLOSE_FAILED")
