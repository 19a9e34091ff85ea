"""The frame with real processes: a program of ours that behaves as it is told, in a sandbox of this machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from evalfleet.errors import ConfigurationError, FailureKind, SendFailure
from evalfleet.model.definition import SandboxSpec
from evalfleet.model.events import Message, Role
from evalfleet.model.turn import InputFile, TurnInput, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.ports import ArmSettings
from evalfleet.processes import SystemSpawner
from evalfleet.sandbox_ports import Command, SandboxPlace
from evalfleet.testing.adapter_context import FakeContext
from evalfleet_adapters.cli.adapter import CliOptions, factory
from evalfleet_adapters.cli.following import TRANSCRIPT_LIMIT
from evalfleet_sandboxes.local import factory as local

#: Speaks as codex does. What it does is said in the file `how` of its workdir.
PROGRAM = r"""#!/usr/bin/env python
import hashlib, json, os, sys, time
if sys.argv[1:] == ["--version"]:
    print("codex-cli 0.171.0")
    sys.exit()
how = json.load(open("how"))
for _ in range(how.get("noise", 0)):
    sys.stdout.write("x" * (1 << 20))
said = sys.stdin.buffer.read()
def tell(**document):
    print(json.dumps(document), flush=True)
tell(type="thread.started", thread_id="thread-1")
seen = {"argv": sys.argv[1:], "bytes": len(said), "sha256": hashlib.sha256(said).hexdigest(),
        "config": open(os.environ["CODEX_HOME"] + "/config.toml").read()}
tell(type="item.completed", item={"id": "item_0", "type": "agent_message", "text": json.dumps(seen)})
if how.get("last", True):
    tell(type="turn.completed", usage={"input_tokens": how.get("spent", 10), "output_tokens": 1})
if "pid" in how:
    open("pid", "w").write(str(os.getpid()))
time.sleep(how.get("sleep", 0))
print(how.get("err", ""), file=sys.stderr)
sys.exit(how.get("exit", 0))
"""


class Bench:
    """A session of a codex arm in a sandbox."""

    def __init__(self, context: FakeContext, session: Any) -> None:
        self.context = context
        self.session = session

    async def how(self, **how: Any) -> None:
        await self.context.sandbox.write("how", json.dumps(how).encode())

    async def send(self, text: str, **how: Any) -> Any:
        await self.how(**how)
        return await self.session.send(TurnInput(text), self.context)


def settings(**options: Any) -> ArmSettings:
    fields = {"agent": "codex", "base_url": "http://127.0.0.1:9/v1", **options}
    model = CliOptions.model_validate(fields)
    return ArmSettings(name="a b", model="m", flags={}, options=model, project=Path("."))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[Bench]:
    program = tmp_path / "codex"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    spawner = SystemSpawner()
    provider = local.build(SandboxPlace(state=tmp_path / "state", spawner=spawner))
    spec = SandboxSpec(backend="local", env={"EVALFLEET_GATEWAY": "http://127.0.0.1:1/token"})
    context = FakeContext(limit=60)
    context.arm = "a b"
    context.given_sandbox = await provider.create(spec, owner="run/1")
    own = {"mcp_servers": {"shop": "${gateway}/mcp"}, "settings": {"model_reasoning_effort": "high"}}
    adapter = factory.build(settings(program=str(program), grace=0.3, **own))
    try:
        yield Bench(context, await adapter.open(context))
    finally:
        await provider.close()
        await spawner.close()


def seen(turn: Any) -> dict[str, Any]:
    [message] = [event for event in turn.events if isinstance(event, Message)]
    assert message.role is Role.ASSISTANT
    return json.loads(message.text)


@pytest.mark.parametrize("text", ["--help", "-p x", "@file", "a" * 3_000_000], ids=lambda text: text[:8])
async def test_cl_06_any_prompt_arrives_as_it_is(bench: Bench, text: str) -> None:
    turn = await bench.send(text)
    told = seen(turn)
    assert (told["bytes"], told["sha256"]) == (len(text), hashlib.sha256(text.encode()).hexdigest())
    assert told["argv"][0] == "exec" and told["argv"][-1] == "-"


async def test_the_second_turn_goes_on_with_the_conversation_and_counts_its_own_usage(bench: Bench) -> None:
    first, second = await bench.send("one", spent=10), await bench.send("two", spent=25)
    assert "resume" not in seen(first)["argv"]
    assert seen(second)["argv"][-3:] == ["resume", "thread-1", "-"]
    assert (first.usage, second.usage) == (
        Usage(input_tokens=10, output_tokens=1),
        Usage(input_tokens=15, output_tokens=0),
    )


async def test_the_program_finds_its_model_and_its_servers_by_the_gateway(bench: Bench) -> None:
    config = seen(await bench.send("one"))["config"]
    assert 'base_url = "http://127.0.0.1:1/token/model/a%20b/v1"' in config
    assert '[mcp_servers."shop"]\nurl = "http://127.0.0.1:1/token/mcp"' in config
    assert config.startswith('check_for_update_on_startup = false\nmodel_reasoning_effort = "high"\n')


async def test_cl_04_a_program_that_does_not_end_is_ended_after_its_last_word(bench: Bench) -> None:
    turn = await bench.send("one", sleep=600, pid=True)
    assert turn.status is TurnStatus.COMPLETED
    assert any("was ended by us" in line for line in bench.context.logged)
    pid = (await bench.context.sandbox.read("pid")).decode()
    assert not Path("/proc", pid).exists()


async def test_cl_07_the_transcript_is_believed_and_the_exit_is_logged(bench: Bench) -> None:
    turn = await bench.send("one", exit=1, err="odd")
    assert turn.status is TurnStatus.COMPLETED
    assert any("exit 1: odd" in line for line in bench.context.logged)


async def test_a_program_that_breaks_off_leaves_what_it_said(bench: Bench) -> None:
    with pytest.raises(SendFailure) as raised:
        await bench.send("one", last=False, exit=3, err="boom")
    failure = raised.value
    assert (failure.kind, failure.code) == (FailureKind.AGENT, "AGENT_EXITED")
    assert "exit 3" in str(failure) and "boom" in str(failure)
    assert failure.partial is not None and seen(failure.partial)["bytes"] == 3


async def test_a_program_that_writes_without_end_is_ended(bench: Bench) -> None:
    with pytest.raises(SendFailure) as raised:
        await bench.send("one", noise=(TRANSCRIPT_LIMIT >> 20) + 64, sleep=600)
    assert (raised.value.kind, raised.value.code) == (FailureKind.AGENT, "AGENT_OUTPUT_TOO_LARGE")


async def test_a_program_whose_settings_find_no_place_is_told(bench: Bench) -> None:
    taken = Command(argv=("sh", "-c", 'echo taken > "$HOME/.evalfleet-agent"'))
    assert (await bench.context.sandbox.run(taken)).ok
    with pytest.raises(SendFailure, match="can't be written") as raised:
        await bench.send("one")
    assert raised.value.code == "AGENT_NOT_SET_UP"


async def test_a_turn_that_takes_too_long_ends_the_program_and_keeps_what_came(bench: Bench) -> None:
    await bench.send("one")
    bench.context.limit(2)
    with pytest.raises(SendFailure) as raised:
        await bench.send("two", last=False, sleep=600, pid=True)
    assert (raised.value.kind, raised.value.code) == (FailureKind.DEADLINE, "TURN_TIMEOUT")
    assert raised.value.partial is not None and seen(raised.value.partial)["bytes"] == 3
    pid = (await bench.context.sandbox.read("pid")).decode()
    assert not Path("/proc", pid).exists()


async def test_what_a_program_does_not_read_is_refused(bench: Bench) -> None:
    turn = TurnInput("look", files=(InputFile("a.png", "image/png", b""),))
    with pytest.raises(SendFailure, match="files") as raised:
        await bench.session.send(turn, bench.context)
    assert raised.value.code == "INPUT_UNSUPPORTED"


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ({"program": "/nowhere/codex"}, "AGENT_MISSING", "npm install -g @openai/codex@0.171.0"),
        ({"version": "0.172.0"}, "AGENT_VERSION", "not 0.172.0"),
    ],
)
async def test_a_program_that_is_not_there_as_pinned_is_told(
    bench: Bench, tmp_path: Path, options: dict[str, Any], code: str, says: str
) -> None:
    adapter = factory.build(settings(**{"program": str(tmp_path / "codex"), **options}))
    session = await adapter.open(bench.context)
    with pytest.raises(SendFailure, match=says) as raised:
        await session.send(TurnInput("hi"), bench.context)
    assert raised.value.code == code


async def test_a_sandbox_without_a_gateway_is_no_place_for_a_program(tmp_path: Path) -> None:
    program = tmp_path / "codex"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    spawner = SystemSpawner()
    provider = local.build(SandboxPlace(state=tmp_path / "state", spawner=spawner))
    context = FakeContext(limit=60)
    context.given_sandbox = await provider.create(SandboxSpec(backend="local"), owner="run/1")
    session = await factory.build(settings(program=str(program))).open(context)
    try:
        with pytest.raises(SendFailure, match="no gateway") as raised:
            await session.send(TurnInput("hi"), context)
    finally:
        await provider.close()
        await spawner.close()
    assert (raised.value.code, raised.value.kind) == ("AGENT_WITHOUT_GATEWAY", FailureKind.ADAPTER)


def test_what_makes_the_agent_is_its_program_version_model_and_settings() -> None:
    plain = factory.identify(settings())
    for same in ({"api_key_env": "K"}, {"program": "/x"}, {"grace": 1}, {"version": "0.171.0"}):
        assert factory.identify(settings(**same)) == plain, same
    for other in ({"version": "0.1"}, {"settings": {"a": 1}}, {"agent": "claude-code"}, {"mcp_servers": {"s": "u"}}):
        assert factory.identify(settings(**other)).digest != plain.digest, other


def test_an_arm_that_asks_the_real_provider_needs_a_key() -> None:
    with pytest.raises(ConfigurationError, match="api_key_env"):
        factory.build(settings(base_url=None))
