"""The conformance suite of adapters: one line in a test module of whoever writes one.

    TestMyAgent = adapter_suite(lambda: PythonAdapter(my_agent), probes=Probes(tool_succeeds="List the files"))

It works with any runner that collects classes named `Test…`; no plugin is needed. A check whose probe is absent is
skipped, except that an adapter which declares `actions: complete` must show that it loses no tool call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from unittest import SkipTest

from evalfleet.errors import FailureKind, SendFailure
from evalfleet.model.coverage import Channel, Coverage, CoverageEntry, worse
from evalfleet.model.events import (
    EVENT_TYPES,
    MISSING,
    Event,
    Message,
    OperationFinished,
    OperationKind,
    OperationStarted,
    OperationStatus,
    Role,
)
from evalfleet.model.turn import Turn, TurnInput, TurnStatus
from evalfleet.ports import Adapter
from evalfleet.testing.adapter_context import FakeContext

#: How long an adapter may take to obey a cancellation or a deadline, in seconds.
PROMPT = 2.0

ODD_TEXTS = (
    "NUL \0 and ESC \x1b[31m",
    "lone surrogates \ud800 \udfff",
    "astral 🙂 and combining e\u0301",
    "separators \u2028 \u2029 \x85",
    "\ufeffmark in front",
    "line\r\nends\rof\nall kinds",
    "right to left \u202e\u05d0\u05d1",
    '{"json": "looking"} </script> ]]> ${text} {{x}}',
)


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
    asks back.
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


def adapter_suite(
    make_adapter: MakeAdapter, *, probes: Probes | None = None, context: Callable[[], FakeContext] = FakeContext
) -> type[AdapterChecks]:
    """A test class for an adapter. Name what it returns `Test…` in a test module.

    `make_adapter` returns a fresh adapter, or an async context manager around one (that starts its server, say).
    `context` makes the `ctx` of a session, with the secrets, flags or model that the agent needs.
    """
    subject = Subject(make_adapter, probes or Probes(), context)
    return type("AdapterSuite", (AdapterChecks,), {"subject": subject})


def _check(body: Callable[[Any], Coroutine[Any, Any, None]]) -> Callable[[Any], None]:
    """A test method that runs its coroutine in a loop of its own."""

    def test(self: Any) -> None:
        asyncio.run(body(self))

    test.__name__, test.__qualname__, test.__doc__ = body.__name__, body.__qualname__, body.__doc__
    return test


class AdapterChecks:
    """The checks. Get a class to run from `adapter_suite`."""

    subject: Subject

    @_check
    async def test_all_six_channels_are_declared(self) -> None:
        async with self.subject.adapter() as adapter:
            declared = adapter.coverage
            known = isinstance(declared, Coverage)  # pyright: ignore[reportUnnecessaryIsInstance] - may be untyped
            _expect(known, f"coverage is a {type(declared).__name__}")
            for channel in Channel:
                entry = getattr(declared, channel.value, None)
                _expect(isinstance(entry, CoverageEntry), f"coverage.{channel} is not declared")
            _expect(adapter.sandboxed in (True, False), "sandboxed must be true or false")

    @_check
    async def test_a_plain_turn_is_well_formed(self) -> None:
        async with self.subject.adapter() as adapter:
            turn = await _send(adapter, self.subject.probes.plain, self.subject.context())
            _well_formed(adapter, turn, self.subject.probes.plain)
            _proves_what_it_declares(adapter, turn)

    @_check
    async def test_a_session_goes_on_for_several_turns(self) -> None:
        async with self.subject.adapter() as adapter:
            ctx = self.subject.context()
            session = await adapter.open(ctx)
            for _ in range(3):
                _well_formed(adapter, await session.send(_input(self.subject.probes.plain), ctx), "")
            await session.close()

    @_check
    async def test_sessions_know_nothing_of_each_other(self) -> None:
        probes = self.subject.probes
        remember, recall = _given(probes.remember, "remember"), _probe(probes.recall, "recall")
        async with self.subject.adapter() as adapter:
            one, other = self.subject.context(), self.subject.context()
            first, second = await adapter.open(one), await adapter.open(other)
            await first.send(_input(remember("xylophone-4711")), one)
            _expect("xylophone-4711" in _said(await first.send(recall, one)), "a session forgets its own turns")
            _expect("xylophone-4711" not in _said(await second.send(recall, other)), "a session knows another's turns")
            if one.session.id is not None:
                _expect(one.session.id != other.session.id, "two sessions have one backend session id")

    @_check
    async def test_sessions_at_the_same_time_get_their_own_answers(self) -> None:
        echo = _given(self.subject.probes.echo, "echo")
        async with self.subject.adapter() as adapter:
            texts = [f"number {index}" for index in range(8)]
            turns = await asyncio.gather(*(_send(adapter, echo(text), self.subject.context()) for text in texts))
            _expect([_said(turn) for turn in turns] == texts, "answers went to the wrong sessions")

    @_check
    async def test_a_tool_that_succeeds_is_recorded(self) -> None:
        await self._tool(self.subject.probes.tool_succeeds, "tool_succeeds", OperationStatus.COMPLETED)

    @_check
    async def test_a_tool_that_fails_is_recorded(self) -> None:
        await self._tool(self.subject.probes.tool_fails, "tool_fails", OperationStatus.FAILED)

    @_check
    async def test_a_rejected_tool_is_recorded(self) -> None:
        await self._tool(self.subject.probes.tool_rejected, "tool_rejected", OperationStatus.REJECTED)

    @_check
    async def test_two_tools_at_the_same_time_are_both_recorded(self) -> None:
        turn = await self._turn_with_tools(self.subject.probes.two_tools, "two_tools")
        started = [event for event in turn.events if isinstance(event, OperationStarted)]
        finished = [event for event in turn.events if isinstance(event, OperationFinished)]
        _expect(len(started) == 2 and len(finished) == 2, f"{len(started)} calls started and {len(finished)} finished")
        _expect(started[0].operation_id != started[1].operation_id, "calls that overlap share an operation_id")

    @_check
    async def test_any_text_goes_there_and_back(self) -> None:
        echo = _given(self.subject.probes.echo, "echo")
        async with self.subject.adapter() as adapter:
            for text in ODD_TEXTS:
                said = _said(await _send(adapter, echo(text), self.subject.context()))
                _expect(said == text, f"{text!r} came back as {said[:200]!r}")

    @_check
    async def test_a_large_reply_comes_whole(self) -> None:
        echo = _given(self.subject.probes.echo, "echo")
        text = "0123456789abcdé\n" * 65_536
        async with self.subject.adapter() as adapter:
            said = _said(await _send(adapter, echo(text), self.subject.context()))
            _expect(said == text, f"a reply of {len(text)} characters came back with {len(said)}")

    @_check
    async def test_a_cancelled_send_ends_at_once_and_harms_no_other(self) -> None:
        endless = _probe(self.subject.probes.endless, "endless")
        async with self.subject.adapter() as adapter:
            task = asyncio.ensure_future(_send(adapter, endless, self.subject.context()))
            await asyncio.wait({task}, timeout=0.2)
            _expect(not task.done(), "the endless probe ended by itself")
            task.cancel()
            await asyncio.wait({task}, timeout=PROMPT)
            _expect(task.done(), f"a cancelled send still runs after {PROMPT} s")
            _expect(task.cancelled(), "a cancelled send ended in another way")
            await _send(adapter, self.subject.probes.plain, self.subject.context())

    @_check
    async def test_the_deadline_is_respected(self) -> None:
        endless = _probe(self.subject.probes.endless, "endless")
        async with self.subject.adapter() as adapter:
            ctx = self.subject.context()
            session = await adapter.open(ctx)
            ctx.limit(0.3)
            late = f"a send still runs {PROMPT} s after its deadline"
            failure = await _failure(session.send(endless, ctx), 0.3 + PROMPT, late)
            _expect(failure.kind is FailureKind.DEADLINE, f"a missed deadline is blamed on {failure.kind}")

    @_check
    async def test_a_failure_names_who_is_to_blame(self) -> None:
        fails = _probe(self.subject.probes.fails, "fails")
        async with self.subject.adapter() as adapter:
            send = _send(adapter, fails, self.subject.context())
            failure = await _failure(send, 60, "the failing probe hangs")
            kind = self.subject.probes.fails_kind
            _expect(failure.kind is kind, f"the failure is blamed on {failure.kind}, not on {kind}")
            _expect(bool(failure.code and str(failure)), "a failure needs a code and a message")
            await _send(adapter, self.subject.probes.plain, self.subject.context())

    @_check
    async def test_closing_twice_and_closing_early_are_fine(self) -> None:
        async with self.subject.adapter() as adapter:
            ctx = self.subject.context()
            used, unused, left_open = [await adapter.open(ctx) for _ in range(3)]
            await used.send(_input(self.subject.probes.plain), ctx)
            for session in (used, used, unused):
                await session.close()
            await adapter.close()
            await left_open.close()
            await adapter.close()

    async def _tool(self, probe: Probe, name: str, status: OperationStatus) -> None:
        turn = await self._turn_with_tools(probe, name)
        finished = [event for event in turn.events if isinstance(event, OperationFinished)]
        _expect(len(finished) == 1, f"{len(finished)} tool calls finished instead of 1")
        _expect(finished[0].status is status, f"the call is recorded as {finished[0].status}, not as {status}")

    async def _turn_with_tools(self, probe: Probe, name: str) -> Turn:
        async with self.subject.adapter() as adapter:
            complete = adapter.coverage.actions.is_complete
            if probe is None and complete:
                raise AssertionError(
                    f"coverage declares actions complete: give the probe {name} (or Absent with the reason why it "
                    "can't happen), or declare actions partial"
                )
            if not complete and adapter.coverage.actions.state.value == "unavailable":
                raise SkipTest("actions are unavailable")
            given = _probe(probe, name)
            turn = await _send(adapter, given, self.subject.context())
            _well_formed(adapter, turn, given)
            return turn


def operation_problems(events: Iterable[Event]) -> list[str]:
    """What is wrong with the starts and finishes of operations: order, pairing, ids used twice at a time."""
    problems: list[str] = []
    running: dict[str, OperationKind] = {}
    for event in events:
        if isinstance(event, OperationStarted):
            if event.operation_id in running:
                problems.append(f"operation {event.operation_id!r} is started again before it finished")
            running[event.operation_id] = event.kind
        elif isinstance(event, OperationFinished):
            kind = running.pop(event.operation_id, None)
            if kind is None:
                problems.append(f"operation {event.operation_id!r} finishes without a start")
            elif kind is not event.kind:
                problems.append(f"operation {event.operation_id!r} starts as {kind} and finishes as {event.kind}")
            if event.status is OperationStatus.PENDING:
                problems.append(f"operation {event.operation_id!r} finishes as pending")
    return problems


def upgrades(declared: Coverage, turn: Turn) -> list[Channel]:
    """The channels that a turn claims to prove better than the adapter declared."""
    return [
        channel
        for channel, entry in turn.coverage.items()
        if worse(declared.entry(channel), entry).state is not entry.state
    ]


def _well_formed(adapter: Adapter, turn: object, given: str | TurnInput) -> None:
    if not isinstance(turn, Turn):
        raise AssertionError(f"send returned a {type(turn).__name__}, not a Turn")
    known = isinstance(turn.status, TurnStatus)  # pyright: ignore[reportUnnecessaryIsInstance] - may be untyped
    _expect(known, f"status is a {type(turn.status).__name__}")
    for event in turn.events:
        _expect(type(event) in EVENT_TYPES.values(), f"{type(event).__name__} is no event type")
    problems = operation_problems(turn.events)
    _expect(not problems, "; ".join(problems))
    text = _input(given).text
    repeated = any(isinstance(e, Message) and e.role is Role.USER and e.text == text for e in turn.events)
    _expect(not repeated, "the input is among the events; the engine records it itself")
    raised = upgrades(adapter.coverage, turn)
    _expect(not raised, f"the turn upgrades {', '.join(raised)}; coverage may only be taken back")
    if turn.data is not MISSING:
        json.dumps(turn.data)


def _proves_what_it_declares(adapter: Adapter, turn: Turn) -> None:
    effective = adapter.coverage.downgrade(turn.coverage)
    if effective.messages.is_complete and turn.status is TurnStatus.COMPLETED:
        _expect(bool(_said(turn)), "messages are complete, but a plain turn says nothing")
    if effective.usage.is_complete:
        counted = turn.usage is not None and turn.usage.total_tokens is not None and not turn.usage.unknown_calls
        _expect(counted, "usage is complete, but a plain turn's tokens are unknown")


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


def _probe(probe: Probe, name: str) -> TurnInput:
    return _input(_given(probe, name))


def _given(probe: Any, name: str) -> Any:
    if probe is None or isinstance(probe, Absent):
        raise SkipTest(f"no probe {name}" if probe is None else f"{name}: {probe.reason}")
    return probe


def _input(given: str | TurnInput) -> TurnInput:
    return TurnInput(given) if isinstance(given, str) else given


def _said(turn: Turn) -> str:
    return "\n\n".join(e.text for e in turn.all_events() if isinstance(e, Message) and e.role is Role.ASSISTANT)


async def _send(adapter: Adapter, given: str | TurnInput, ctx: FakeContext) -> Turn:
    session = await adapter.open(ctx)
    try:
        return await session.send(_input(given), ctx)
    finally:
        await session.close()


async def _failure(send: Coroutine[Any, Any, Turn], seconds: float, late: str) -> SendFailure:
    """The failure that `send` ends with. A send that outlasts `seconds` is left to the end of the loop."""
    task = asyncio.ensure_future(send)
    await asyncio.wait({task}, timeout=seconds)
    _expect(task.done(), late)
    error = task.exception()
    if isinstance(error, SendFailure):
        return error
    if error is not None:
        raise error
    raise AssertionError("the send succeeded")
