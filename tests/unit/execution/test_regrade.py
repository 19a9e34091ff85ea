"""A recorded attempt judged again: by its body on the record, or by its stored assertions; never by its agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalfleet.assertions.matchers import command_succeeded, equals, includes, satisfies
from evalfleet.errors import AttemptFailure, FailureKind, SendFailure
from evalfleet.execution.attempt import AttemptControl
from evalfleet.execution.regrade import refused, regrade
from evalfleet.execution.unrecorded import Unrecorded
from evalfleet.model.assertion import Result
from evalfleet.model.coverage import Channel, unavailable
from evalfleet.model.events import InputOption, InputRequested
from evalfleet.model.grading import Basis, Regrading
from evalfleet.model.turn import InputFile, InputResponse, Turn, TurnInput, TurnStatus
from evalfleet.model.verdict import Outcome, ScoreState, Style, Verdict
from evalfleet.testing.fakes import FakeAdapter
from tests.integration.store.test_judge_calls import ANSWERED

Both = Callable[..., Any]


class Counting(FakeAdapter):
    """Answers with what it hears, and counts the sends and the sessions."""

    def __init__(self, answer: Any = None) -> None:
        super().__init__(answer or (lambda turn, ctx: Turn(reply=f"heard {turn.text}")))
        self.sends = 0
        self.opened = 0

    async def open(self, ctx: Any) -> Any:
        self.opened += 1
        session, adapter = await super().open(ctx), self

        class Counted:
            async def send(self, turn: TurnInput, ctx: Any) -> Turn:
                adapter.sends += 1
                return await session.send(turn, ctx)

            async def close(self) -> None:
                await session.close()

        return Counted()


@pytest.fixture
def both(make_job: Any, make_services: Any, attempt: Any) -> Both:
    """Run `live`, then judge its record by `edited`; the adapter of the second may not be touched."""

    async def run(live: Any, edited: Any = None, answer: Any = None, **options: Any) -> tuple[Any, Regrading]:
        adapter = Counting(answer)
        replayable = options.pop("replayable", True)
        recorded = await attempt(live, adapter, **options)
        sends = adapter.sends, adapter.opened
        job = make_job(edited or live, adapter, **options)
        job = replace(job, definition=replace(job.definition, replayable=replayable))
        found = await regrade(job, make_services(), AttemptControl(), recorded)
        assert (adapter.sends, adapter.opened) == sends
        return recorded, found

    return run


async def two_turns(t: Any) -> None:
    first = await t.send("one")
    t.check(first.reply, includes("one")).label("first")
    other = t.new_session()
    second = await other.send("two")
    t.check(second.reply, equals("heard two"))


async def test_the_same_body_judges_the_record_as_it_judged_the_agent(both: Both) -> None:
    recorded, found = await both(two_turns)
    assert found.basis is Basis.REPLAYED
    assert found.evidence.summary == recorded.summary
    assert found.evidence.assertions == recorded.assertions
    assert found.evidence.turns == recorded.turns


def sync_body(t: Any) -> None:
    reply = t.send("one").reply
    t.check(reply, includes("one"))
    t.new_session().send("two").succeeded()


async def test_a_plain_body_is_replayed_in_a_thread(both: Both) -> None:
    recorded, found = await both(sync_body)
    assert (found.evidence.summary, found.evidence.assertions) == (recorded.summary, recorded.assertions)


async def test_an_edited_criterion_gives_another_verdict_and_the_facts_stay(both: Both) -> None:
    async def edited(t: Any) -> None:
        turn = await t.send("one")
        t.check(turn.reply, includes("nothing of it")).label("renamed")

    recorded, found = await both(two_turns, edited)
    summary = found.evidence.summary
    assert (recorded.summary.verdict, summary.verdict, summary.outcome) == (
        Verdict.PASSED,
        Verdict.FAILED,
        Outcome.COMPLETED,
    )
    assert [row.label for row in found.evidence.assertions] == ["renamed"]
    assert (summary.duration, summary.started_at, summary.turns) == (
        recorded.summary.duration,
        recorded.summary.started_at,
        2,  # it needs no more than one of them
    )


def sends(*calls: Callable[[Any], Any]) -> Any:
    async def body(t: Any) -> None:
        for call in calls:
            await call(t)
        t.succeeded()

    return body


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "const": 1}}}
FILE = InputFile("a.txt", "text/plain", b"one")


@pytest.mark.parametrize(
    ("live", "edited", "said"),
    [
        (
            sends(lambda t: t.send("a"), lambda t: t.send("What's in Brooklyn?")),
            sends(lambda t: t.send("a"), lambda t: t.send("What's in Queens?")),
            """session 1, turn 2: the text was "What's in Brooklyn?" and is "What's in Queens?\"""",
        ),
        (
            sends(lambda t: t.send("a")),
            sends(lambda t: t.send("a"), lambda t: t.send("b")),
            "session 1, turn 2 was never sent: the record has 1 of this session",
        ),
        (
            sends(lambda t: t.send("a")),
            sends(lambda t: t.send("a"), lambda t: t.new_session().send("a")),
            "session 2, turn 1 was never sent: the record has 0 of this session",
        ),
        (
            sends(lambda t: t.send("x" * 5_000 + "one")),
            sends(lambda t: t.send("x" * 5_000 + "two")),
            f"the text was '{'x' * 40}one' and is '{'x' * 40}two' (from character 4961)",
        ),
        (
            sends(lambda t: t.send("a", files=[FILE])),
            sends(lambda t: t.send("a", files=[replace(FILE, data=b"two")])),
            "session 1, turn 1: the files differ in content: ['a.txt']",
        ),
        (
            sends(lambda t: t.send("a", files=[FILE])),
            sends(lambda t: t.send("a")),
            "the files were ['a.txt'] and are []",
        ),
        (
            sends(lambda t: t.send("a", output=SCHEMA)),
            sends(lambda t: t.send("a", output={"type": "object", "properties": {"n": {"const": True}}})),
            "the output schemas were {'type'",
        ),
        (
            sends(lambda t: t.send("a"), lambda t: t.respond("yes")),
            sends(lambda t: t.send("a"), lambda t: t.respond(InputResponse("q", text="yes"))),
            "the responses were",
        ),
    ],
)
async def test_an_input_that_was_not_recorded_is_the_evals_failure(
    both: Both, live: Any, edited: Any, said: str
) -> None:
    def asks(turn: TurnInput, ctx: Any) -> Turn:
        asked = InputRequested("q", "sure?", options=(InputOption("yes", "Yes"),))
        return Turn(reply="ok") if turn.responses else Turn(status=TurnStatus.WAITING, events=(asked,))

    _, found = await both(live, edited, asks)
    summary = found.evidence.summary
    assert (summary.verdict, summary.kind, summary.code) == (
        Verdict.ERRORED,
        FailureKind.AUTHORING,
        "REPLAY_DIVERGED",
    )
    assert said in (summary.message or "")


async def test_a_divergence_that_the_body_catches_stands(both: Both) -> None:
    async def edited(t: Any) -> None:
        try:
            await t.send("other")
        except Exception:
            t.check(1, equals(1))

    _, found = await both(two_turns, edited)
    assert found.evidence.summary.code == "REPLAY_DIVERGED"


async def test_the_order_of_an_equal_schemas_keys_is_no_difference(both: Both) -> None:
    turned = {"properties": {"n": {"const": 1, "type": "integer"}}, "type": "object"}
    _, found = await both(sends(lambda t: t.send("a", output=SCHEMA)), sends(lambda t: t.send("a", output=turned)))
    assert found.evidence.summary.verdict is Verdict.PASSED


# --- what ended otherwise -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "options", "kind"),
    [
        (SendFailure("broken pipe"), {}, FailureKind.ADAPTER),
        (SendFailure("quota", kind=FailureKind.PROVIDER, code="RATE_LIMITED"), {}, FailureKind.PROVIDER),
        (asyncio.sleep, {"timeout": 0.05}, FailureKind.DEADLINE),
    ],
)
async def test_a_failed_execution_stands_whatever_the_body_says_now(
    both: Both, answer: Any, options: dict[str, Any], kind: FailureKind
) -> None:
    async def breaks(turn: TurnInput, ctx: Any) -> Turn:
        if isinstance(answer, Exception):
            raise answer
        await answer(60)
        return Turn()

    async def edited(t: Any) -> None:
        t.check(1, equals(1))

    recorded, found = await both(two_turns, edited, breaks, **options)
    assert recorded.summary.kind is kind
    assert found.basis is Basis.FOLDED
    assert found.evidence == recorded


async def test_a_body_that_raised_is_judged_once_it_is_mended(both: Both) -> None:
    async def live(t: Any) -> None:
        turn = await t.send("one")
        t.check(turn.reply.upcase(), includes("ONE"))

    async def edited(t: Any) -> None:
        turn = await t.send("one")
        t.check(turn.reply.upper(), includes("ONE"))

    recorded, found = await both(live, edited)
    assert (recorded.summary.code, recorded.summary.outcome) == ("EVAL_RAISED", Outcome.ERRORED)
    assert (found.basis, found.evidence.summary.verdict) == (Basis.REPLAYED, Verdict.PASSED)
    assert (found.evidence.summary.kind, found.evidence.summary.code) == (None, None)


async def gives_up(t: Any) -> None:
    t.check((await t.send("quick")).reply, includes("quick"))
    line = t.new_session()
    try:
        await asyncio.wait_for(line.send("slow"), 0.05)
    except TimeoutError:
        t.check("gave up", equals("gave up"))
    line.max_tool_calls(3)


async def slow(turn: TurnInput, ctx: Any) -> Turn:
    if turn.text == "slow":
        await asyncio.sleep(60)
    return Turn(reply=turn.text, coverage={})


async def test_a_send_that_the_body_gave_up_is_given_up_again(both: Both) -> None:
    recorded, found = await both(gives_up, None, slow, allow_no_assertions=True)
    assert [turn.failure is None for turn in recorded.turns] == [True, False]
    assert found.evidence.assertions == recorded.assertions
    assert found.evidence.summary == recorded.summary


async def test_a_body_that_now_waits_for_it_has_diverged(both: Both) -> None:
    async def waits(t: Any) -> None:
        await t.send("quick")
        await t.new_session().send("slow")

    _, found = await both(gives_up, waits, slow)
    summary = found.evidence.summary
    assert summary.code == "REPLAY_DIVERGED"
    assert "session 2, turn 1 was given up, and is now waited for" in (summary.message or "")


async def test_a_body_that_does_not_end_is_the_graders_failure_and_not_the_agents(both: Both) -> None:
    async def hangs(t: Any) -> None:
        await asyncio.sleep(60)

    _, found = await both(two_turns, hangs, timeout=0.2)
    assert (found.evidence.summary.kind, found.evidence.summary.code) == (FailureKind.GRADER, "REPLAY_TIMEOUT")


# --- the record in place of the world -------------------------------------------------------------------------


async def test_time_left_and_a_turns_times_are_the_recorded_ones(both: Both) -> None:
    seen: list[Any] = []

    async def body(t: Any) -> None:
        turn = await t.send("one")
        seen.append((turn.record, t.time_left))
        t.check(t.seed, equals(5))

    async def answer(turn: TurnInput, ctx: Any) -> Turn:
        await asyncio.sleep(0.1)
        return Turn(reply="ok")

    await both(body, None, answer, timeout=1000.0)
    (live, _), (replayed, left) = seen
    assert replayed == live
    assert 999 < left <= 1000 - live.duration


async def test_coverage_is_the_recorded_one(both: Both) -> None:
    async def body(t: Any) -> None:
        await t.send("one")
        t.used_no_tools().optional()

    def blind(turn: TurnInput, ctx: Any) -> Turn:
        return Turn(reply="ok", coverage={Channel.ACTIONS: unavailable("not shown")})

    recorded, found = await both(body, None, blind)
    assert recorded.assertions[0].outcome.reason == "coverage:actions=unavailable (not shown)"
    assert found.evidence.assertions == recorded.assertions


# --- a sandbox ------------------------------------------------------------------------------------------------


def sandboxed(*statements: Callable[[Any, Any], Any]) -> Any:
    async def body(t: Any) -> None:
        turn = await t.send("fix it")
        await t.sandbox.upload("tests/", "tests")
        await t.sandbox.write("note.txt", "x")
        result = await t.sandbox.run("pytest", "-q")
        for statement in statements:
            statement(t, result)
        t.check(turn.reply, includes("fix")).label("said so")

    return body


@pytest.mark.parametrize(
    "asserts",
    [
        lambda t, result: t.check(result, command_succeeded()),
        lambda t, result: t.check(result.text, includes("passed")),
        lambda t, result: t.check(result.stdout.decode().splitlines()[0], ~includes("failed")),
        lambda t, result: t.check(1, satisfies("same", lambda one: result.exit_code == one)),
        lambda t, result: t.check([result.text], equals(["passed"])),
    ],
)
async def test_what_a_sandbox_gave_is_unavailable_and_the_body_goes_on(
    make_job: Any, make_services: Any, attempt: Any, asserts: Any
) -> None:
    recorded = await attempt(sends(lambda t: t.send("fix it")))
    found = await regrade(make_job(sandboxed(asserts)), make_services(), AttemptControl(), recorded)
    unknown, known = found.evidence.assertions
    assert (unknown.outcome.result, unknown.outcome.reason) == (Result.UNAVAILABLE, "not-recorded")
    assert (known.label, known.holds) == ("said so", True)
    summary = found.evidence.summary
    assert (summary.kind, summary.code) == (FailureKind.GRADER, "ASSERTION_UNAVAILABLE")
    assert found.basis is Basis.REPLAYED


async def test_an_optional_assertion_on_it_harms_nothing(make_job: Any, make_services: Any, attempt: Any) -> None:
    recorded = await attempt(sends(lambda t: t.send("fix it")))
    body = sandboxed(lambda t, result: t.check(result, command_succeeded()).optional())
    found = await regrade(make_job(body), make_services(), AttemptControl(), recorded)
    assert found.evidence.summary.verdict is Verdict.PASSED


@pytest.mark.parametrize(
    "decides",
    [
        lambda t, result: t.skip("broken") if not result.ok else None,
        lambda t, result: t.log(f"it said {result.text}"),
        lambda t, result: len(result.stdout) + 1,
        lambda t, result: result.exit_code == 0,
        lambda t, result: [line for line in result.text.splitlines()],
        lambda t, result: int(result.text),
        lambda t, result: includes(result.text),
        lambda t, result: Path(result.text),
        lambda t, result: json.loads(result.stdout),
        lambda t, result: isinstance(result.text, str),
        lambda t, result: t.check("x", equals(result.text)),
        lambda t, result: sorted([result.text, "x"]),
    ],
)
async def test_a_body_that_decides_by_it_keeps_its_earlier_verdict(
    make_job: Any, make_services: Any, attempt: Any, decides: Any
) -> None:
    recorded = await attempt(sends(lambda t: t.send("fix it")))
    found = await regrade(make_job(sandboxed(decides)), make_services(), AttemptControl(), recorded)
    assert (found.basis, found.evidence) == (Basis.KEPT, recorded)
    assert found.reason == "not-recorded: the test body decides by what its sandbox gave it"


async def test_downloading_what_nobody_kept_decides_too(make_job: Any, make_services: Any, attempt: Any) -> None:
    async def body(t: Any) -> None:
        await t.send("fix it")
        await t.sandbox.download("out.txt", "/nowhere/out.txt")

    recorded = await attempt(sends(lambda t: t.send("fix it")))
    found = await regrade(make_job(body), make_services(), AttemptControl(), recorded)
    assert found.basis is Basis.KEPT


# --- stored assertions alone ----------------------------------------------------------------------------------


async def test_an_eval_that_is_not_replayable_is_folded_from_its_rows(both: Both) -> None:
    async def never(t: Any) -> None:
        raise RuntimeError("not run")

    async def live(t: Any) -> None:
        turn = await t.send("one")
        t.check(turn.reply, includes("one"))
        t.check(turn.reply, includes("two")).score(2)
        t.check(turn.reply, includes("one")).score(3)

    recorded, found = await both(live, never, style=Style.SCORE, replayable=False)
    assert (found.basis, found.evidence) == (Basis.FOLDED, recorded)
    assert (found.evidence.summary.score_state, found.evidence.summary.earned) == (ScoreState.COMPLETE, 3.0)


async def test_folding_reads_the_stored_rows_and_not_the_stored_verdict(
    make_job: Any, make_services: Any, attempt: Any
) -> None:
    recorded = await attempt(two_turns, Counting())
    wrong = replace(recorded.summary, verdict=Verdict.FAILED, message="it says so")
    job = make_job(two_turns)
    job = replace(job, definition=replace(job.definition, replayable=False))
    found = await regrade(job, make_services(), AttemptControl(), replace(recorded, summary=wrong))
    assert (found.evidence.summary.verdict, found.evidence.summary.message) == (Verdict.PASSED, None)


async def test_an_attempt_that_cannot_be_judged_here_takes_no_judge_call_over(attempt: Any) -> None:
    recorded = replace(await attempt(two_turns, Counting()), judge_calls=(ANSWERED,))
    found = refused(Style.PASS, recorded, AttemptFailure(FailureKind.AUTHORING, "ROW_INVALID", "no row"))
    assert (found.evidence.assertions, found.evidence.judge_calls) == ((), ())
    assert found.evidence.turns == recorded.turns and found.evidence.summary.code == "ROW_INVALID"


async def test_what_was_not_recorded_is_no_mistake_of_the_body(attempt: Any) -> None:
    async def body(t: Any) -> None:
        if Unrecorded().exit_code == 0:
            t.log("decided")

    summary = (await attempt(body)).summary
    assert (summary.kind, summary.code) == (FailureKind.GRADER, "NOT_RECORDED")
