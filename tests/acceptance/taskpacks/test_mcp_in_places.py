"""Agents in closed places call a pack's tools by MCP: each its own records, nobody another's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

PACK = """
from evalfleet import Allowed, CallReader, Cases, Collection, Dataset, Operation, SandboxSpec, TaskPack, pack_tool

@pack_tool
def letters(cases: Cases) -> list[str]:
    "All letters."
    return [letter["text"] for letter in cases.all("letters")]

@pack_tool(mutating=True)
def write(cases: Cases, text: str) -> str:
    "Write a letter."
    return cases.add("letters", {"id": cases.next_id("L"), "text": text})["id"]

@pack_tool(mutating=True)
def decide(cases: Cases, decision: str) -> str:
    "Release the parcel, or return it."
    return cases.update("parcels", "P-1", status=decision)["status"]

pack = TaskPack(
    name="parcels",
    collections=[Collection("parcels"), Collection("letters")],
    tools=[letters, write, decide],
    policy=[
        Allowed(collection="parcels", operation=Operation.UPDATED, fields=frozenset({"status"}), min=1),
        Allowed(collection="letters", operation=Operation.ADDED, max=1),
    ],
    requirements={"invoice": ("invoice",)},
    decisions=("release", "return"),
    reader=CallReader(decides="decide", requests="none", asking="ask"),
)
PLACE = SandboxSpec(backend="bubblewrap", network="none", files="client")
parcels = pack.evals(Dataset.jsonl("parcels.jsonl", id="id"), sandbox=PLACE, timeout=60)
"""
#: Runs in the place: the SDK's own client.
CLIENT = """
import asyncio, json, os, sys
from mcp import Client

async def steps_of(url, steps):
    try:
        async with Client(url) as client:
            for name, *arguments in steps:
                if name == "list":
                    yield [tool.name for tool in (await client.list_tools()).tools]
                else:
                    result = await client.call_tool(name, *arguments)
                    yield [result.is_error, result.content[0].text]
    except BaseException as error:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        yield f"{type(error).__name__}: {error}"

async def main():
    place, _, own = os.environ["EVALFLEET_GATEWAY"].rpartition("/")
    said = [[each async for each in steps_of(f"{place}/{t or own}/mcp", steps)] for t, steps in json.load(sys.stdin)]
    print(json.dumps([own, said]))

asyncio.run(main())
"""
AGENT = """
import asyncio, json
from evalfleet import COMPLETE_COVERAGE, Turn, sandbox_agent
from evalfleet.sandbox_ports import Command

BOTH = asyncio.Barrier(2)
TOKENS = {}

@sandbox_agent(coverage=COMPLETE_COVERAGE)
async def clerk(turn, ctx):
    async def client(*asked):
        result = await ctx.sandbox.run(Command(argv=("python", "client.py"), stdin=json.dumps(asked).encode()))
        return json.loads(result.stdout or b"null") or [None, result.stderr.decode()]

    async with asyncio.timeout(50):
        await BOTH.wait()
        TOKENS[ctx.case], first = await client([None, [["list"], ["write", {"text": ctx.case}]]])
        await BOTH.wait()
        other = next(token for case, token in TOKENS.items() if case != ctx.case)
        foreign = [[token, [["letters", {}]]] for token in (other, "guess")]
        last = [["letters", {}], ["gone", {}], ["decide", {"decision": "release"}]]
        _, then = await client(*foreign, [None, last])
        await BOTH.wait()
    return Turn(reply=json.dumps([*first, *then]))
"""
EXPERIMENT = """
schema_version: 1
name: places
arms:
  own: {adapter: python, entry: "own_agent:clerk"}
limits: {concurrency: 2}
"""
ROW: dict[str, Any] = {
    "prompt": "Deal with P-1.",
    "snapshot": {"parcels": [{"id": "P-1", "status": "open"}]},
    "gold": [{"decision": "release"}],
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("places")
    (folder / "evals" / "client").mkdir(parents=True)
    (folder / "evals" / "client" / "client.py").write_text(CLIENT)
    (folder / "evals" / "parcels.eval.py").write_text(PACK)
    (folder / "evals" / "parcels.jsonl").write_text("".join(json.dumps({**ROW, "id": i}) + "\n" for i in ("a", "b")))
    (folder / "own_agent.py").write_text(AGENT)
    (folder / "experiment.yaml").write_text(EXPERIMENT)
    return folder


def test_two_attempts_at_once_have_each_their_own_tools_and_records(orchestrate: Orchestrate, project: Path) -> None:
    ended = orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=project)
    assert ended.values, ended.err
    run = ended.values[-1]["run"]["id"]
    cases: set[str] = set()
    for ordinal in (0, 1):
        shown = orchestrate("show", run, f"{ordinal}", "--json", "--diagnostics", cwd=project).values[-1]
        assert ended.code == 0, shown
        first, foreign, guessed, then = json.loads(shown["attempt"]["turns"][0]["events"][-1]["text"])
        trace = shown["attempt"]["attachments"]["taskpack"]["trace"]
        case = trace[0]["arguments"]["text"]
        cases.add(case)
        assert first == [["letters", "write", "decide"], [False, "L-0001"]]
        assert then == [
            [False, json.dumps([case])],
            [True, "there is no tool 'gone'; there are letters, write, decide"],
            [False, "release"],
        ]
        assert foreign == guessed == ["MCPError: Not Found"], "the token of the other attempt opens nothing"
        assert [(line["tool"], line.get("evalfleet.error")) for line in trace] == [
            ("write", None), ("letters", None), ("gone", "UNKNOWN_TOOL"), ("decide", None)
        ]  # fmt: skip
    assert cases == {"parcels/a", "parcels/b"}
    replayed = orchestrate("pack", "replay", run, cwd=project)
    assert (replayed.code, replayed.err) == (0, "2 attempts repeated, 0 diverged\n")
