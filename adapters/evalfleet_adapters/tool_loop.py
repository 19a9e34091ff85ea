"""A conversation with a model that calls tools, whatever API it is spoken to by.

Statuses: a normal stop is completed; a token limit truncated; a content filter, or more rounds of tool calls than
allowed, failed; a call that somebody has to allow, as the arm (`approve`), its tool or the provider says, waiting. The
next send answers such calls: it runs those that were allowed, tells the model which were not, and goes on with the same
rounds; without answers it denies them.
Calls of tools that the arm does not run (`params.tools`) end the turn and stay pending. Reasoning
is recorded apart from the reply. An answer that is well-formed and wholly empty (no text, call, reasoning or
reasoning tokens) is a gateway's way to hide an outage: a provider failure `EMPTY_RESPONSE`, to be retried by the
run's policy, unless `empty_reply: accept`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from evalfleet.errors import Acceptance, SendFailure
from evalfleet.model.coverage import Channel, CoverageEntry, partial, unavailable, worse
from evalfleet.model.events import (
    MISSING,
    ErrorReported,
    Event,
    InputOption,
    InputRequested,
    OperationFinished,
    OperationStarted,
    OperationStatus,
)
from evalfleet.model.turn import InputResponse, Turn, TurnInput, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.ports import AdapterContext
from evalfleet_adapters.converters.model_reply import Finish, ModelReply, ToolCall, kept
from evalfleet_adapters.converters.untrusted import recordable
from evalfleet_adapters.limits import within_deadline
from evalfleet_adapters.model_client import ModelClient
from evalfleet_adapters.tool_calls import ToolBox
from evalfleet_adapters.wire import Wire

APPROVE, DENY = "approve", "deny"
_OPTIONS = (InputOption(APPROVE, "Run it"), InputOption(DENY, "Don't run it"))
_CUT = (Finish.LENGTH, Finish.FILTERED)


class ToolLoop:
    """One session: a conversation, and the calls in it that wait for a person."""

    def __init__(self, client: ModelClient, box: ToolBox, *, rounds: int, guarded: frozenset[str]) -> None:
        self._client = client
        self._box = box
        self._rounds = rounds
        self._guarded = guarded
        self._parked: tuple[ToolCall, ...] = ()
        self._messages = client.wire.opening()

    async def send(self, turn: TurnInput, ctx: AdapterContext) -> Turn:
        """One turn with all its tool rounds. A failed send leaves the conversation as it was before."""
        begun = {call.id for call in self._parked}
        draft = _Draft(self._client.wire, list(self._messages), self._box.joined(ctx.tools), self._parked, begun)
        try:
            async with within_deadline(ctx):
                result = await self._go_on(draft, turn, ctx)
        except SendFailure as failure:
            draft.explain(failure)
            raise
        self._messages, self._parked = draft.messages, draft.parked
        return result

    async def close(self) -> None: ...

    async def _go_on(self, draft: _Draft, turn: TurnInput, ctx: AdapterContext) -> Turn:
        """Answer the calls that wait, then converse; a send with answers to them says nothing else to the model."""
        answering = bool(draft.parked and turn.responses)
        if draft.parked:
            allowed = draft.answer({response.request_id: response for response in turn.responses})
            await self._run_tools(draft, allowed)
            if draft.parked:
                return draft.wait()
        if not answering:
            draft.messages.append(draft.wire.said(turn))
        return await self._converse(draft, turn.output_schema, ctx)

    async def _converse(self, draft: _Draft, schema: Mapping[str, Any] | None, ctx: AdapterContext) -> Turn:
        for _ in range(self._rounds + 1):
            draft.asking = True
            reply = await self._client.ask(draft.messages, schema, ctx)
            draft.take(reply)
            if reply.finish is Finish.PAUSED and not reply.calls:
                continue
            if draft.is_last(reply):
                return draft.finish(reply, schema)
            if draft.rounds > self._rounds:
                break
            draft.parked = tuple(call for call in reply.calls if self._waits(call, draft.box))
            await self._run_tools(draft, tuple(call for call in reply.calls if call not in draft.parked))
            if draft.parked:
                return draft.wait()
        draft.events.append(ErrorReported(f"stopped: the model wanted more than {self._rounds} rounds of tool calls"))
        return draft.turn(TurnStatus.FAILED)

    def _waits(self, call: ToolCall, box: ToolBox) -> bool:
        """Whether somebody has to allow it; one of ours that can't run anyway fails at once."""
        return call.remote or ((call.name in self._guarded or box.asks(call.name)) and call.arguments is not None)

    async def _run_tools(self, draft: _Draft, calls: tuple[ToolCall, ...]) -> None:
        """Run the calls of one answer at the same time; events keep the order in which they really ended."""

        async def run(call: ToolCall) -> None:
            if call.remote:  # the provider runs it, and tells how it ended, once it is told that it may
                answers[call.id] = draft.wire.answered(call, "", OperationStatus.COMPLETED)
                return
            finished, text = await draft.box.run(call)
            answers[call.id] = draft.wire.answered(call, text, finished.status)
            draft.events.append(finished)

        answers: dict[str, dict[str, Any]] = {}
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(run(call))
        draft.messages += [answers[call.id] for call in calls]


@dataclass(slots=True)
class _Draft:
    """A turn in the making. `begun` are the calls of earlier turns that may end in this one."""

    wire: Wire
    messages: list[dict[str, Any]]
    box: ToolBox
    parked: tuple[ToolCall, ...]
    begun: set[str]
    events: list[Event] = field(default_factory=list[Event])
    usage: Usage | None = None
    rounds: int = 0
    asking: bool = False
    coverage: dict[Channel, CoverageEntry] = field(default_factory=dict[Channel, CoverageEntry])

    def take(self, reply: ModelReply) -> None:
        self.asking = False
        self.rounds += 1
        self.messages += reply.sent_back
        self._add(reply.all_events)
        self._consume(reply.usage or Usage(requests=1, unknown_calls=1))
        for channel, entry in reply.coverage.items():
            known = self.coverage.get(channel)
            self.coverage[channel] = entry if known is None else worse(known, entry)

    def is_last(self, reply: ModelReply) -> bool:
        """Whether no call of the reply is for us to run or to ask about."""
        ours = any(call.remote or self.box for call in reply.calls)
        return not ours or reply.finish in _CUT

    def answer(self, answers: Mapping[str, InputResponse]) -> tuple[ToolCall, ...]:
        """The parked calls that are allowed. Denies the others; with some answers, those without one stay parked."""
        allowed: list[ToolCall] = []
        still: list[ToolCall] = []
        for call in self.parked:
            answer = answers.get(call.id)
            if answer is not None and answer.option_id == APPROVE:
                allowed.append(call)
            elif answer is None and answers:
                still.append(call)
            else:
                said = f"The call was denied: {answer.text}" if answer and answer.text else "The call was denied."
                self.events.append(OperationFinished(call.id, OperationStatus.REJECTED, said))
                self.messages.append(self.wire.answered(call, said, OperationStatus.REJECTED))
        self.parked = tuple(still)
        return tuple(allowed)

    def wait(self) -> Turn:
        """The turn as the calls leave it that somebody has to allow: a question for each."""
        self.events += [
            InputRequested(
                call.id,
                f"May {call.name} run?",
                call.name,
                MISSING if call.arguments is None else call.arguments,
                _OPTIONS,
            )
            for call in self.parked
        ]
        return self.turn(TurnStatus.WAITING)

    def finish(self, reply: ModelReply, schema: Mapping[str, Any] | None) -> Turn:
        """The turn as its last reply ended it; calls that nobody runs are answered so in the conversation."""
        said = "The call was not executed."
        self.messages += [self.wire.answered(call, said, OperationStatus.REJECTED) for call in reply.calls]
        if reply.finish is Finish.LENGTH:
            return self.turn(TurnStatus.TRUNCATED)
        if reply.finish is Finish.FILTERED:
            self.events.append(ErrorReported(reply.stopped or "the provider's content filter stopped the reply"))
            return self.turn(TurnStatus.FAILED)
        turn = self.turn(TurnStatus.COMPLETED)
        return turn if schema is None else replace(turn, data=_structured(reply.text))

    def turn(self, status: TurnStatus) -> Turn:
        coverage = dict(self.coverage)
        unknown, calls = (self.usage.unknown_calls, self.usage.requests) if self.usage else (0, 0)
        if unknown and unknown == calls:
            coverage[Channel.USAGE] = unavailable("the provider reported no usage")
        elif unknown:
            coverage[Channel.USAGE] = partial(f"{unknown} of {calls} model calls reported no usage")
        return Turn(status=status, events=tuple(self.events), usage=self.usage, coverage=coverage)

    def explain(self, failure: SendFailure) -> None:
        """Add to a failure what the turn had brought: events and usage, with the failed call's own."""
        if failure.partial is not None:
            self._add(failure.partial.events)
        if failure.partial is not None and failure.partial.usage is not None:
            self._consume(failure.partial.usage)
        elif self.asking and failure.acceptance is not Acceptance.REJECTED:
            self._consume(Usage(requests=1, unknown_calls=1))
        if self.rounds:
            failure.acceptance = Acceptance.STARTED
        if self.events or self.usage:
            failure.partial = self.turn(TurnStatus.FAILED)

    def _add(self, events: Iterable[Event]) -> None:
        """Add events of a reply; the end of a call that never began is one that nobody can place."""
        ended = {event.operation_id for event in self.events if isinstance(event, OperationFinished)}
        running = self.begun - ended
        for event in self.events:
            if isinstance(event, OperationStarted) and event.operation_id not in ended:
                running.add(event.operation_id)
        for event in events:
            if isinstance(event, OperationStarted):
                running.add(event.operation_id)
            elif isinstance(event, OperationFinished):
                if event.operation_id not in running:
                    stray = {"id": event.operation_id, "output": None if event.output is MISSING else event.output}
                    self.events.append(kept("operation without a start", stray))
                    continue
                running.discard(event.operation_id)
            self.events.append(event)

    def _consume(self, usage: Usage) -> None:
        self.usage = usage if self.usage is None else self.usage + usage


def _structured(text: str | None) -> Any:
    """The reply as JSON; MISSING when it is none: the model's failure, so the channel stays complete."""
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return MISSING
    return value if recordable(value) else MISSING
