"""Driving an adapter under test: what makes its agent show something, and one send of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from unittest import SkipTest

from evalfleet.errors import FailureKind, SendFailure
from evalfleet.model.events import Message, Role
from evalfleet.model.turn import Turn, TurnInput
from evalfleet.ports import Adapter
from evalfleet.testing.adapter_context import FakeContext


@dataclass(frozen=True, slots=True)
class Absent:
    """The agent can't be made to do this; `reason` says why, and the check is skipped with it."""

    reason: str


Probe: TypeAlias = str | TurnInput | Absent | None
MakeAdapter: TypeAlias = Callable[[], Adapter | AbstractAsyncContextManager[Adapter]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Inputs that make the agent under test show what the suite must see. None: nobody has said how.

    `tool_succeeds`, `tool_fails` and `tool_rejected` make it call one tool that ends so, `two_tools` two tools that
    run at the same time. `echo` makes it reply with exactly a text. `endless` keeps it busy for a minute.
    `fails` makes the send raise, with `fails_kind` to blame. `remember` hands it a secret word that `recall`
    asks back. `reads` makes it say what stands in a text file that is sent along. `tool_asks` makes it call one tool
    that waits for a person, who has the options `allow` and `deny`.
    """

    plain: str | TurnInput = "Say hello."
    tool_succeeds: Probe = None
    tool_fails: Probe = None
    tool_rejected: Probe = None
    two_tools: Probe = None
    echo: Callable[[str], str | TurnInput] | Absent | None = None
    endless: Probe = None
    fails: Probe = None
    fails_kind: FailureKind = FailureKind.PROVIDER
    remember: Callable[[str], str | TurnInput] | Absent | None = None
    recall: Probe = None
    reads: Probe = None
    tool_asks: Probe = None
    allow: str = "approve"
    deny: str = "deny"


@dataclass(frozen=True, slots=True)
class Subject:
    """What a suite examines."""

    make_adapter: MakeAdapter
    probes: Probes
    context: Callable[[], FakeContext]

    @asynccontextmanager
    async def adapter(self) -> AsyncGenerator[Adapter, None]:
        made = self.make_adapter()
        if isinstance(made, AbstractAsyncContextManager):
            async with made as adapter:
                yield adapter
            return
        try:
            yield made
        finally:
            await made.close()


def as_test(body: Callable[[Any], Coroutine[Any, Any, None]]) -> Callable[[Any], None]:
    """A test method that runs its coroutine in a loop of its own."""

    def test(self: Any) -> None:
        asyncio.run(body(self))

    test.__name__, test.__qualname__, test.__doc__ = body.__name__, body.__qualname__, body.__doc__
    return test


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


def probed(probe: Probe, name: str) -> TurnInput:
    return as_input(required(probe, name))


def required(probe: Any, name: str) -> Any:
    if probe is None or isinstance(probe, Absent):
        raise SkipTest(f"no probe {name}" if probe is None else f"{name}: {probe.reason}")
    return probe


def as_input(given: str | TurnInput) -> TurnInput:
    return TurnInput(given) if isinstance(given, str) else given


def reply_of(turn: Turn) -> str:
    return "\n\n".join(e.text for e in turn.all_events() if isinstance(e, Message) and e.role is Role.ASSISTANT)


async def send_once(adapter: Adapter, given: str | TurnInput, ctx: FakeContext) -> Turn:
    session = await adapter.open(ctx)
    try:
        return await session.send(as_input(given), ctx)
    finally:
        await session.close()


async def failure_of(send: Coroutine[Any, Any, Turn], seconds: float, late: str) -> SendFailure:
    """The failure that `send` ends with. A send that outlasts `seconds` is left to the end of the loop."""
    task = asyncio.ensure_future(send)
    await asyncio.wait({task}, timeout=seconds)
    expect(task.done(), late)
    error = task.exception()
    if isinstance(error, SendFailure):
        return error
    if error is not None:
        raise error
    raise AssertionError("the send succeeded")
