"""Coding agents that speak the Agent Client Protocol, as npm has them, in closed sandboxes."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evalfleet.testing.http_endpoint import Request
from evalfleet.testing.model_endpoint import ModelEndpoint
from evalfleet.testing.model_turn import ModelTurn, ScriptedCall, ScriptedUsage
from tests.acceptance.conftest import forks, orchestrate

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

pytestmark = [pytest.mark.agents, pytest.mark.timeout(300)]
__all__ = ["forks", "orchestrate"]

TOOLS = Path(sys.prefix) / "agents"
KEY = "sk-real-key-of-the-arm"
EVAL = """
from evalfleet import SandboxSpec, TrackChanges, define_eval, equals, includes

SEARCH = "env; cat /proc/*/environ; grep -rl KEY /sandbox /etc"

@define_eval(sandbox=SandboxSpec(backend="bubblewrap", network="none", changes=TrackChanges()))
async def body(t):
    first = await t.send("--help: write hello into greeting.txt")
    first.succeeded()
    t.check(first.reply, includes("Written."))
    second = await t.send("What stands in it?")
    second.succeeded()
    t.check(second.reply, includes("It says hello."))
    t.sandbox.file_changed("greeting.txt")
    t.check(await t.sandbox.read_text("greeting.txt"), equals("hello"))
    seen = await t.sandbox.run("sh", "-c", SEARCH)
    t.check("KEY" in seen.text, equals(False)).label("no key in the sandbox")
""".replace("KEY", KEY)
EXPERIMENT = """
schema_version: 1
name: agents
arms:
  own:
    adapter: acp
    agent: AGENT
    model: scripted
    base_url: "URL"
    api_key_env: ARM_KEY
    command: COMMAND
    max_tokens: 500
prices: {scripted: {input: 1000, output: 10000, cache_read: 100}}
budget: {usd: 5000}
"""


@dataclass(frozen=True)
class Agent:
    """How an agent is started, and how it calls a shell."""

    name: str
    command: tuple[str, ...]
    tool: str
    argument: str


AGENTS = [
    Agent("opencode", ("opencode/node_modules/.bin/opencode", "acp"), "bash", "command"),
    Agent("codex", ("codex-acp/node_modules/.bin/codex-acp",), "exec_command", "cmd"),
]
SPENT = ScriptedUsage(input=100, output=20, cache_read=30)


def a_title(request: Request) -> ModelTurn | None:
    """What an agent asks beside its turn has no tools: a title of the conversation."""
    return None if json.loads(request.body).get("tools") else ModelTurn(text="A title", usage=SPENT)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
async def test_a_real_agent_edits_a_file_and_goes_on(
    orchestrate: Orchestrate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: Agent
) -> None:
    program = TOOLS / agent.command[0]
    if not program.exists():
        pytest.skip(f"{agent.name} is not installed: make test-agents")
    monkeypatch.setenv("ARM_KEY", KEY)
    script = [
        ModelTurn(text="I write.", calls=(_call(agent, "printf hello > greeting.txt", "c1"),), usage=SPENT),
        ModelTurn(text="Written.", usage=SPENT),
        ModelTurn(text="I look.", calls=(_call(agent, "cat greeting.txt", "c2"),), usage=SPENT),
        ModelTurn(text="It says hello.", usage=SPENT),
    ]
    async with ModelEndpoint(script, aside=a_title) as model:
        (tmp_path / "evals").mkdir()
        (tmp_path / "evals" / "edit.eval.py").write_text(EVAL)
        command = json.dumps([str(program), *agent.command[1:]])
        text = EXPERIMENT.replace("AGENT", agent.name).replace("URL", model.base_url).replace("COMMAND", command)
        (tmp_path / "experiment.yaml").write_text(text)
        ended = await asyncio.to_thread(
            lambda: orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=tmp_path)
        )
        limits = {body.get("max_output_tokens") or body.get("max_tokens") for body in model.bodies if body.get("tools")}
    run = ended.values[-1]["run"]["id"]
    (case,) = (await asyncio.to_thread(lambda: orchestrate("show", run, "0", "--json"))).values
    assert ended.code == 0, json.dumps(case, indent=1)[:20_000]
    turns = case["attempt"]["turns"]
    commands = [event for turn in turns for event in turn["events"] if event.get("tool") == "shell"]
    assert len(commands) >= 1, "an agent may call the reading of a file by another kind"
    operations = [event for turn in turns for event in turn["events"] if event["type"] == "operation.finished"]
    assert [event["status"] for event in operations] == ["completed", "completed"]
    assert {turn["coverage"]["usage"]["state"] for turn in turns} == {"complete"}
    assert sum(turn["usage"]["output_tokens"] for turn in turns) == model.usage.output
    assert sum(turn["usage"]["input_tokens"] for turn in turns) == model.usage.input
    assert limits == {500}
    usd = ended.values[-1]["budget"]["usd"]
    cost = model.usage.input * 1000e-6 + model.usage.output * 10000e-6 + model.usage.cache_read * 100e-6
    assert (usd["spent"], usd["possible"], usd["reserved"]) == (pytest.approx(cost), 0, 0)


def _call(agent: Agent, command: str, identifier: str) -> ScriptedCall:
    given: dict[str, Any] = {agent.argument: command}
    if agent.name != "codex":
        given["description"] = "as asked"
    return ScriptedCall(agent.tool, given, identifier)
