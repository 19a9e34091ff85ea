"""`adapter: scripted`: a deterministic agent without a model, for tests, benchmarks and examples.

What it does depends on its options, the input, the turn, the attempt and the case's seed, on nothing else.
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass
from typing import cast

from evalfleet.errors import Acceptance, FailureKind, SendFailure
from evalfleet.model.canonical import digest
from evalfleet.model.coverage import COMPLETE_COVERAGE, Coverage
from evalfleet.model.events import Event, Message, OperationFinished, OperationStarted, OperationStatus, Role, Thinking
from evalfleet.model.turn import Turn, TurnInput
from evalfleet.model.usage import Usage
from evalfleet.ports import Adapter, AdapterContext, AgentIdentity, ArmSettings, Session
from evalfleet_adapters.limits import within_deadline
from evalfleet_adapters.script import (
    DirectiveError,
    ScriptedAct,
    ScriptedOptions,
    ScriptedRule,
    ScriptedTool,
    ScriptedUsage,
    directed,
)
from evalfleet_adapters.spread import between, fraction

VERSION = "1"


@dataclass(frozen=True, slots=True)
class _Rule:
    rule: ScriptedRule
    pattern: re.Pattern[str] | None

    def fits(self, turn: TurnInput, index: int, ctx: AdapterContext) -> bool:
        rule = self.rule
        return (
            (rule.includes is None or rule.includes in turn.text)
            and (self.pattern is None or self.pattern.search(turn.text) is not None)
            and (rule.turn is None or rule.turn == index)
            and (rule.attempt is None or rule.attempt == ctx.attempt)
            and (rule.repetition is None or rule.repetition == ctx.repetition)
            and (rule.share is None or fraction("share", ctx.seed) < rule.share)
        )


class ScriptedAdapter:
    """An agent that does what its options say. `sandboxed` is false; all channels are complete by default."""

    def __init__(self, options: ScriptedOptions) -> None:
        self._coverage = COMPLETE_COVERAGE.downgrade(options.coverage)
        self.options = options
        self.usage = _usage(options.usage)
        self.replies = tuple(Turn(reply=reply, usage=self.usage) for reply in options.replies)
        self.rules = tuple(_Rule(rule, re.compile(rule.pattern) if rule.pattern else None) for rule in options.rules)
        self.plain = not (options.rules or options.directives or options.latency[1])

    @property
    def coverage(self) -> Coverage:
        return self._coverage

    @property
    def sandboxed(self) -> bool:
        return False

    async def open(self, ctx: AdapterContext) -> Session:
        return _ScriptedSession(self)

    async def close(self) -> None: ...


class _ScriptedSession:
    __slots__ = ("_adapter", "_index")

    def __init__(self, adapter: ScriptedAdapter) -> None:
        self._adapter = adapter
        self._index = 0

    async def send(self, turn: TurnInput, ctx: AdapterContext) -> Turn:
        if turn.files:
            message = "the turn has files, which the scripted agent does not read: send text, or use another adapter"
            raise SendFailure(message, code="INPUT_UNSUPPORTED", acceptance=Acceptance.REJECTED)
        index = self._index
        self._index += 1
        if self._adapter.plain:
            return self._answer(turn, index)
        act = self._act(turn, index, ctx)
        low, high = self._adapter.options.latency if act is None or act.latency is None else act.latency
        if high > 0:
            async with within_deadline(ctx):
                await ctx.clock.sleep(between(low, high, "latency", ctx.seed, index))
        if act is None:
            return self._answer(turn, index)
        await _misbehave(act, ctx)
        return self._perform(act, turn, index)

    async def close(self) -> None: ...

    def _act(self, turn: TurnInput, index: int, ctx: AdapterContext) -> ScriptedAct | None:
        if self._adapter.options.directives and "[[" in turn.text:
            try:
                act = directed(turn.text)
            except DirectiveError as error:
                raise SendFailure(str(error), kind=FailureKind.AUTHORING, code="DIRECTIVE_INVALID") from error
            if act is not None:
                return act
        return next((rule.rule for rule in self._adapter.rules if rule.fits(turn, index, ctx)), None)

    def _answer(self, turn: TurnInput, index: int) -> Turn:
        replies = self._adapter.replies
        return replies[index % len(replies)] if replies else Turn(reply=turn.text, usage=self._adapter.usage)

    def _perform(self, act: ScriptedAct, turn: TurnInput, index: int) -> Turn:
        reply = turn.text if act.echo else act.reply
        if reply is None and not (act.events or act.tools or act.thinking):
            reply = self._answer(turn, index).reply
        events: list[Event] = [] if act.thinking is None else [Thinking(act.thinking)]
        events += _operations(act.tools, index)
        events += act.events
        if reply is not None:
            events.append(Message(Role.ASSISTANT, reply))
        return Turn(
            status=act.status,
            reply=reply,
            events=tuple(events),
            data=act.data,
            usage=self._adapter.usage if act.usage is None else _usage(act.usage),
            coverage=act.coverage,
        )


class ScriptedFactory:
    """Builds the `scripted` adapter."""

    name = "scripted"
    options = ScriptedOptions

    def identify(self, arm: ArmSettings) -> AgentIdentity:
        """The options are the agent."""
        return AgentIdentity(version=VERSION, digest=digest(arm.options.model_dump(mode="json")))

    def build(self, arm: ArmSettings) -> Adapter:
        return ScriptedAdapter(cast("ScriptedOptions", arm.options))


factory = ScriptedFactory()


async def _misbehave(act: ScriptedAct, ctx: AdapterContext) -> None:
    if act.exit is not None:
        os._exit(act.exit)
    if act.spin is not None:
        end = ctx.clock.monotonic() + act.spin
        while ctx.clock.monotonic() < end:
            pass  # blocking the loop is the point
    if act.hang:
        async with within_deadline(ctx):
            await asyncio.Event().wait()
    if act.fail is not None:
        fail = act.fail
        raise SendFailure(
            fail.message, kind=fail.kind, code=fail.code, acceptance=fail.acceptance, retry_after=fail.retry_after
        )


def _operations(tools: tuple[ScriptedTool, ...], index: int) -> list[Event]:
    """All calls start before the first one finishes: they overlap."""
    started = [OperationStarted(f"{index}.{number}", tool.name, tool.input) for number, tool in enumerate(tools)]
    finished = [
        OperationFinished(begin.operation_id, tool.status, tool.output)
        for begin, tool in zip(started, tools, strict=True)
        if tool.status is not OperationStatus.PENDING
    ]
    return [*started, *finished]


def _usage(usage: ScriptedUsage) -> Usage:
    return Usage(**usage.model_dump())
