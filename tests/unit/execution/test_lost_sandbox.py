"""A sandbox that goes away under its agent: never a pass, never a fail, and nobody waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from evalfleet.assertions.matchers import equals
from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.execution.probing import PERIOD
from evalfleet.model.definition import SandboxSpec
from evalfleet.model.turn import Turn
from evalfleet.model.verdict import Outcome, Verdict
from evalfleet.testing.fakes import FakeSandboxes

SPEC = SandboxSpec(image="python:3.12-slim")


async def lost() -> None:
    raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_LOST", "its container is gone")


async def unreachable() -> None:
    raise ConnectionResetError("the engine is restarting")


async def silent() -> None:
    await asyncio.sleep(60)


class Fragile(FakeSandboxes):
    """Its sandboxes answer probes by `answer`, which a test changes while an attempt is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Callable[[], Awaitable[None]] | None = None
        self.probes = 0
        self.probed_twice = asyncio.Event()

    async def create(self, spec: SandboxSpec, owner: str) -> Any:
        sandbox: Any = await super().create(spec, owner)
        sandbox.probe = self.probe
        return sandbox

    async def probe(self) -> None:
        self.probes += 1
        if self.probes == 2:
            self.probed_twice.set()
        if self.answer is not None:
            await self.answer()


async def asks(t: Any) -> None:
    turn = await t.send("destroy it")
    t.check(turn.reply, equals("done"))


def code(evidence: Any) -> tuple[Any, ...]:
    summary = evidence.summary
    return summary.outcome, summary.verdict, summary.kind, summary.code


LOST = (Outcome.ERRORED, Verdict.ERRORED, FailureKind.SANDBOX, "SANDBOX_LOST")


async def test_an_agent_that_goes_on_without_its_sandbox_is_ended(attempt: Any) -> None:
    sandboxes = Fragile()

    async def answer(turn: Any, ctx: Any) -> Turn:
        sandboxes.answer = lost
        await asyncio.sleep(60)
        return Turn(reply="done")

    began = time.monotonic()
    evidence = await attempt(asks, answer, sandbox=(sandboxes, SPEC))
    assert code(evidence) == LOST
    assert evidence.summary.message == "its container is gone"
    assert time.monotonic() - began < 20 * PERIOD
    assert sandboxes.made[0].closed == 1


async def test_an_agent_that_is_done_before_anybody_looked_has_no_result_either(attempt: Any) -> None:
    sandboxes = Fragile()

    async def answer(turn: Any, ctx: Any) -> Turn:
        sandboxes.answer = lost
        return Turn(reply="done")

    evidence = await attempt(asks, answer, sandbox=(sandboxes, SPEC))
    assert code(evidence) == LOST
    assert [row.holds for row in evidence.assertions] == [True]


async def test_what_agent_and_author_make_of_the_loss_is_not_theirs(attempt: Any) -> None:
    for body in (asks, misuses):
        sandboxes = Fragile()

        async def answer(turn: Any, ctx: Any, sandboxes: Fragile = sandboxes) -> Turn:
            sandboxes.answer = lost
            raise ValueError("I can't find my files")

        assert code(await attempt(body, answer, sandbox=(sandboxes, SPEC))) == LOST


async def misuses(t: Any) -> None:
    with pytest.raises(AttemptFailure):
        await t.send("destroy it")
    raise ZeroDivisionError


async def test_a_deadline_stays_one(attempt: Any) -> None:
    sandboxes = Fragile()

    async def answer(turn: Any, ctx: Any) -> Turn:
        sandboxes.answer = lost
        await asyncio.sleep(60)
        return Turn()

    evidence = await attempt(asks, answer, sandbox=(sandboxes, SPEC), timeout=0.05)
    assert evidence.summary.code == "ATTEMPT_TIMEOUT"


async def test_a_probe_that_can_not_be_answered_is_noted_and_asked_again(attempt: Any) -> None:
    sandboxes = Fragile()

    async def answer(turn: Any, ctx: Any) -> Turn:
        sandboxes.answer = unreachable
        await sandboxes.probed_twice.wait()
        sandboxes.answer = None
        return Turn(reply="done")

    evidence = await attempt(asks, answer, sandbox=(sandboxes, SPEC))
    assert evidence.summary.verdict is Verdict.PASSED
    told = [line for line in evidence.diagnostics if line.startswith("sandbox")]
    assert told == ["sandbox: a probe did not answer: ConnectionResetError: the engine is restarting"]


@pytest.mark.parametrize(("answer", "expected"), [(unreachable, "SANDBOX_FAILED"), (silent, "SANDBOX_LOST")])
async def test_a_last_look_that_sees_nothing_is_no_pass(attempt: Any, answer: Any, expected: str) -> None:
    sandboxes = Fragile()
    sandboxes.answer = answer

    async def body(t: Any) -> None:
        t.check(1, equals(1))

    evidence = await attempt(body, sandbox=(sandboxes, SPEC))
    assert (evidence.summary.kind, evidence.summary.code) == (FailureKind.SANDBOX, expected)
    assert sandboxes.made[0].closed == 1


async def test_nothing_looks_at_a_sandbox_that_is_closed(attempt: Any) -> None:
    sandboxes = Fragile()

    async def body(t: Any) -> None:
        t.check(1, equals(1))

    await attempt(body, sandbox=(sandboxes, SPEC))
    await asyncio.sleep(1.5 * PERIOD)
    assert sandboxes.probes == 1
