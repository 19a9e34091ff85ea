"""The protocol with a real process in a sandbox of this machine: an agent of ours that does as it is told."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from evalfleet.errors import ConfigurationError, FailureKind, SendFailure
from evalfleet.model.definition import SandboxSpec
from evalfleet.model.events import (
    InputRequested,
    Message,
    OperationFinished,
    OperationStarted,
    OperationStatus,
)
from evalfleet.model.tool import tool
from evalfleet.model.turn import InputFile, InputResponse, TurnInput, TurnStatus
from evalfleet.ports import ArmSettings, AsksByGateway, shows_calls
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import SandboxPlace
from evalfleet.testing.adapter_context import FakeContext
from evalfleet_adapters.acp.adapter import AcpOptions, factory
from evalfleet_sandboxes.local import factory as local

AGENT = (sys.executable, str(Path(__file__).parent / "agent.py"))


@asynccontextmanager
async def talking(tmp_path: Path, how: dict[str, Any] | None = None, **options: Any) -> AsyncGenerator[Any]:
    spawner = SystemSpawner()
    provider = local.build(SandboxPlace(state=tmp_path / "state", spawner=spawner))
    spec = SandboxSpec(backend="local", env={"EVALFLEET_GATEWAY": "http://127.0.0.1:1/token"})
    context = FakeContext(limit=60)
    context.arm = "a b"
    context.given_sandbox = await provider.create(spec, owner="run/1")
    env = {**options.pop("env", {}), "HOW": json.dumps(how or {})}
    session = await factory.build(settings(**{"command": AGENT, "env": env, **options})).open(context)
    try:
        yield Talking(context, session)
    finally:
        await session.close()
        await provider.close()
        await spawner.close()


class Talking:
    def __init__(self, context: FakeContext, session: Any) -> None:
        self.context = context
        self.session = session

    async def send(self, text: str = "", **fields: Any) -> Any:
        return await self.session.send(TurnInput(text, **fields), self.context)


def settings(**options: Any) -> ArmSettings:
    return ArmSettings(name="a b", model="m", flags={}, options=AcpOptions.model_validate(options), project=Path("."))


def said(turn: Any) -> str:
    return "".join(event.text for event in turn.events if isinstance(event, Message))


async def test_a_conversation_goes_on_in_one_process(tmp_path: Path) -> None:
    async with talking(tmp_path) as on:
        first = await on.send("one")
        await on.send("two")
        third = await on.send("recall")
    assert first.status is TurnStatus.COMPLETED
    assert (said(first), said(third)) == ("one", "one two recall")
    assert len([event for event in first.events if isinstance(event, Message)]) == 1, "chunks are one message"
    assert any("ready v1" in line for line in on.context.logged)


async def test_tools_are_told_with_their_inputs_and_ends(tmp_path: Path) -> None:
    async with talking(tmp_path, permissions="deny") as on:
        turn = await on.send("use ok fail reject")
    starts = [event for event in turn.events if isinstance(event, OperationStarted)]
    ends = [event for event in turn.events if isinstance(event, OperationFinished)]
    assert [(event.name, event.input, event.tool) for event in starts] == [
        ("ok", {"command": "ok"}, "shell"),
        ("fail", {"command": "fail"}, "shell"),
        ("reject", {"path": "/x"}, "shell"),
    ]
    assert [(event.status, event.output) for event in ends] == [
        (OperationStatus.COMPLETED, {"said": "ok"}),
        (OperationStatus.FAILED, {"said": "fail"}),
        (OperationStatus.REJECTED, {"said": "reject"}),
    ]


async def test_what_it_asks_is_allowed_by_default(tmp_path: Path) -> None:
    async with talking(tmp_path) as on:
        turn = await on.send("use careful")
    [end] = [event for event in turn.events if isinstance(event, OperationFinished)]
    assert end.status is OperationStatus.COMPLETED


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (InputResponse("careful-10", option_id="approve"), OperationStatus.COMPLETED),
        (InputResponse("careful-10", text="Allow"), OperationStatus.COMPLETED),
        (InputResponse("careful-10", option_id="deny"), OperationStatus.REJECTED),
        (InputResponse("careful-10", text="rather not"), OperationStatus.REJECTED),
    ],
)
async def test_an_eval_may_answer_what_it_asks(tmp_path: Path, answer: InputResponse, status: OperationStatus) -> None:
    async with talking(tmp_path, permissions="ask") as on:
        asking = await on.send("use careful")
        [request] = [event for event in asking.events if isinstance(event, InputRequested)]
        assert asking.status is TurnStatus.WAITING
        assert (request.request_id, request.prompt, request.action) == ("careful-10", "careful", "careful")
        assert request.input == {"path": "/x"}
        assert [option.id for option in request.options] == ["approve", "deny"]
        answered = await on.send(responses=(answer,))
        assert said(await on.send("and")) == "and"
    assert [type(event) for event in asking.events] == [OperationStarted, InputRequested]
    assert [type(event) for event in answered.events] == [OperationFinished, Message], "what was told is not told again"
    assert answered.events[0].status is status


async def test_a_question_that_waits_can_only_be_answered(tmp_path: Path) -> None:
    async with talking(tmp_path, permissions="ask") as on:
        await on.send("use careful")
        with pytest.raises(SendFailure, match="waits for a permission") as raised:
            await on.send("something else")
    assert raised.value.code == "INPUT_UNSUPPORTED"


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("end_turn", TurnStatus.COMPLETED),
        ("max_tokens", TurnStatus.TRUNCATED),
        ("max_turn_requests", TurnStatus.FAILED),
        ("refusal", TurnStatus.FAILED),
        ("of a later version", TurnStatus.FAILED),
    ],
)
async def test_why_it_stopped_is_what_the_turn_is(tmp_path: Path, reason: str, status: TurnStatus) -> None:
    async with talking(tmp_path) as on:
        assert (await on.send(f"stop {reason}")).status is status


@pytest.mark.parametrize(
    ("text", "kind", "code", "says"),
    [
        ("break", FailureKind.AGENT, "AGENT_EXITED", "broken on order .*asked"),
        ("die", FailureKind.AGENT, "AGENT_EXITED", "exit 3.*out of luck"),
        ("say nothing", FailureKind.PROVIDER, "EMPTY_RESPONSE", "without a text"),
        ("flood", FailureKind.AGENT, "AGENT_OUTPUT_TOO_LARGE", "64 MiB"),
    ],
)
async def test_an_agent_that_breaks_is_told(tmp_path: Path, text: str, kind: FailureKind, code: str, says: str) -> None:
    async with talking(tmp_path) as on:
        await on.send("use ok")
        with pytest.raises(SendFailure, match=says) as raised:
            await on.send(text)
    assert (raised.value.kind, raised.value.code) == (kind, code)


async def test_a_turn_that_takes_too_long_ends_the_agent(tmp_path: Path) -> None:
    async with talking(tmp_path) as on:
        await on.send("one")
        on.context.limit(1)
        with pytest.raises(SendFailure) as raised:
            await on.send("forever")
    assert (raised.value.kind, raised.value.code) == (FailureKind.DEADLINE, "TURN_TIMEOUT")


@pytest.mark.parametrize(
    ("how", "options", "code", "says"),
    [
        ({"speaks": 2}, {}, "AGENT_VERSION", "speaks version 2"),
        ({}, {"version": "1.3"}, "AGENT_VERSION", "not version 1.3"),
        ({"locked": True}, {}, "AGENT_NOT_SET_UP", "session/new: Authentication required"),
        ({"http": False}, {"mcp_servers": {"shop": "${gateway}/mcp"}}, "AGENT_NOT_SET_UP", "MCP servers by HTTP"),
        ({}, {"command": ("/nowhere/agent",)}, "AGENT_MISSING", "can't be started"),
    ],
)
async def test_an_agent_that_can_not_begin_is_told(
    tmp_path: Path, how: dict[str, Any], options: dict[str, Any], code: str, says: str
) -> None:
    async with talking(tmp_path, how, **options) as on:
        with pytest.raises(SendFailure, match=says) as raised:
            await on.send("one")
    assert raised.value.code == code


async def test_it_finds_its_model_its_files_and_its_servers(tmp_path: Path) -> None:
    @tool
    def look() -> None:
        """Look."""

    own = {"OWN_MODEL": "${model_url}/v1", "OWN_FILE": "${folder}/own.json"}
    files = {"own.json": '{"at": "${model_url}"}'}
    async with talking(tmp_path, version="1.2", env=own, files=files, mode="yolo") as on:
        on.context.tools = (look,)
        seen = json.loads(said(await on.send("how")))
        text = Path(seen["env"]["OWN_FILE"]).read_text()
    assert seen["env"]["OWN_MODEL"] == "http://127.0.0.1:1/token/model/a%20b/v1"
    assert text == '{"at": "http://127.0.0.1:1/token/model/a%20b"}'
    pack: dict[str, Any] = {"type": "http", "name": "pack", "url": "http://127.0.0.1:1/token/mcp", "headers": []}
    assert seen["opened"]["mcpServers"] == [pack]
    assert (seen["opened"]["modelId"], seen["opened"]["modeId"]) == ("m", "yolo")


async def test_what_was_not_offered_is_refused(tmp_path: Path) -> None:
    async with talking(tmp_path) as on:
        assert said(await on.send("files")) == "fs/read_text_file is not offered here"


async def test_files_are_not_sent(tmp_path: Path) -> None:
    async with talking(tmp_path) as on:
        with pytest.raises(SendFailure, match="files") as raised:
            await on.send("look", files=(InputFile("a.png", "image/png", b""),))
    assert raised.value.code == "INPUT_UNSUPPORTED"


URL = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("options", "by_gateway"),
    [
        ({"command": ["a"]}, False),
        ({"command": ["a"], "dialect": "chat", "base_url": URL}, True),
        ({"agent": "opencode", "base_url": URL}, True),
    ],
)
def test_whose_calls_are_seen(options: dict[str, Any], by_gateway: bool) -> None:
    arm = settings(**options)
    assert isinstance(factory.build(arm), AsksByGateway) == by_gateway == shows_calls(factory, arm.options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "needs `agent`, or `command`"),
        ({"agent": "codex", "dialect": "chat"}, "it is for other agents"),
        ({"command": ["a"], "dialect": "chat"}, "needs `base_url`"),
        ({"command": ["a"], "dialect": "morse", "base_url": URL}, "dialect"),
    ],
)
def test_an_arm_that_can_not_be_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        AcpOptions.model_validate(options)


def test_a_provider_of_its_own_needs_a_key() -> None:
    with pytest.raises(ConfigurationError, match=r"arms.a b.api_key_env"):
        factory.build(settings(agent="codex"))
