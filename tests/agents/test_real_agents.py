"""Coding agents as their registries have them, in closed sandboxes, on a scripted model of this machine."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evalfleet.reports.exit_code import ExitCode
from evalfleet.testing.http_endpoint import Request
from evalfleet.testing.model_endpoint import ModelEndpoint
from evalfleet.testing.model_turn import ModelTurn, ScriptedCall, ScriptedUsage
from evalfleet_adapters.cli.adapter import PROGRAMS
from tests.acceptance.conftest import forks, orchestrate
from tests.acceptance.taskpacks.test_mcp_in_places import PACK, ROW

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

pytestmark = [pytest.mark.agents, pytest.mark.timeout(300)]
__all__ = ["forks", "orchestrate"]

#: Where `make test-agents` installs them: a folder that sandboxes on this machine see.
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
    t.check(second.reply, equals("It says hello."))
    t.sandbox.file_changed("greeting.txt")
    t.check(await t.sandbox.read_text("greeting.txt"), equals("hello"))
    seen = await t.sandbox.run("sh", "-c", SEARCH)
    t.check("KEY" in seen.text, equals(False)).label("no key in the sandbox")
    t.check("EVALFLEET_GATEWAY=" in seen.text, equals(True)).label("the search found the environment")
""".replace("KEY", KEY)
EXPERIMENT = """
schema_version: 1
name: agents
arms:
  own: {adapter: cli, agent: AGENT, model: scripted, base_url: "URL", api_key_env: ARM_KEY, program: "PROGRAM"}
"""


@dataclass(frozen=True)
class Agent:
    """How an agent's tool is called, where its API lies below the endpoint, and where its key stands in a request."""

    name: str
    shell: Callable[[str], dict[str, Any]]
    tool: str
    base_url: Callable[[ModelEndpoint], str]
    key: Callable[[Request], str]
    served: str = "mcp__desk__decide"


AGENTS = [
    Agent(
        "codex",
        lambda command: {"cmd": command},
        "exec_command",
        lambda model: model.base_url,
        lambda request: request.headers.get("authorization", "").removeprefix("Bearer "),
    ),
    Agent(
        "claude-code",
        lambda command: {"command": command, "description": "as asked"},
        "Bash",
        lambda model: model.url,
        lambda request: request.headers.get("x-api-key", ""),
    ),
    Agent(
        "opencode",
        lambda command: {"command": command, "description": "as asked"},
        "bash",
        lambda model: model.base_url,
        lambda request: request.headers.get("authorization", "").removeprefix("Bearer "),
        served="desk_decide",
    ),
]
SPENT = ScriptedUsage(input=100, output=20, cache_read=30)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
async def test_a_real_agent_edits_a_file_and_goes_on(
    orchestrate: Orchestrate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: Agent
) -> None:
    program = _installed(agent)
    monkeypatch.setenv("ARM_KEY", KEY)
    script = [
        ModelTurn(text="I write.", calls=(_call(agent, "printf hello > greeting.txt", "c1"),), usage=SPENT),
        ModelTurn(text="Written.", usage=SPENT),
        ModelTurn(calls=(_call(agent, "cat greeting.txt", "c2"),), usage=SPENT),
        ModelTurn(text="It says hello.", usage=SPENT),
    ]
    async with ModelEndpoint(script) as model:
        (tmp_path / "evals").mkdir()
        (tmp_path / "evals" / "edit.eval.py").write_text(EVAL)
        (tmp_path / "experiment.yaml").write_text(_experiment(EXPERIMENT, agent, model, program))
        ended = await asyncio.to_thread(
            lambda: orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=tmp_path)
        )
    run = ended.values[-1]["run"]["id"]
    (case,) = (await asyncio.to_thread(lambda: orchestrate("show", run, "0", "--json"))).values
    assert ended.code == 0, json.dumps(case, indent=1)[:20_000]
    turns = case["attempt"]["turns"]
    assert [turn["status"] for turn in turns] == ["completed", "completed"]
    assert _added(turns) == {
        "input_tokens": model.usage.input,
        "output_tokens": model.usage.output,
        "cache_read_tokens": model.usage.cache_read,
        "cache_write_tokens": model.usage.cache_write,
    }
    assert {turn["coverage"]["usage"]["state"] for turn in turns} == {"complete"}, "all calls passed the gateway"
    requests = [event for turn in turns for event in turn["events"] if event["type"] == "model.request"]
    assert len(requests) == 4 and {event["model"] for event in requests} == {"scripted"}
    assert requests[0]["instructions"] and agent.tool in requests[0]["tools"]
    commands = [event for turn in turns for event in turn["events"] if event.get("tool") == "shell"]
    assert len(commands) == 2
    asked = [request for request in model.requests if request.body]
    assert len(asked) == model.answered == 4
    assert {agent.key(request) for request in asked} == {KEY}
    # the prompt came whole, and the second turn knows of the first
    assert b"--help: write hello into greeting.txt" in asked[0].body and b"Written." in asked[2].body


PRICED = (
    EXPERIMENT.replace("api_key_env", "max_tokens: 500, api_key_env")
    + """
prices: {scripted: {input: 1000, output: 10000, cache_read: 100}}
budget: {usd: BUDGET}
"""
)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
async def test_a_real_agent_spends_once_what_its_calls_cost(
    orchestrate: Orchestrate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: Agent
) -> None:
    program = _installed(agent)
    monkeypatch.setenv("ARM_KEY", KEY)
    script = [
        ModelTurn(text="I write.", calls=(_call(agent, "printf hello > greeting.txt", "c1"),), usage=SPENT),
        ModelTurn(text="Written.", usage=SPENT),
        ModelTurn(calls=(_call(agent, "cat greeting.txt", "c2"),), usage=SPENT),
        ModelTurn(text="It says hello.", usage=SPENT),
    ]
    async with ModelEndpoint(script) as model:
        (tmp_path / "evals").mkdir()
        (tmp_path / "evals" / "edit.eval.py").write_text(EVAL)
        text = _experiment(PRICED, agent, model, program)
        # a request is reserved a token for each of its bytes: some hundred thousand of them
        (tmp_path / "experiment.yaml").write_text(text.replace("BUDGET", "5000"))
        ended = await asyncio.to_thread(
            lambda: orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=tmp_path)
        )
        asked = [json.loads(request.body) for request in model.requests if request.body]
        limits = {body.get("max_output_tokens") or body.get("max_tokens") for body in asked}
        (tmp_path / "poor.yaml").write_text(text.replace("BUDGET", "1"))
        poor = await asyncio.to_thread(lambda: orchestrate("submit", "poor.yaml", "--inline", "--json", cwd=tmp_path))
    assert ended.code == 0, ended.err
    usd = ended.values[-1]["budget"]["usd"]
    cost = model.usage.input * 1000e-6 + model.usage.output * 10000e-6 + model.usage.cache_read * 100e-6
    assert (usd["spent"], usd["possible"], usd["reserved"]) == (pytest.approx(cost), 0, 0)
    assert limits == {500}
    # a call that the budget can't cover is never made
    assert poor.code == ExitCode.LIMITED and model.answered == 4


PACKED = """
schema_version: 1
name: agents
arms:
  own:
    adapter: cli
    agent: AGENT
    model: scripted
    base_url: "URL"
    program: "PROGRAM"
    SERVERS
"""
NAMED = 'mcp_servers: {desk: "${gateway}/mcp"}'


@pytest.mark.parametrize("server", ["pack", "desk"])
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
async def test_a_real_agent_calls_the_tools_of_a_pack(
    orchestrate: Orchestrate, tmp_path: Path, agent: Agent, server: str
) -> None:
    program = _installed(agent)
    served = agent.served.replace("desk", server)
    # codex has the tools of a server in a namespace; the others have them by a longer name
    name, within = ("decide", f"mcp__{server}") if agent.name == "codex" else (served, None)
    called = ModelTurn(calls=(ScriptedCall(name, {"decision": "release"}, "c1", within),), usage=SPENT)
    async with ModelEndpoint([called, ModelTurn(text="Released.", usage=SPENT)]) as model:
        (tmp_path / "evals").mkdir()
        (tmp_path / "evals" / "parcels.eval.py").write_text(PACK.replace(', files="client"', ""))
        (tmp_path / "evals" / "parcels.jsonl").write_text(json.dumps({**ROW, "id": "lamp"}) + "\n")
        packed = PACKED.replace("SERVERS", NAMED if server == "desk" else "")
        (tmp_path / "experiment.yaml").write_text(_experiment(packed, agent, model, program))
        ended = await asyncio.to_thread(
            lambda: orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=tmp_path)
        )
    run = ended.values[-1]["run"]["id"]
    (case,) = (await asyncio.to_thread(lambda: orchestrate("show", run, "0", "--json"))).values
    assert ended.code == 0, json.dumps(case, indent=1)[:20_000]
    (turn,) = case["attempt"]["turns"]
    shown = served if agent.name == "opencode" else "decide"
    assert [event["input"] for event in turn["events"] if event.get("name") == shown] == [{"decision": "release"}]


def _installed(agent: Agent) -> Path:
    program = TOOLS / agent.name / "node_modules" / ".bin" / PROGRAMS[agent.name].command
    if not program.exists():
        pytest.skip(f"{agent.name} is not installed: make test-agents")
    return program


def _experiment(text: str, agent: Agent, model: ModelEndpoint, program: Path) -> str:
    return text.replace("AGENT", agent.name).replace("URL", agent.base_url(model)).replace("PROGRAM", str(program))


def _call(agent: Agent, command: str, identifier: str) -> ScriptedCall:
    return ScriptedCall(agent.tool, agent.shell(command), identifier)


def _added(turns: list[dict[str, Any]]) -> dict[str, int]:
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    return {name: sum(turn["usage"][name] for turn in turns) for name in names}
