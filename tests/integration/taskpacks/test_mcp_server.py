"""A pack's tools over real MCP: the SDK's own client on a real HTTP server, an attempt beside another."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from mcp import Client

from evalfleet.taskpacks.case_store import CaseStore, keep_state
from evalfleet.taskpacks.cases import Cases
from evalfleet.taskpacks.mcp_server import mcp_app
from evalfleet.taskpacks.pack_tool import pack_tool
from evalfleet.taskpacks.responder import Script
from evalfleet.taskpacks.sqlite_cases import SqliteCases
from evalfleet.taskpacks.state import Collection, read_state, schema_of
from evalfleet.taskpacks.trace_file import TraceFile
from evalfleet.taskpacks.world import World
from evalfleet.testing.fakes import FakeClock

SCHEMA = schema_of([Collection("files"), Collection("notes")])
START = read_state(SCHEMA, {"files": [{"id": "F-1", "status": "open"}]})


@pack_tool
def read_file(cases: Cases, file: str) -> dict[str, Any]:
    """One file."""
    return cases.need("files", file)


@pack_tool(mutating=True)
def note(cases: Cases, text: str) -> str:
    """Write a note."""
    return cases.add("notes", {"id": cases.next_id("N"), "text": text})["id"]


@pack_tool
def broken(cases: Cases) -> None:
    raise RuntimeError("broken")


@asynccontextmanager
async def served(folder: Path, name: str) -> AsyncGenerator[tuple[World, str]]:
    """A world, and the address at which its tools are called."""
    backend = SqliteCases(folder / "cases")
    store = CaseStore(SCHEMA, await backend.open(name), FakeClock())
    world = World(store, TraceFile(folder / f"{name}.jsonl", name, FakeClock()), [read_file, note, broken], Script(()))
    await world.reset(await keep_state(backend, START))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        async with mcp_app(world) as app:
            config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False)
            server = uvicorn.Server(config)
            task = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                yield world, f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            finally:
                server.should_exit = True
                await task
    await store.close()


def text(result: Any) -> str:
    (content,) = result.content
    return content.text


async def test_tools_are_listed_as_agents_of_functions_see_them(tmp_path: Path) -> None:
    async with served(tmp_path, "one") as (world, url), Client(url) as client:
        listed = (await client.list_tools()).tools
    assert [(tool.name, tool.description) for tool in listed][:2] == [
        ("read_file", "One file."),
        ("note", "Write a note."),
    ]
    assert [tool.input_schema for tool in listed] == [dict(tool.parameters) for tool in world.tools]


async def test_calls_run_in_the_world_and_are_traced(tmp_path: Path) -> None:
    async with served(tmp_path, "one") as (world, url), Client(url) as client:
        assert json.loads(text(await client.call_tool("read_file", {"file": "F-1"}))) == {"id": "F-1", "status": "open"}
        assert text(await client.call_tool("note", {"text": "é 🙂"})) == "N-0001"
        assert (await world.state()).record("notes", "N-0001") == {"id": "N-0001", "text": "é 🙂"}
    assert [(call.tool, call.arguments, call.status.value) for call in world.trace.calls] == [
        ("read_file", {"file": "F-1"}, "ok"),
        ("note", {"text": "é 🙂"}, "ok"),
    ]


async def test_what_fits_no_tool_is_told_to_the_agent_and_traced(tmp_path: Path) -> None:
    async with served(tmp_path, "one") as (world, url), Client(url) as client:
        answers = [
            await client.call_tool("gone", {"a": 1}),
            await client.call_tool("read_file", {"file": 7}),
            await client.call_tool("read_file", {"file": "F-9"}),
            await client.call_tool("broken", {}),
        ]
    assert [answer.is_error for answer in answers] == [True] * 4
    assert [text(answer) for answer in answers] == [
        "there is no tool 'gone'; there are read_file, note, broken",
        "read_file: file: Input should be a valid string, not 7",
        "there is no files/F-9",
        "RuntimeError: broken",
    ]
    assert [(call.tool, call.error) for call in world.trace.calls] == [
        ("gone", "UNKNOWN_TOOL"),
        ("read_file", "INVALID_ARGUMENTS"),
        ("read_file", "CALL_REJECTED"),
        ("broken", "TOOL_RAISED"),
    ]


async def test_attempts_beside_each_other_never_see_each_others_rows(tmp_path: Path) -> None:
    async def work(name: str, barrier: asyncio.Barrier) -> list[str]:
        async with served(tmp_path, name) as (world, url), Client(url) as client:
            for number in range(5):
                await barrier.wait()
                await client.call_tool("note", {"text": f"{name}/{number}"})
            await barrier.wait()
            return [record["text"] for record in (await world.state()).records("notes")]

    names = ("first", "second", "third")
    barrier = asyncio.Barrier(len(names))
    found = await asyncio.gather(*(work(name, barrier) for name in names))
    assert found == [[f"{name}/{number}" for number in range(5)] for name in names]
