"""Agents in Python that the tests load by name."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from datetime import date
from functools import partial
from typing import Any

from evalfleet.errors import Acceptance, FailureKind, SendFailure
from evalfleet.model.agent import agent, sandbox_agent
from evalfleet.model.coverage import COMPLETE_COVERAGE
from evalfleet.model.tool import ToolRejected, tool
from evalfleet.model.turn import Turn, TurnInput
from evalfleet.ports import AdapterContext


@agent(coverage=COMPLETE_COVERAGE)
async def echo(turn: TurnInput, ctx: AdapterContext) -> Turn:
    return Turn(reply=turn.text)


@agent(coverage=COMPLETE_COVERAGE)
def blocking(turn: TurnInput, ctx: AdapterContext) -> str:
    return f"{turn.text} {threading.current_thread() is threading.main_thread()} {ctx.model} {ctx.flags['x']}"


@agent(coverage=COMPLETE_COVERAGE)
def hidden_coroutine(turn: TurnInput, ctx: AdapterContext) -> Awaitable[Turn]:
    return echo.target(turn, ctx)


bound = agent(coverage=COMPLETE_COVERAGE, name="bound")(partial(echo.target))


@sandbox_agent(coverage=COMPLETE_COVERAGE)
async def boxed(turn: TurnInput, ctx: AdapterContext) -> Turn:
    return Turn(reply=ctx.sandbox.id)


@agent(coverage=COMPLETE_COVERAGE)
class Counter:
    """Counts its own turns; says through `log` when it is closed."""

    def __init__(self, ctx: AdapterContext) -> None:
        self.ctx = ctx
        self.turns = 0

    async def send(self, turn: TurnInput) -> Turn:
        self.turns += 1
        return Turn(reply=str(self.turns))

    async def close(self) -> None:
        self.ctx.log("closed")


@agent(coverage=COMPLETE_COVERAGE)
class BlockingCounter:
    def __init__(self, ctx: AdapterContext) -> None:
        self.ctx = ctx
        self.made_in = threading.current_thread()

    def send(self, turn: TurnInput) -> str:
        return str(threading.main_thread() not in (self.made_in, threading.current_thread()))

    def close(self) -> None:
        self.ctx.log("closed")


@agent(coverage=COMPLETE_COVERAGE)
class Wordless:
    """No `send`."""


def plain_function(turn: TurnInput, ctx: AdapterContext) -> str:
    return "no coverage"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text either")


def failing(action: Callable[[], Any]) -> Any:
    @agent(coverage=COMPLETE_COVERAGE)
    async def fails(turn: TurnInput, ctx: AdapterContext) -> Any:
        return action()

    return fails


def throw(error: BaseException) -> Any:
    raise error


raises_value_error = failing(lambda: throw(ValueError("boom")))
raises_system_exit = failing(lambda: sys.exit(3))
raises_cancelled = failing(lambda: throw(asyncio.CancelledError()))
raises_unprintable = failing(lambda: throw(Unprintable()))
raises_send_failure = failing(
    lambda: throw(SendFailure("down", kind=FailureKind.PROVIDER, code="DOWN", acceptance=Acceptance.REJECTED))
)
returns_dict = failing(lambda: {"reply": "x"})


@agent(coverage=COMPLETE_COVERAGE)
def raises_stop_iteration(turn: TurnInput, ctx: AdapterContext) -> str:
    raise StopIteration("from a thread")


@agent(coverage=COMPLETE_COVERAGE)
async def sleeps(turn: TurnInput, ctx: AdapterContext) -> str:
    await ctx.clock.sleep(60)
    return "late"


@agent(coverage=COMPLETE_COVERAGE)
async def turns_cancellation_into_an_error(turn: TurnInput, ctx: AdapterContext) -> str:
    try:
        await ctx.clock.sleep(60)
    except asyncio.CancelledError:
        raise RuntimeError("interrupted") from None
    return "late"


released = threading.Event()


@agent(coverage=COMPLETE_COVERAGE)
def waits_in_a_thread(turn: TurnInput, ctx: AdapterContext) -> str:
    released.wait(10)
    return "released"


@tool
def add(left: int, right: int) -> int:
    """Add two integers."""
    return left + right


@tool
async def slow_add(left: int, right: int) -> int:
    await asyncio.sleep(0.2)
    return left + right


@tool(needs_approval=True)
def pay(amount: int) -> str:
    return f"paid {amount}"


@tool
def unlucky() -> None:
    raise ZeroDivisionError("tool broke")


@tool
def exits() -> None:
    sys.exit(1)


@tool
async def gives_up() -> None:
    raise asyncio.CancelledError


@tool
def forbidden(path: str) -> None:
    raise ToolRejected(f"nobody may read {path}")


@tool
def shapeless() -> Any:
    return object()


@tool
def dated(n: int) -> Any:
    return {"day": date(2026, 1, 2), "n": n, 1: (2, 3)}
