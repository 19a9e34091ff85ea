"""Model calls that wait for their rate: what an attempt's deadlines, turns and lane know of it.

The governor is the real one, of a process by itself; its account was told to wait a moment before.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from evalfleet.clock import SystemClock
from evalfleet.errors import FailureKind, SendFailure
from evalfleet.execution.attempt import AttemptControl
from evalfleet.execution.waiting import Stopwatch
from evalfleet.governor.local import Consumer, LocalGovernor, OwnRationing
from evalfleet.model.model_call import Account, CallEnd, CallFate, ModelCall
from evalfleet.model.turn import Turn
from evalfleet.model.verdict import Verdict
from evalfleet.randomness import SystemRandom
from evalfleet.testing.fakes import FakeSecrets
from evalfleet_adapters.limits import within_deadline
from tests.unit.execution.conftest import RunAttempt

ACCOUNT = Account(provider="openai", base_url="http://x", key=None, model="m")
CALL = ModelCall(account=ACCOUNT, input_bytes=10)
ANSWERED = CallEnd(fate=CallFate.ANSWERED)


def governor(wait: float = 0.0) -> LocalGovernor:
    """One whose account is held up for so many seconds from now on."""
    consumer = Consumer(run="r", worker="w", rates={}, secrets=FakeSecrets({}))
    made = LocalGovernor(consumer, OwnRationing(SystemClock()), SystemClock(), SystemRandom())
    if wait:
        call = made.at_once(CALL)
        assert call is not None
        call.end(CallEnd(fate=CallFate.THROTTLED, retry_after=wait))
    return made


def working(seconds: float) -> Any:
    """An agent that makes one call, which takes so long once it may be made."""

    async def answer(turn: Any, ctx: Any) -> Turn:
        async with within_deadline(ctx):
            call = await ctx.calls.admit(CALL)
            await asyncio.sleep(seconds)
            call.end(ANSWERED)
        return Turn(reply="done")

    return answer


async def sends(t: Any) -> None:
    (await t.send("go")).succeeded()


@dataclass
class Lane:
    """What is told to a worker."""

    said: list[Any] = field(default_factory=list)
    free: bool = True

    def waiting(self, *, begun: bool) -> None:
        self.said.append("waits" if begun else "goes on")

    def leave(self) -> bool:
        self.said.append("leaves")
        return True

    def take(self) -> bool:
        self.said.append("takes" if self.free else "none is free")
        return self.free


async def test_what_is_waited_counts_for_no_deadline_and_no_duration(attempt: RunAttempt) -> None:
    held = governor(1.2)
    evidence = await attempt(sends, working(0.1), timeout=0.6, turn_timeout=0.5, using={"governor": held})
    await held.close()
    assert evidence.summary.verdict is Verdict.PASSED
    (turn,) = evidence.turns
    assert turn.waited >= 1.0
    assert turn.duration < 0.5 and evidence.summary.duration < 0.6
    assert evidence.summary.extra["waited"] == pytest.approx(turn.waited, abs=0.05)


@pytest.mark.parametrize(
    ("limits", "code"),
    [({"turn_timeout": 0.4}, "TURN_TIMEOUT"), ({"timeout": 0.4}, "ATTEMPT_TIMEOUT")],
)
async def test_what_is_worked_after_it_does(attempt: RunAttempt, limits: dict[str, float], code: str) -> None:
    held = governor(0.8)
    evidence = await attempt(sends, working(3.0), using={"governor": held}, **limits)
    await held.close()
    assert (evidence.summary.kind, evidence.summary.code) == (FailureKind.DEADLINE, code)
    assert 0.3 <= evidence.summary.duration < 2.0


async def test_a_call_that_waits_gives_its_lane_up_and_has_it_back_before_it_is_made(attempt: RunAttempt) -> None:
    held, control = governor(1.0), AttemptControl()
    lane = control.lane = Lane(free=False)
    asyncio.get_running_loop().call_later(1.5, lambda: (setattr(lane, "free", True), held.pump()))
    evidence = await attempt(sends, working(0.0), using={"governor": held}, control=control)
    await held.close()
    assert evidence.turns[0].waited >= 1.4
    assert lane.said[:2] == ["waits", "leaves"]
    assert set(lane.said[2:-2]) == {"none is free"}
    assert lane.said[-2:] == ["takes", "goes on"]


async def test_a_short_wait_keeps_its_lane(attempt: RunAttempt) -> None:
    held, control = governor(0.2), AttemptControl()
    lane = control.lane = Lane()
    await attempt(sends, working(0.0), using={"governor": held}, control=control)
    await held.close()
    assert lane.said == ["waits", "goes on"]


async def test_while_another_line_works_the_lane_is_kept(attempt: RunAttempt) -> None:
    held, control = governor(1.2), AttemptControl()
    lane = control.lane = Lane()

    async def body(t: Any) -> None:
        await asyncio.gather(t.send("go"), t.new_session().send("work"))
        t.succeeded()

    async def answer(turn: Any, ctx: Any) -> Turn:
        if turn.text == "work":
            await asyncio.sleep(1.6)
        else:
            (await ctx.calls.admit(CALL)).end(ANSWERED)
        return Turn(reply="done")

    evidence = await attempt(body, answer, using={"governor": held}, control=control)
    await held.close()
    assert lane.said == ["waits", "goes on"]
    waited = {turn.input.text: turn.waited for turn in evidence.turns}
    assert waited["go"] >= 1.0 and waited["work"] == 0.0


async def test_a_cancelled_attempt_waits_no_more(attempt: RunAttempt) -> None:
    held, control = governor(30.0), AttemptControl()
    asyncio.get_running_loop().call_later(0.2, lambda: control.cancel("asked"))
    evidence = await asyncio.wait_for(attempt(sends, working(0.0), using={"governor": held}, control=control), 5.0)
    assert evidence.summary.kind is FailureKind.CANCELLED
    assert [use.waiting for use in held.uses()] in ([], [0])
    await held.close()


async def test_a_call_that_is_never_ended_ends_with_its_attempt(attempt: RunAttempt) -> None:
    held = governor()

    async def answer(turn: Any, ctx: Any) -> Turn:
        await ctx.calls.admit(CALL)
        raise SendFailure("forgot it")

    await attempt(sends, answer, using={"governor": held})
    again = held.at_once(CALL)
    assert again is not None
    again.end(CallEnd(fate=CallFate.THROTTLED, retry_after=5.0))
    assert [use.in_flight for use in held.uses()] == [0]
    await held.close()


class Away:
    """A governor that does not answer."""

    async def ration(self, report: Any) -> Any:
        raise ConnectionError("it is gone")


async def test_a_governor_that_is_away_is_noted_once_where_it_was_waited_for(attempt: RunAttempt) -> None:
    consumer = Consumer(run="r", worker="w", rates={}, secrets=FakeSecrets({}))
    held = LocalGovernor(consumer, Away(), SystemClock(), SystemRandom())
    call = held.at_once(CALL)
    assert call is not None
    call.end(CallEnd(fate=CallFate.THROTTLED, retry_after=0.3))

    async def body(t: Any) -> None:
        await t.send("go")
        (await t.send("on")).succeeded()

    evidence = await attempt(body, working(0.0), using={"governor": held})
    await held.close()
    assert evidence.summary.verdict is Verdict.PASSED
    note = "the governor of rates does not answer (it is gone): what was allotted last goes on"
    assert evidence.diagnostics.count(note) == 1, evidence.diagnostics


def test_a_stopwatch_counts_time_that_several_wait_once() -> None:
    watch = Stopwatch()
    watch.start(1.0)
    watch.start(2.0)
    assert watch.seconds(3.0) == 2.0
    watch.stop(4.0)
    watch.stop(5.0)
    assert watch.seconds(9.0) == 4.0
    watch.reset()
    watch.start(10.0)
    assert watch.seconds(11.0) == 1.0
