"""Whatever author, agent and sandbox do together: one evidence, in time, everything closed, nothing left in the log."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from typing import Any

import pytest

from evalfleet.assertions.matchers import equals
from evalfleet.errors import SendFailure
from evalfleet.execution.attempt import AttemptControl, Patience, Stage
from evalfleet.execution.threads import AuthorThreads
from evalfleet.model.definition import SandboxSpec
from evalfleet.model.turn import Turn
from evalfleet.model.verdict import Outcome, Verdict
from evalfleet.testing.fakes import FakeAdapter, FakeSandboxes


class Strange(BaseException):
    pass


# --- authors ----------------------------------------------------------------------------------------------------


async def polite(t: Any) -> None:
    (await t.send("x")).succeeded()


def plain(t: Any) -> None:
    t.send("x").succeeded()


async def deaf(t: Any) -> None:
    with contextlib.suppress(BaseException):
        await t.send("x")
    for _ in range(8):
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue


async def scattered(t: Any) -> None:
    for _ in range(3):
        asyncio.ensure_future(t.new_session().send("y")).add_done_callback(
            lambda task: task.cancelled() or task.exception()
        )
    await asyncio.sleep(0)
    t.check(1, equals(1))


async def strange(t: Any) -> None:
    try:
        await t.send("x")
    finally:
        raise Strange


def plain_and_slow(t: Any) -> None:
    time.sleep(0.05)
    t.send("x")


# --- agents -----------------------------------------------------------------------------------------------------


async def answers(turn: Any, ctx: Any) -> Turn:
    return Turn(reply="ok")


async def fails(turn: Any, ctx: Any) -> Turn:
    raise SendFailure("no")


async def exits(turn: Any, ctx: Any) -> Turn:
    raise SystemExit(1)


async def strays(turn: Any, ctx: Any) -> Any:
    return object()


async def hangs(turn: Any, ctx: Any) -> Turn:
    await asyncio.sleep(60)
    return Turn()


async def ignores(turn: Any, ctx: Any) -> Turn:
    for _ in range(8):
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue
    return Turn(reply="late")


# --- closing ----------------------------------------------------------------------------------------------------


async def closes() -> None: ...


async def breaks() -> None:
    raise Strange


async def sticks() -> None:
    await asyncio.sleep(60)


@pytest.fixture
async def complaints() -> Any:
    """What the loop would have logged about errors that nobody looked at."""
    seen: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: seen.append(context))
    yield seen
    loop.set_exception_handler(None)


@pytest.mark.parametrize("close", [closes, breaks, sticks])
@pytest.mark.parametrize("agent", [answers, fails, exits, strays, hangs, ignores])
@pytest.mark.parametrize("author", [polite, plain, deaf, scattered, strange, plain_and_slow])
async def test_one_evidence_in_time_and_everything_closed(
    attempt: Any, threads: AuthorThreads, complaints: list[Any], author: Any, agent: Any, close: Any
) -> None:
    adapter, sandboxes, control = FakeAdapter(agent), FakeSandboxes(), AttemptControl()
    adapter.on_close = close
    began = time.monotonic()
    evidence = await attempt(
        author,
        adapter,
        control=control,
        sandbox=(sandboxes, SandboxSpec()),
        timeout=0.03,
        turn_timeout=0.02,
        using={"patience": Patience(grace=0.02, cleanup=0.02)},
    )
    assert time.monotonic() - began < 1
    assert control.stage is Stage.SEALED
    summary = evidence.summary
    assert summary.outcome in (Outcome.COMPLETED, Outcome.ERRORED)
    assert (summary.kind is None) == (summary.verdict is not Verdict.ERRORED)
    assert all(session.closed for session in adapter.sessions)
    assert [sandbox.closed for sandbox in sandboxes.made] == [1]
    sent = sum(len(session.sent) for session in adapter.sessions)
    assert len(evidence.turns) == sent
    async with asyncio.timeout(2):
        while threads.leaked:  # noqa: ASYNC110 - what was left behind tells nobody when it ends
            await asyncio.sleep(0.005)
    gc.collect(1)
    await asyncio.sleep(0)
    assert complaints == []


@pytest.mark.parametrize("moment", [0.0, 0.005, 0.015, 0.03, 0.05])
@pytest.mark.parametrize("author", [polite, plain, deaf, scattered])
async def test_cancelling_at_any_moment_gives_evidence(
    attempt: Any, threads: AuthorThreads, author: Any, moment: float
) -> None:
    async def answer(turn: Any, ctx: Any) -> Turn:
        await asyncio.sleep(0.02)
        return Turn(reply="ok")

    control, adapter = AttemptControl(), FakeAdapter(answer)
    running = asyncio.ensure_future(attempt(author, adapter, control=control))
    await asyncio.sleep(moment)
    control.cancel("stop")
    evidence = await asyncio.wait_for(running, 2)
    assert evidence.summary.outcome in (Outcome.CANCELLED, Outcome.COMPLETED, Outcome.ERRORED)
    assert control.stage is Stage.SEALED
    assert all(session.closed for session in adapter.sessions)
    async with asyncio.timeout(2):
        while threads.leaked:  # noqa: ASYNC110 - what was left behind tells nobody when it ends
            await asyncio.sleep(0.005)
