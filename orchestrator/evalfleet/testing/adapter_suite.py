"""The conformance suite of adapters: one line in a test module of whoever writes one.

    TestMyAgent = adapter_suite(lambda: PythonAdapter(my_agent), probes=Probes(tool_succeeds="List the files"))

It works with any runner that collects classes named `Test…`; no plugin is needed. A check whose probe is absent is
skipped, except that an adapter which declares `actions: complete` must show that it loses no tool call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from unittest import SkipTest

from evalfleet.errors import Acceptance, FailureKind, SendFailure
from evalfleet.model.coverage import Channel, Coverage, CoverageEntry, worse
from evalfleet.model.events import (
    EVENT_TYPES,
    MISSING,
    Event,
    InputRequested,
    Message,
    OperationFinished,
    OperationKind,
    OperationStarted,
    OperationStatus,
    Role,
)
from evalfleet.model.turn import InputFile, InputResponse, Turn, TurnInput, TurnStatus
from evalfleet.ports import Adapter
from evalfleet.testing.adapter_context import FakeContext
from evalfleet.testing.adapter_probes import (
    MakeAdapter,
    Probe,
    Probes,
    Subject,
    as_input,
    as_test,
    expect,
    failure_of,
    probed,
    reply_of,
    required,
    send_once,
)

#: How long an adapter may take to obey a cancellation or a deadline, in seconds.
PROMPT = 2.0

NOTE = InputFile("note.txt", "text/plain", b"xylophone-4711")

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


def adapter_suite(
    make_adapter: MakeAdapter, *, probes: Probes | None = None, context: Callable[[], FakeContext] = FakeContext
) -> type[AdapterChecks]:
    """A test class for an adapter. Name what it returns `Test…` in a test module.

    `make_adapter` returns a fresh adapter, or an async context manager around one (that starts its server, say).
    `context` makes the `ctx` of a session, with the secrets, flags or model that the agent needs.
    """
    subject = Subject(make_adapter, probes or Probes(), context)
    return type("AdapterSuite", (AdapterChecks,), {"subject": subject})


class AdapterChecks:
    """The checks. Get a class to run from `adapter_suite`."""

    subject: Subject

    @as_test
    async def test_all_six_channels_are_declared(self) -> None:
        async with self.subject.adapter() as adapter:
            declared = adapter.coverage
            known = isinstance(declared, Coverage)  # pyright: ignore[reportUnnecessaryIsInstance] - may be untyped
            expect(known, f"coverage is a {type(declared).__name__}")
            for channel in Channel:
                entry = getattr(declared, channel.value, None)
                expect(isinstance(entry, CoverageEntry), f"coverage.{channel} is not declared")
            expect(adapter.sandboxed in (True, False), "sandboxed must be true or false")

    @as_test
    async def test_a_plain_turn_is_well_formed(self) -> None:
        async with self.subject.adapter() as adapter:
            turn = await send_once(adapter, self.subject.probes.plain, self.subject.context())
            _well_formed(adapter, turn, self.subject.probes.plain)
            _proves_what_it_declares(adapter, turn)

    @as_test
    async def test_a_session_goes_on_for_several_turns(self) -> None:
        async with self.subject.adapter() as adapter:
            ctx = self.subject.context()
            session = await adapter.open(ctx)
            for _ in range(3):
                _well_formed(adapter, await session.send(as_input(self.subject.probes.plain), ctx), "")
            await session.close()

    @as_test
    async def test_sessions_know_nothing_of_each_other(self) -> None:
        probes = self.subject.probes
        remember, recall = required(probes.remember, "remember"), probed(probes.recall, "recall")
        async with self.subject.adapter() as adapter:
            one, other = self.subject.context(), self.subject.context()
            first, second = await adapter.open(one), await adapter.open(other)
            await first.send(as_input(remember("xylophone-4711")), one)
            expect("xylophone-4711" in reply_of(await first.send(recall, one)), "a session forgets its own turns")
            expect(
                "xylophone-4711" not in reply_of(await second.send(recall, other)), "a session knows another's turns"
            )
            if one.session.id is not None:
                expect(one.session.id != other.session.id, "two sessions have one backend session id")

    @as_test
    async def test_sessions_at_the_same_time_get_their_own_answers(self) -> None:
        echo = required(self.subject.probes.echo, "echo")
        async with self.subject.adapter() as adapter:
            texts = [f"number {index}" for index in range(8)]
            turns = await asyncio.gather(*(send_once(adapter, echo(text), self.subject.context()) for text in texts))
            expect([reply_of(turn) for turn in turns] == texts, "answers went to the wrong sessions")

    @as_test
    async def test_a_tool_that_succeeds_is_recorded(self) -> None:
        await self._tool(self.subject.probes.tool_succeeds, "tool_succeeds", OperationStatus.COMPLETED)

    @as_test
    async def test_a_tool_that_fails_is_recorded(self) -> None:
        await self._tool(self.subject.probes.tool_fails, "tool_fails", OperationStatus.FAILED)

    @as_test
    async def test_a_rejected_tool_is_recorded(self) -> None:
        await self._tool(self.subject.probes.tool_rejected, "tool_rejected", OperationStatus.REJECTED)

    @as_test
    async def test_two_tools_at_the_same_time_are_both_recorded(self) -> None:
        turn = await self._turn_with_tools(self.subject.probes.two_tools, "two_tools")
        started = [event for event in turn.events if isinstance(event, OperationStarted)]
        finished = [event for event in turn.events if isinstance(event, OperationFinished)]
        expect(len(started) == 2 and len(finished) == 2, f"{len(started)} calls started and {len(finished)} finished")
        expect(started[0].operation_id != started[1].operation_id, "calls that overlap share an operation_id")

    @as_test
    async def test_a_call_that_is_allowed_runs_and_happened_once(self) -> None:
        await self._answered(self.subject.probes.allow, OperationStatus.COMPLETED)

    @as_test
    async def test_a_call_that_is_denied_is_rejected(self) -> None:
        await self._answered(self.subject.probes.deny, OperationStatus.REJECTED)

    @as_test
    async def test_a_file_is_read_or_refused(self) -> None:
        reads = self.subject.probes.reads
        given = replace(as_input(self.subject.probes.plain) if reads is None else probed(reads, "reads"), files=(NOTE,))
        async with self.subject.adapter() as adapter:
            try:
                said = reply_of(await send_once(adapter, given, self.subject.context()))
            except SendFailure as failure:
                how = failure.acceptance
                expect(how is Acceptance.REJECTED, f"a refused file is {how}, not rejected")
                return
        expect(
            NOTE.data.decode() in said,
            "a file is neither read nor refused: give the probe reads (or Absent with the reason), or refuse it",
        )

    @as_test
    async def test_any_text_goes_there_and_back(self) -> None:
        echo = required(self.subject.probes.echo, "echo")
        async with self.subject.adapter() as adapter:
            for text in ODD_TEXTS:
                said = reply_of(await send_once(adapter, echo(text), self.subject.context()))
                expect(said == text, f"{text!r} came back as {said[:200]!r}")

    @as_test
    async def test_a_large_reply_comes_whole(self) -> None:
        echo = required(self.subject.probes.echo, "echo")
        text = "0123456789abcdé\n" * 65_536
        async with self.subject.adapter() as adapter:
            said = reply_of(await send_once(adapter, echo(text), self.subject.context()))
            expect(said == text, f"a reply of {len(text)} characters came back with {len(said)}")

    @as_test
    async def test_a_cancelled_send_ends_at_once_and_harms_no_other(self) -> None:
        endless = probed(self.subject.probes.endless, "endless")
        async with self.subject.adapter() as adapter:
            task = asyncio.ensure_future(send_once(adapter, endless, self.subject.context()))
            await asyncio.wait({task}, timeout=0.2)
            expect(not task.done(), "the endless probe ended by itself")
            task.cancel()
            await asyncio.wait({task}, timeout=PROMPT)
            expect(task.done(), f"a cancelled send still runs after {PROMPT} s")
            expect(task.cancelled(), "a cancelled send ended in another way")
            await send_once(adapter, self.subject.probes.plain, self.subject.context())

    @as_test
    async def test_the_deadline_is_respected(self) -> None:
        endless = probed(self.subject.probes.endless, "endless")
        async with self.subject.adapter() as adapter:
            ctx = self.subject.context()
            session = await adapter.open(ctx)
            ctx.limit(0.3)
            late = f"a send still runs {PROMPT} s after its deadline"
            failure = await failure_of(session.send(endless, ctx), 0.3 + PROMPT, late)
            expect(failure.kind is FailureKind.DEADLINE, f"a missed deadline is blamed on {failure.kind}")

    @as_test
    async def test_a_failure_names_who_is_to_blame(self) -> None:
        fails = probed(self.subject.probes.fails, "fails")
        async with self.subject.adapter() as adapter:
            send = send_once(adapter, fails, self.subject.context())
            failure = await failure_of(send, 60, "the failing probe hangs")
            kind = self.subject.probes.fails_kind
            expect(failure.kind is kind, f"the failure is blamed on {failure.kind}, not on {kind}")
            expect(bool(failure.code and str(failure)), "a failure needs a code and a message")
            await send_once(adapter, self.subject.probes.plain, self.subject.context())

    @as_test
    async def test_closing_twice_and_closing_early_are_fine(self) -> None:
        async with self.subject.adapter() as adapter:
            ctx = self.subject.context()
            used, unused, left_open = [await adapter.open(ctx) for _ in range(3)]
            await used.send(as_input(self.subject.probes.plain), ctx)
            for session in (used, used, unused):
                await session.close()
            await adapter.close()
            await left_open.close()
            await adapter.close()

    async def _tool(self, probe: Probe, name: str, status: OperationStatus) -> None:
        turn = await self._turn_with_tools(probe, name)
        finished = [event for event in turn.events if isinstance(event, OperationFinished)]
        expect(len(finished) == 1, f"{len(finished)} tool calls finished instead of 1")
        expect(finished[0].status is status, f"the call is recorded as {finished[0].status}, not as {status}")

    async def _answered(self, option: str, status: OperationStatus) -> None:
        """Let the call wait, choose an option, and look at both turns together."""
        given = probed(self.subject.probes.tool_asks, "tool_asks")
        async with self.subject.adapter() as adapter:
            ctx = self.subject.context()
            session = await adapter.open(ctx)
            parked = await session.send(given, ctx)
            expect(parked.status is TurnStatus.WAITING, f"a turn whose call waits for a person is {parked.status}")
            ids = [event.request_id for event in parked.events if isinstance(event, InputRequested)]
            expect(len(ids) == 1 and ids[0] is not None, f"one question with an id is expected, not {ids}")
            response = InputResponse(str(ids[0]), option_id=option)
            done = await session.send(TurnInput(option, responses=(response,)), ctx)
            await session.close()
        events = [*parked.events, *done.events]
        problems = operation_problems(events)
        expect(not problems, "; ".join(problems))
        started = sum(isinstance(event, OperationStarted) for event in events)
        ends = [event.status for event in events if isinstance(event, OperationFinished)]
        expect(
            (started, ends) == (1, [status]), f"{started} calls started, and ended {[*map(str, ends)]}, not {status}"
        )

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
            given = probed(probe, name)
            turn = await send_once(adapter, given, self.subject.context())
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
    expect(known, f"status is a {type(turn.status).__name__}")
    for event in turn.events:
        expect(type(event) in EVENT_TYPES.values(), f"{type(event).__name__} is no event type")
    problems = operation_problems(turn.events)
    expect(not problems, "; ".join(problems))
    text = as_input(given).text
    repeated = any(isinstance(e, Message) and e.role is Role.USER and e.text == text for e in turn.events)
    expect(not repeated, "the input is among the events; the engine records it itself")
    raised = upgrades(adapter.coverage, turn)
    expect(not raised, f"the turn upgrades {', '.join(raised)}; coverage may only be taken back")
    if turn.data is not MISSING:
        json.dumps(turn.data)


def _proves_what_it_declares(adapter: Adapter, turn: Turn) -> None:
    effective = adapter.coverage.downgrade(turn.coverage)
    if effective.messages.is_complete and turn.status is TurnStatus.COMPLETED:
        expect(bool(reply_of(turn)), "messages are complete, but a plain turn says nothing")
    if effective.usage.is_complete:
        counted = turn.usage is not None and turn.usage.total_tokens is not None and not turn.usage.unknown_calls
        expect(counted, "usage is complete, but a plain turn's tokens are unknown")
