"""`adapter: openai`: a chat model of any OpenAI-compatible provider, with a loop over the arm's own tools.

Statuses: a normal stop is completed; a token limit truncated; a content filter, or more rounds of tool calls than
allowed, failed; a call that somebody has to allow, as the arm (`approve`) or its tool says, waiting. The next send
answers such calls: it runs those that were allowed, tells the model which were not, and goes on with the same rounds;
without answers it denies them.
Calls of tools that the arm does not run (`params.tools`) end the turn and stay pending. Reasoning
is recorded apart from the reply. An answer that is well-formed and wholly empty (no text, call, reasoning or
reasoning tokens) is a gateway's way to hide an outage: a provider failure `EMPTY_RESPONSE`, to be retried by the
run's policy, unless `empty_reply: accept`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from evalfleet.errors import Acceptance, ConfigurationError, SendFailure
from evalfleet.model.canonical import digest
from evalfleet.model.coverage import Channel, Coverage, CoverageEntry, partial, unavailable, worse
from evalfleet.model.events import (
    MISSING,
    ErrorReported,
    Event,
    InputOption,
    InputRequested,
    OperationFinished,
    OperationStatus,
)
from evalfleet.model.tool import Tool
from evalfleet.model.turn import InputResponse, Turn, TurnInput, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.ports import Adapter, AdapterContext, AgentIdentity, ArmSettings, Session
from evalfleet_adapters.chat_model import ChatModel, user_message
from evalfleet_adapters.converters.openai_chat import Finish, ModelReply, ToolCall
from evalfleet_adapters.converters.untrusted import recordable
from evalfleet_adapters.entries import entry_file, load_entry
from evalfleet_adapters.limits import AgentThreads, within_deadline
from evalfleet_adapters.openai_options import OPENAI_URL, OpenAIOptions, declared_coverage
from evalfleet_adapters.tool_calls import ToolBox

VERSION = "1"

APPROVE, DENY = "approve", "deny"
_OPTIONS = (InputOption(APPROVE, "Run it"), InputOption(DENY, "Don't run it"))


class OpenAIAdapter:
    """Speaks chat completions. Sessions share the connection pool and nothing else."""

    def __init__(self, model: str, options: OpenAIOptions, tools: tuple[Tool, ...] = ()) -> None:
        self._coverage = declared_coverage(options)
        self._options = options
        self._box = ToolBox(tools, AgentThreads(options.tool_threads))
        self._model = ChatModel(model, options, tools)
        self._guarded = frozenset(options.approve)

    @property
    def coverage(self) -> Coverage:
        return self._coverage

    @property
    def sandboxed(self) -> bool:
        return False

    async def open(self, ctx: AdapterContext) -> Session:
        return _ChatSession(self._model, self._box, self._options, self._guarded)

    async def close(self) -> None:
        self._box.close()
        await self._model.close()


class _ChatSession:
    def __init__(self, model: ChatModel, box: ToolBox, options: OpenAIOptions, guarded: frozenset[str]) -> None:
        self._model = model
        self._box = box
        self._rounds = options.max_tool_rounds
        self._guarded = guarded
        self._parked: tuple[ToolCall, ...] = ()
        self._messages: list[dict[str, Any]] = []
        if options.system is not None:
            self._messages.append({"role": "system", "content": options.system})

    async def send(self, turn: TurnInput, ctx: AdapterContext) -> Turn:
        """One turn with all its tool rounds. A failed send leaves the conversation as it was before."""
        draft = _Draft(list(self._messages), self._box.joined(ctx.tools), parked=self._parked)
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
            draft.messages.append(user_message(turn))
        return await self._converse(draft, turn.output_schema, ctx)

    async def _converse(self, draft: _Draft, schema: Mapping[str, Any] | None, ctx: AdapterContext) -> Turn:
        for _ in range(self._rounds + 1):
            draft.asking = True
            reply = await self._model.ask(draft.messages, schema, ctx)
            draft.take(reply)
            if not reply.calls or not draft.box or reply.finish in (Finish.LENGTH, Finish.FILTERED):
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
        """Whether somebody has to allow it; one that can't run anyway fails at once."""
        return (call.name in self._guarded or box.asks(call.name)) and call.arguments is not None

    async def _run_tools(self, draft: _Draft, calls: tuple[ToolCall, ...]) -> None:
        """Run the calls of one answer at the same time; events keep the order in which they really ended."""

        async def run(call: ToolCall) -> None:
            finished, answers[call.id] = await draft.box.run(call)
            draft.events.append(finished)

        answers: dict[str, str] = {}
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(run(call))
        draft.messages += [_tool_message(call, answers[call.id]) for call in calls]


@dataclass(slots=True)
class _Draft:
    """A turn in the making."""

    messages: list[dict[str, Any]]
    box: ToolBox
    parked: tuple[ToolCall, ...] = ()
    events: list[Event] = field(default_factory=list[Event])
    usage: Usage | None = None
    rounds: int = 0
    asking: bool = False
    coverage: dict[Channel, CoverageEntry] = field(default_factory=dict[Channel, CoverageEntry])

    def take(self, reply: ModelReply) -> None:
        self.asking = False
        self.rounds += 1
        self.messages.append(reply.message)
        self.events += reply.events
        self.events += [call.started() for call in reply.calls]
        self._consume(reply.usage or Usage(requests=1, unknown_calls=1))
        for channel, entry in reply.coverage.items():
            known = self.coverage.get(channel)
            self.coverage[channel] = entry if known is None else worse(known, entry)

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
                self.messages.append(_tool_message(call, said))
        self.parked = tuple(still)
        return tuple(allowed)

    def wait(self) -> Turn:
        """The turn as the calls leave it that somebody has to allow: a question for each."""
        self.events += [
            InputRequested(call.id, f"May {call.name} run?", call.name, call.arguments, _OPTIONS)
            for call in self.parked
        ]
        return self.turn(TurnStatus.WAITING)

    def finish(self, reply: ModelReply, schema: Mapping[str, Any] | None) -> Turn:
        """The turn as its last reply ended it; calls that nobody runs are answered so in the conversation."""
        self.messages += [_tool_message(call, "The call was not executed.") for call in reply.calls]
        if reply.finish is Finish.LENGTH:
            return self.turn(TurnStatus.TRUNCATED)
        if reply.finish is Finish.FILTERED:
            self.events.append(ErrorReported("the provider's content filter stopped the reply"))
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
            self.events += failure.partial.events
        if failure.partial is not None and failure.partial.usage is not None:
            self._consume(failure.partial.usage)
        elif self.asking and failure.acceptance is not Acceptance.REJECTED:
            self._consume(Usage(requests=1, unknown_calls=1))
        if self.rounds:
            failure.acceptance = Acceptance.STARTED
        if self.events or self.usage:
            failure.partial = self.turn(TurnStatus.FAILED)

    def _consume(self, usage: Usage) -> None:
        self.usage = usage if self.usage is None else self.usage + usage


class OpenAIFactory:
    """Builds the `openai` adapter."""

    name = "openai"
    options = OpenAIOptions

    def identify(self, arm: ArmSettings) -> AgentIdentity:
        """A digest and the tools' files.

        Although it runs elsewhere, this agent has no code of its own there: it *is* a model under a name, with
        the prompt, parameters and tools that stand in the arm. What can't be seen is the provider changing the
        model behind its name; an arm that minds pins a dated model name.
        """
        options = cast("OpenAIOptions", arm.options)
        files = (entry_file(entry, f"arms.{arm.name}.tools") for entry in options.tools)
        sources = tuple(sorted({file for file in files if file is not None}))
        return AgentIdentity(
            version=VERSION, sources=sources, digest=digest({"model": arm.model, **options.agent_fields()})
        )

    def build(self, arm: ArmSettings) -> Adapter:
        options = cast("OpenAIOptions", arm.options)
        if not arm.model:
            raise ConfigurationError(f"arms.{arm.name}.model: name the model")
        if options.base_url == OPENAI_URL and options.api_key_env is None:
            raise ConfigurationError(
                f"arms.{arm.name}.api_key_env: {OPENAI_URL} needs a key; name the secret that holds it"
            )
        tools = tuple(_load_tool(entry, f"arms.{arm.name}.tools") for entry in options.tools)
        names = [tool.name for tool in tools]
        unknown = next((name for name in options.approve if name not in names), None)
        if unknown is not None:
            known = ", ".join(names) or "none"
            raise ConfigurationError(f"arms.{arm.name}.approve: no tool is named {unknown!r}; there are: {known}")
        return OpenAIAdapter(arm.model, options, tools)


factory = OpenAIFactory()


def _load_tool(entry: str, where: str) -> Tool:
    found = load_entry(entry, where)
    if not isinstance(found, Tool):
        raise ConfigurationError(f"{where}: {entry} is a {type(found).__name__}, no tool; put @tool on the function")
    return found


def _tool_message(call: ToolCall, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": text}


def _structured(text: str | None) -> Any:
    """The reply as JSON; MISSING when it is none: the model's failure, so the channel stays complete."""
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return MISSING
    return value if recordable(value) else MISSING
