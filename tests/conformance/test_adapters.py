"""Every shipped adapter passes the public suite, against real local servers; and the suite refuses what is wrong."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
import threading
from base64 import b64decode
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest

from evalfleet.errors import Acceptance, FailureKind, SendFailure
from evalfleet.model.agent import agent
from evalfleet.model.coverage import COMPLETE_COVERAGE, Channel, complete, partial, unavailable
from evalfleet.model.definition import SandboxSpec
from evalfleet.model.events import (
    Event,
    InputOption,
    InputRequested,
    Message,
    OperationFinished,
    OperationKind,
    OperationStarted,
    OperationStatus,
    Role,
)
from evalfleet.model.tool import ToolRejected, tool
from evalfleet.model.turn import Turn, TurnInput, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.plugins import adapter_factories
from evalfleet.ports import Adapter, AdapterContext, ArmSettings
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import Sandbox, SandboxPlace
from evalfleet.testing.adapter_context import FakeContext
from evalfleet.testing.adapter_probes import Absent, Probes
from evalfleet.testing.adapter_suite import adapter_suite, operation_problems
from evalfleet.testing.http_endpoint import HttpEndpoint, Reply, Request, json_reply
from evalfleet.testing.model_endpoint import ModelEndpoint, Scripted, echo
from evalfleet.testing.model_turn import ModelTurn, ScriptedCall, last_said
from evalfleet_adapters.acp.adapter import AcpOptions
from evalfleet_adapters.acp.adapter import factory as acp
from evalfleet_adapters.anthropic import AnthropicAdapter
from evalfleet_adapters.anthropic_options import AnthropicOptions
from evalfleet_adapters.cli.adapter import CliOptions
from evalfleet_adapters.cli.adapter import factory as cli
from evalfleet_adapters.http import HttpAdapter, HttpOptions
from evalfleet_adapters.openai import OpenAIAdapter
from evalfleet_adapters.openai_options import OpenAIOptions
from evalfleet_adapters.python import PythonAdapter
from evalfleet_adapters.scripted import ScriptedAdapter, ScriptedOptions
from evalfleet_sandboxes.local import factory as local

OUTCOMES = {"ok": OperationStatus.COMPLETED, "fail": OperationStatus.FAILED, "reject": OperationStatus.REJECTED}
CAREFUL = OperationStarted("c", "careful", {})
ASKS = InputRequested("q", "May I?", options=(InputOption("approve"), InputOption("deny")))
USAGE = Usage(input_tokens=1, output_tokens=1, requests=1)

#: What every agent below understands.
PROBES = Probes(
    tool_succeeds="use ok",
    tool_fails="use fail",
    tool_rejected="use reject",
    two_tools="use ok fail",
    echo=lambda text: text,
    endless="forever",
    fails="break",
    remember=lambda word: f"remember {word}",
    recall="recall",
    reads="read",
    tool_asks="use careful",
)


# --- python ---------------------------------------------------------------------------------------------------


class Conversation:
    """An agent with tools and a memory, asynchronous."""

    def __init__(self, ctx: AdapterContext) -> None:
        self.ctx = ctx
        self.heard: list[str] = []

    async def send(self, turn: TurnInput) -> Turn:
        self.heard.append(turn.text)
        if turn.text == "forever":
            await asyncio.Event().wait()
        if turn.text == "break":
            raise ZeroDivisionError("broken on order")
        if turn.text == "use careful":
            return Turn(status=TurnStatus.WAITING, events=(CAREFUL, ASKS), usage=USAGE)
        events: list[Event] = []
        for answer in turn.responses:
            allowed = answer.option_id == "approve"
            events.append(OperationFinished("c", OUTCOMES["ok" if allowed else "reject"]))
        if turn.text.startswith("use "):
            names = turn.text.split()[1:]
            events += [OperationStarted(name, name, {}) for name in names]
            events += [OperationFinished(name, OUTCOMES[name]) for name in names]
        reply = " ".join(self.heard) if turn.text == "recall" else turn.text
        reply = "".join([reply, *(file.data.decode() for file in turn.files)])
        return Turn(reply=reply, events=(*events, Message(Role.ASSISTANT, reply)), usage=USAGE)


class BlockingConversation:
    """The same, synchronous: it runs in threads."""

    def __init__(self, ctx: AdapterContext) -> None:
        self._inner = Conversation(ctx)

    def send(self, turn: TurnInput) -> Turn:
        if turn.text == "forever":
            threading.Event().wait(5)
        return asyncio.run(self._inner.send(turn))


def python_adapter(target: Callable[..., Any]) -> PythonAdapter:
    return PythonAdapter(agent(coverage=COMPLETE_COVERAGE)(target))


TestPython = adapter_suite(lambda: python_adapter(Conversation), probes=replace(PROBES, fails_kind=FailureKind.AGENT))
TestBlockingPython = adapter_suite(
    lambda: python_adapter(BlockingConversation), probes=replace(PROBES, fails_kind=FailureKind.AGENT)
)


# --- scripted -------------------------------------------------------------------------------------------------


def scripted_adapter() -> ScriptedAdapter:
    def call(name: str) -> dict[str, Any]:
        return {"name": name, "status": OUTCOMES[name].value}

    rules = [
        {"pattern": "^use ok fail$", "tools": [call("ok"), call("fail")], "reply": "used"},
        *({"pattern": f"^use {name}$", "tools": [call(name)], "reply": "used"} for name in OUTCOMES),
        {"pattern": "^forever$", "hang": True},
        {"pattern": "^break$", "fail": {"kind": "provider"}},
    ]
    return ScriptedAdapter(ScriptedOptions.model_validate({"rules": rules}))


TestScripted = adapter_suite(
    scripted_adapter,
    probes=replace(
        PROBES,
        remember=Absent("it has no memory"),
        recall=Absent("it has no memory"),
        tool_asks=Absent("it reads no answers"),
    ),
)


# --- http -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def http_adapter() -> AsyncGenerator[Adapter, None]:
    threads: dict[str, list[str]] = {}

    def answer(request: Request) -> Reply:
        text, thread = request.json["text"], request.json.get("session") or f"t{len(threads)}"
        heard = threads.setdefault(thread, [])
        heard.append(text)
        if text in ("forever", "break"):
            return Reply(silent=text == "forever", status=500)
        if text == "use careful":
            call = {"id": "c", "tool": "careful", "state": "pending"}
            choices = ["approve", "deny"]
            asked = {"answer": "May I?", "thread": thread, "calls": [call], "asks": [{"id": "q", "choices": choices}]}
            return json_reply({**asked, "state": "waiting", "usage": {"in": 1, "out": 1}})
        answers = request.json.get("answers") or []
        ended = {"approve": "completed", "deny": "rejected"}
        calls = [{"id": "c", "tool": "careful", "state": ended[answer["option_id"]]} for answer in answers]
        calls += [
            {"id": name, "tool": name, "state": OUTCOMES[name].value, "result": 1}
            for name in (text.split()[1:] if text.startswith("use ") else ())
        ]
        reply = " ".join(heard) if text == "recall" else text
        usage = {"in": len(text), "out": len(reply)}
        said = {"answer": reply, "thread": thread, "calls": calls, "asks": [], "state": "completed", "usage": usage}
        return json_reply(said)

    response = {
        "reply": "answer",
        "session": "thread",
        "status": "state",
        "usage": {"input_tokens": "usage.in", "output_tokens": "usage.out"},
        "tools": {"items": "calls", "id": "id", "name": "tool", "status": "state", "output": "result"},
        "requests": {"items": "asks", "id": "id", "options": "choices"},
    }
    template = {"text": "${text}", "session": "${session}", "answers": "${responses}"}
    async with HttpEndpoint(answer) as endpoint:
        adapter = HttpAdapter(
            HttpOptions.model_validate({"url": endpoint.url, "request": template, "response": response})
        )
        yield adapter
        await adapter.close()


TestHttp = adapter_suite(http_adapter, probes=PROBES)


# --- http, streamed -------------------------------------------------------------------------------------------


def streamed(*events: Any) -> Reply:
    body = tuple(f"data: {json.dumps(event)}\n\n".encode() for event in events)
    return Reply(headers={"content-type": "text/event-stream"}, body=(*body, b"data: [DONE]\n\n"))


def stream_agent(response: dict[str, Any], answer: Callable[[Request], Reply], request: dict[str, Any]) -> Any:
    @asynccontextmanager
    async def make() -> AsyncGenerator[Adapter, None]:
        async with HttpEndpoint(answer) as endpoint:
            options = {"url": endpoint.url, "request": request, "response": response}
            adapter = HttpAdapter(HttpOptions.model_validate(options))
            yield adapter
            await adapter.close()

    return make


def answer_in_events(request: Request) -> Reply:
    text, heard = request.json["text"], request.json.get("session", "")
    if text in ("forever", "break"):
        return Reply(silent=text == "forever", status=500)
    events: list[Any] = [{"thread": f"{heard} {text}"}]
    if text == "use careful":
        call = {"call": {"id": "c", "tool": "careful", "state": "pending"}}
        ask = {"ask": {"id": "q", "choices": ["approve", "deny"]}}
        return streamed(*events, {"piece": "May I?"}, call, ask, {"state": "waiting"})
    ended = {"approve": "completed", "deny": "rejected"}
    answers = request.json.get("answers") or []
    events += [{"call": {"id": "c", "tool": "careful", "state": ended[given["option_id"]]}} for given in answers]
    names = text.split()[1:] if text.startswith("use ") else []
    events += [{"call": {"id": name, "tool": name, "state": "pending"}} for name in names]
    events += [{"call": {"id": name, "state": OUTCOMES[name].value, "result": 1}} for name in names]
    reply = heard if text == "recall" else text
    events += [{"piece": reply[start : start + 50_000]} for start in range(0, len(reply), 50_000)]
    return streamed(*events, {"state": "completed", "usage": {"in": 1, "out": 1}})


TestHttpEvents = adapter_suite(
    stream_agent(
        {
            "stream": "sse",
            "events": {"delta": "piece"},
            "session": "thread",
            "status": "state",
            "usage": {"input_tokens": "usage.in", "output_tokens": "usage.out"},
            "tools": {"items": "call", "id": "id", "name": "tool", "status": "state", "output": "result"},
            "requests": {"items": "ask", "id": "id", "options": "choices"},
        },
        answer_in_events,
        {"text": "${text}", "session": "${session}", "answers": "${responses}"},
    ),
    probes=PROBES,
)


def answer_as_ui_message(request: Request) -> Reply:
    messages = request.json["messages"]
    parts = messages[-1]["parts"]
    text = "".join(part.get("text", "") for part in parts)
    if text in ("forever", "break"):
        return Reply(silent=text == "forever", status=500)
    start: list[Any] = [{"type": "start", "messageId": "m"}, {"type": "start-step"}]
    end: list[Any] = [{"type": "finish-step"}, {"type": "finish", "finishReason": "stop"}]
    responded = [part for part in parts if part.get("state") == "approval-responded"]
    calls: list[Any] = [
        {"type": "tool-output-available", "toolCallId": part["toolCallId"], "output": 1}
        if part["approval"]["approved"]
        else {"type": "tool-output-denied", "toolCallId": part["toolCallId"]}
        for part in responded
    ]
    names = text.split()[1:] if text.startswith("use ") and not responded else []
    calls += [{"type": "tool-input-available", "toolCallId": n, "toolName": n, "input": {}} for n in names]
    if names == ["careful"]:
        ask = {"type": "tool-approval-request", "approvalId": "q", "toolCallId": "careful"}
        return streamed(*start, *calls, ask, *end)
    ends = {
        "ok": {"type": "tool-output-available", "output": 1},
        "fail": {"type": "tool-output-error", "errorText": "broken on order"},
        "reject": {"type": "tool-output-denied"},
    }
    calls += [{**ends[name], "toolCallId": name} for name in names]
    reply = text if messages[-1]["role"] == "user" else "used"
    reply = json.dumps(messages) if text == "recall" else reply
    if messages[-1]["role"] == "user" and len(parts) > 1:
        reply = b64decode(parts[1]["url"].partition(",")[2]).decode()
    piece = {"type": "text-delta", "id": "t", "delta": reply}
    said = [{"type": "text-start", "id": "t"}, piece, {"type": "text-end", "id": "t"}]
    return streamed(*start, *calls, *said, *end)


TestHttpUiMessage = adapter_suite(
    stream_agent({"stream": "ui-message"}, answer_as_ui_message, {"id": "${case}", "messages": "${messages}"}),
    probes=PROBES,
)


# --- models ---------------------------------------------------------------------------------------------------


@tool
def ok() -> str:
    return "fine"


@tool
async def fail() -> str:
    raise ZeroDivisionError("broken on order")


@tool
def careful() -> str:
    return "done with care"


@tool
def reject() -> str:
    raise ToolRejected("not allowed")


def model(request: Request) -> Scripted:
    """A model that does what the probes ask, whatever API asks it."""
    said = request.json.get("messages") or request.json["input"]
    last, text = said[-1], last_said(request.json)
    content: Any = last.get("content")
    if last.get("role") == "tool" or last.get("type") == "function_call_output":
        return "used"
    if isinstance(content, list) and content[0]["type"] == "tool_result":
        return "used"
    if isinstance(content, list) and len(content) > 1:
        return json.dumps(content)
    if text in ("forever", "break"):
        return Reply(silent=text == "forever", status=500)
    if text == "recall":
        return json.dumps(said)
    if text.startswith("use "):
        return ModelTurn(calls=tuple(ScriptedCall(name, {}, name) for name in text.split()[1:]))
    return echo(request)


OFFERED = (ok, fail, reject, careful)


def openai_adapter(**options: Any) -> Any:
    @asynccontextmanager
    async def make() -> AsyncGenerator[Adapter, None]:
        async with ModelEndpoint(otherwise=model) as endpoint:
            given = OpenAIOptions.model_validate({"base_url": endpoint.base_url, "approve": ["careful"], **options})
            adapter = OpenAIAdapter("m", given, OFFERED)
            yield adapter
            await adapter.close()

    return make


def anthropic_adapter(**options: Any) -> Any:
    @asynccontextmanager
    async def make() -> AsyncGenerator[Adapter, None]:
        async with ModelEndpoint(otherwise=model) as endpoint:
            given = AnthropicOptions.model_validate({"base_url": endpoint.url, "approve": ["careful"], **options})
            adapter = AnthropicAdapter("m", given, OFFERED)
            yield adapter
            await adapter.close()

    return make


TestOpenAI = adapter_suite(openai_adapter(), probes=PROBES)
TestOpenAIStream = adapter_suite(openai_adapter(stream=True), probes=PROBES)
TestResponses = adapter_suite(openai_adapter(api="responses"), probes=PROBES)
TestResponsesStream = adapter_suite(openai_adapter(api="responses", stream=True), probes=PROBES)
TestAnthropic = adapter_suite(anthropic_adapter(), probes=PROBES)
TestAnthropicStream = adapter_suite(anthropic_adapter(stream=True), probes=PROBES)


# --- programs in sandboxes ------------------------------------------------------------------------------------

ACP_AGENT = (sys.executable, str(Path(__file__).parents[1] / "unit" / "adapters" / "acp" / "agent.py"))
CODEX = Path(__file__).parent / "codex_program.py"


class Places:
    """The sandboxes of whatever is being checked: all sessions of an adapter share one."""

    def __init__(self, build: Callable[[Path], Adapter]) -> None:
        self._build = build
        self._now: Sandbox

    def context(self) -> FakeContext:
        context = FakeContext()
        context.given_sandbox = self._now
        return context

    @asynccontextmanager
    async def adapter(self) -> AsyncGenerator[Adapter, None]:
        with tempfile.TemporaryDirectory() as folder:
            spawner = SystemSpawner()
            provider = local.build(SandboxPlace(state=Path(folder), spawner=spawner))
            spec = SandboxSpec(backend="local", env={"EVALFLEET_GATEWAY": "http://127.0.0.1:1/token"})
            self._now = await provider.create(spec, owner="run/1")
            try:
                yield self._build(Path(folder))
            finally:
                await provider.close()
                await spawner.close()


def acp_adapter(_: Path) -> Adapter:
    options = AcpOptions(command=ACP_AGENT, permissions="ask")
    return acp.build(ArmSettings(name="a", model="m", flags={}, options=options, project=Path()))


def cli_adapter(folder: Path) -> Adapter:
    program = folder / "codex"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {CODEX} "$@"\n')
    program.chmod(0o755)
    options = CliOptions(agent="codex", base_url="http://127.0.0.1:9/v1", program=str(program))
    return cli.build(ArmSettings(name="a", model="m", flags={}, options=options, project=Path()))


READS_TEXT = replace(PROBES, reads=Absent("it reads no files"), fails_kind=FailureKind.AGENT)
ACP_PLACES, CLI_PLACES = Places(acp_adapter), Places(cli_adapter)
TestAcp = adapter_suite(
    ACP_PLACES.adapter,
    probes=replace(READS_TEXT, tool_rejected=Absent("what it asks waits for an answer here")),
    context=ACP_PLACES.context,
)
TestCli = adapter_suite(
    CLI_PLACES.adapter,
    probes=replace(
        READS_TEXT,
        tool_asks=Absent("it is told to ask nobody"),
        echo=Absent("a prompt goes to it as UTF-8, in which there are no lone surrogates"),
    ),
    context=CLI_PLACES.context,
)


# --- entry points ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["python", "scripted", "http", "openai", "anthropic", "cli", "acp"])
def test_a_shipped_adapter_is_found_by_its_name_and_describes_its_options(name: str) -> None:
    factory = adapter_factories()[name]
    assert factory.name == name
    assert factory.options.model_config.get("extra") == "forbid"
    assert factory.options.model_config.get("frozen") is True
    assert factory.options.model_json_schema()["type"] == "object"


# --- the suite itself -----------------------------------------------------------------------------------------

Spoil = Callable[[Turn], Turn]


def lose(*lost: str) -> Spoil:
    """An adapter that drops the events of these operations."""
    return lambda turn: replace(
        turn, events=tuple(e for e in turn.events if getattr(e, "operation_id", None) not in lost)
    )


def events(change: Callable[[list[Event]], list[Event]]) -> Spoil:
    return lambda turn: replace(turn, events=tuple(change(list(turn.events))))


def spoiled(spoil: Spoil) -> type[Any]:
    class Spoiled(Conversation):
        async def send(self, turn: TurnInput) -> Turn:
            return spoil(await super().send(turn))

    return Spoiled


class Forgetful(Conversation):
    async def send(self, turn: TurnInput) -> Turn:
        self.heard.clear()
        return await super().send(turn)


class Leaky(Conversation):
    heard_by_all: list[str] = []  # noqa: RUF012 - shared on purpose

    def __init__(self, ctx: AdapterContext) -> None:
        super().__init__(ctx)
        self.heard = self.heard_by_all


class Deaf(Conversation):
    async def send(self, turn: TurnInput) -> Turn:
        if turn.text != "forever":
            return await super().send(turn)
        end = asyncio.get_running_loop().time() + 3
        while asyncio.get_running_loop().time() < end:
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                continue
        return Turn(reply="late")


class Quick(Conversation):
    async def send(self, turn: TurnInput) -> Turn:
        return Turn(reply="already", usage=USAGE) if turn.text == "forever" else await super().send(turn)


class Blameless(Conversation):
    async def send(self, turn: TurnInput) -> Turn:
        if turn.text == "break":
            raise SendFailure("", kind=FailureKind.PROVIDER, code="")
        return await super().send(turn)


class Late(Conversation):
    async def send(self, turn: TurnInput) -> Turn:
        raise SendFailure("no files", acceptance=Acceptance.STARTED)


class Silent(Conversation):
    async def send(self, turn: TurnInput) -> Turn:
        return Turn(usage=USAGE)


class Uncounted(Conversation):
    async def send(self, turn: TurnInput) -> Turn:
        return Turn(reply="x")


OPEN_START = OperationStarted("a", "a")
CLOSE = OperationFinished("a")
CLOSED = OperationFinished("c")
COMPLETED = TurnStatus.COMPLETED


@pytest.mark.parametrize(
    ("check", "target", "says"),
    [
        ("a_tool_that_succeeds_is_recorded", spoiled(lose("ok")), "0 tool calls finished"),
        ("a_tool_that_fails_is_recorded", spoiled(lose("fail")), "0 tool calls finished"),
        ("a_rejected_tool_is_recorded", spoiled(lose("reject")), "0 tool calls finished"),
        ("a_rejected_tool_is_recorded",
         spoiled(events(lambda found: [OperationFinished(e.operation_id, OperationStatus.FAILED)
                                       if isinstance(e, OperationFinished) else e for e in found])),
         "recorded as failed, not as rejected"),
        ("two_tools_at_the_same_time_are_both_recorded", spoiled(lose("fail")), "1 calls started and 1 finished"),
        ("a_call_that_is_allowed_runs_and_happened_once", spoiled(lambda turn: replace(turn, status=COMPLETED)),
         "a turn whose call waits for a person is completed"),
        ("a_call_that_is_allowed_runs_and_happened_once",
         spoiled(events(lambda found: [e for e in found if not isinstance(e, InputRequested)])), "not []"),
        ("a_call_that_is_allowed_runs_and_happened_once",
         spoiled(events(lambda found: [e for e in found if not isinstance(e, OperationFinished)])),
         "1 calls started, and ended []"),
        ("a_call_that_is_allowed_runs_and_happened_once",
         spoiled(events(lambda found: [*([CAREFUL] if CLOSED in found else []), *found])), "started again"),
        ("a_call_that_is_denied_is_rejected",
         spoiled(events(lambda found: [replace(e, status=OperationStatus.FAILED)
                                       if isinstance(e, OperationFinished) else e for e in found])),
         "ended ['failed'], not rejected"),
        ("two_tools_at_the_same_time_are_both_recorded",
         spoiled(events(lambda found: [replace(e, operation_id="0") for e in found if not isinstance(e, Message)])),
         "started again before it finished"),
        ("a_plain_turn_is_well_formed", spoiled(events(lambda _: [CLOSE])), "finishes without a start"),
        ("a_plain_turn_is_well_formed", spoiled(events(lambda found: [Message(Role.USER, "Say hello."), *found])),
         "the engine records it itself"),
        ("a_plain_turn_is_well_formed", Silent, "a plain turn says nothing"),
        ("a_plain_turn_is_well_formed", Uncounted, "tokens are unknown"),
        ("sessions_know_nothing_of_each_other", Forgetful, "forgets its own turns"),
        ("sessions_know_nothing_of_each_other", Leaky, "knows another's turns"),
        ("sessions_at_the_same_time_get_their_own_answers", spoiled(lambda turn: replace(turn, reply="x", events=())),
         "answers went to the wrong sessions"),
        ("any_text_goes_there_and_back",
         spoiled(events(lambda found: [Message(Role.ASSISTANT, e.text.replace("\0", ""))
                                       if isinstance(e, Message) else e for e in found])),
         "came back as"),
        ("a_large_reply_comes_whole",
         spoiled(events(lambda found: [replace(e, text=e.text[:65_536]) for e in found if isinstance(e, Message)])),
         "came back with 65536"),
        ("a_cancelled_send_ends_at_once_and_harms_no_other", Deaf, "still runs after"),
        ("a_cancelled_send_ends_at_once_and_harms_no_other", Quick, "ended by itself"),
        ("the_deadline_is_respected", Deaf, "after its deadline"),
        ("the_deadline_is_respected", Quick, "the send succeeded"),
        ("a_file_is_read_or_refused", spoiled(lambda _: Turn(reply="fine", usage=USAGE)), "neither read nor refused"),
        ("a_file_is_read_or_refused", Late, "a refused file is started, not rejected"),
        ("a_failure_names_who_is_to_blame", Conversation, "blamed on agent, not on provider"),
        ("a_failure_names_who_is_to_blame", Blameless, "needs a code and a message"),
    ],
)  # fmt: skip
def test_the_suite_refuses(check: str, target: Any, says: str) -> None:
    suite = adapter_suite(lambda: python_adapter(target), probes=PROBES)()
    with pytest.raises(AssertionError, match=re.escape(says)):
        getattr(suite, f"test_{check}")()


class Upgrading(Conversation):
    async def send(self, turn: TurnInput) -> Turn:
        return replace(await super().send(turn), coverage={Channel.ACTIONS: complete})


def test_the_suite_refuses_an_upgrade_of_coverage() -> None:
    declared = replace(COMPLETE_COVERAGE, actions=partial("some are hidden"))
    suite = adapter_suite(lambda: PythonAdapter(agent(coverage=declared)(Upgrading)))()
    with pytest.raises(AssertionError, match="the turn upgrades actions"):
        suite.test_a_plain_turn_is_well_formed()


@pytest.mark.parametrize("probe", ["tool_succeeds", "tool_fails", "tool_rejected", "two_tools"])
def test_complete_actions_must_be_shown(probe: str) -> None:
    check = {
        "tool_succeeds": "test_a_tool_that_succeeds_is_recorded",
        "tool_fails": "test_a_tool_that_fails_is_recorded",
        "tool_rejected": "test_a_rejected_tool_is_recorded",
        "two_tools": "test_two_tools_at_the_same_time_are_both_recorded",
    }[probe]
    unshown = replace(PROBES, **{probe: None})
    with pytest.raises(AssertionError, match=f"actions complete: give the probe {probe}"):
        getattr(adapter_suite(lambda: python_adapter(Conversation), probes=unshown)(), check)()
    excused = replace(PROBES, **{probe: Absent("nobody can refuse")})
    with pytest.raises(SkipTest, match="nobody can refuse"):
        getattr(adapter_suite(lambda: python_adapter(Conversation), probes=excused)(), check)()
    for entry in (partial("some"), unavailable("none")):
        incomplete = PythonAdapter(agent(coverage=replace(COMPLETE_COVERAGE, actions=entry))(Conversation))
        with pytest.raises(SkipTest):
            getattr(adapter_suite(lambda made=incomplete: made, probes=unshown)(), check)()


@pytest.mark.parametrize(
    ("found", "problems"),
    [
        ([OPEN_START, CLOSE, OPEN_START, CLOSE], []),
        ([OPEN_START], []),
        ([CLOSE, OPEN_START], ["operation 'a' finishes without a start"]),
        ([OPEN_START, OPEN_START], ["operation 'a' is started again before it finished"]),
        ([OPEN_START, OperationFinished("a", kind=OperationKind.SUBAGENT)],
         ["operation 'a' starts as tool and finishes as subagent"]),
        ([OPEN_START, OperationFinished("a", OperationStatus.PENDING)], ["operation 'a' finishes as pending"]),
    ],
)  # fmt: skip
def test_operations_pair_up(found: list[Event], problems: list[str]) -> None:
    assert operation_problems(found) == problems


def test_a_context_of_the_authors_own_reaches_the_agent() -> None:
    def context() -> FakeContext:
        made = FakeContext()
        made.model = "m"
        return made

    @agent(coverage=COMPLETE_COVERAGE)
    async def names_its_model(turn: TurnInput, ctx: AdapterContext) -> Turn:
        return Turn(reply=ctx.model, usage=USAGE)

    adapter_suite(lambda: PythonAdapter(names_its_model), context=context)().test_a_plain_turn_is_well_formed()
    with pytest.raises(AssertionError, match="says nothing"):
        adapter_suite(lambda: PythonAdapter(names_its_model))().test_a_plain_turn_is_well_formed()
