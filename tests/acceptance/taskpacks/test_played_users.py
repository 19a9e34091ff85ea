"""A run whose users a model plays, from its pack to its report: marked, measured, repeated without the model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalfleet.testing.model_endpoint import ModelEndpoint, completion

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

PACK = """
from evalfleet import Allowed, CallReader, Cases, Collection, Dataset, Operation, TaskPack, UserModel, pack_tool

@pack_tool(mutating=True)
def ask(cases: Cases, items: list[dict[str, str]], message: str) -> str:
    return cases.add("letters", {"id": cases.next_id("L"), "text": message})["id"]

@pack_tool(mutating=True)
def decide(cases: Cases, decision: str) -> str:
    return cases.update("parcels", "P-1", status=decision)["status"]

pack = TaskPack(
    name="parcels",
    collections=[Collection("parcels"), Collection("letters")],
    tools=[ask, decide],
    policy=[
        Allowed(collection="parcels", operation=Operation.UPDATED, fields=frozenset({"status"}), min=1),
        Allowed(collection="letters", operation=Operation.ADDED, max=1),
    ],
    requirements={"licence": ("export licence",)},
    decisions=("release", "ask"),
    reader=CallReader(decides="decide", requests="ask", asking="ask"),
    user_model=UserModel(model="user-m", base_url="BASE_URL"),
)
parcels = pack.evals(Dataset.jsonl("parcels.jsonl", id="id"), timeout=60)
"""
AGENT = """
from evalfleet import COMPLETE_COVERAGE, Turn, agent

@agent(coverage=COMPLETE_COVERAGE)
def clerk(turn, ctx):
    tools = {tool.name: tool for tool in ctx.tools}
    if "drawer" in turn.text:
        tools["decide"](decision="release")
    else:
        items = [{"requirement": "licence", "reason": "it is missing from the file"}]
        tools["ask"](items=items, message="Send the export licence, it is missing.")
    return Turn(reply="done")
"""
ROW: dict[str, Any] = {
    "prompt": "Deal with P-1.",
    "snapshot": {"parcels": [{"id": "P-1", "papers": [], "status": "open"}]},
    "gold": [{"at": 1, "decision": "ask", "unmet": ["licence"]}, {"decision": "release"}],
    "user": {
        "story": "You sent a lamp; its licence lies in your drawer.",
        "holds": {"licence": [{"collection": "parcels", "key": "P-1", "record": {"papers": ["licence"]}}]},
    },
}


async def test_a_user_is_played_marked_and_never_the_agents_failure(orchestrate: Orchestrate, tmp_path: Path) -> None:
    said = {"reply": "It was in my drawer.", "supplies": ["licence"], "out_of_scope": False}

    async def command(*arguments: str) -> Any:
        return await asyncio.to_thread(lambda: orchestrate(*arguments, cwd=tmp_path))

    strayed = {**said, "reply": "I sent no licence.", "out_of_scope": True}
    async with ModelEndpoint([completion(json.dumps(each)) for each in (said, strayed)]) as endpoint:
        (tmp_path / "evals").mkdir()
        (tmp_path / "evals" / "parcels.eval.py").write_text(PACK.replace("BASE_URL", endpoint.base_url))
        (tmp_path / "evals" / "parcels.jsonl").write_text(json.dumps({**ROW, "id": "lamp"}) + "\n")
        (tmp_path / "own_agent.py").write_text(AGENT)
        assert (await command("pack", "lint")).err == "1 pack, 1 assignment, 0 faults\n"
        played = await command("pack", "run", "--agent", "own_agent:clerk", "--json")
        broken = await command("pack", "run", "--agent", "own_agent:clerk", "--json")
    assert played.code == 0, played.err
    summary, rates = played.values
    assert (rates["deterministic"], rates["user"]) == (
        False,
        {"model": "user-m", "calls": 1, "gave_away": 0, "ended": 0},
    )
    replayed = await command("pack", "replay", summary["run"]["id"])
    assert (replayed.code, replayed.err) == (0, "1 attempt repeated, 0 diverged\n")
    assert (await command("rescore", summary["run"]["id"], "--json")).values[0]["changed"] == []
    summary, rates = broken.values
    assert (rates["attempts"], rates["graded"], rates["user"]["ended"]) == (1, 0, 1)
    (case,) = (await command("show", summary["run"]["id"], "--json")).values
    assert (case["status"], case["kind"], case["code"]) == ("errored", "authoring", "RESPONDER_OUT_OF_SCOPE")
