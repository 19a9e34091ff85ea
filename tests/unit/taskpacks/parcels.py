"""A small pack for tests: one kind of record, a tool that asks and one that decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from evalfleet.taskpacks.assignment import Assignment
from evalfleet.taskpacks.cases import Cases
from evalfleet.taskpacks.diff import Operation
from evalfleet.taskpacks.pack import TaskPack
from evalfleet.taskpacks.pack_tool import pack_tool
from evalfleet.taskpacks.policy import Allowed
from evalfleet.taskpacks.reader import CallReader
from evalfleet.taskpacks.state import Collection


@pack_tool
def read(cases: Cases, parcel: str) -> dict[str, Any]:
    return cases.need("parcels", parcel)


@pack_tool(mutating=True)
def ask(cases: Cases, items: list[dict[str, str]], message: str) -> str:
    return cases.add("letters", {"id": cases.next_id("L"), "text": message})["id"]


@pack_tool(mutating=True)
def decide(cases: Cases, decision: str) -> str:
    return cases.update("parcels", "P-1", status=decision)["status"]


PACK = TaskPack(
    name="parcels",
    collections=[Collection("parcels"), Collection("letters")],
    tools=[read, ask, decide],
    policy=[
        Allowed(collection="parcels", operation=Operation.UPDATED, fields=frozenset({"status"}), min=1),
        Allowed(collection="letters", operation=Operation.ADDED),
    ],
    requirements={"invoice": ("commercial invoice",), "licence": ("export licence",)},
    decisions=("release", "ask"),
    reader=CallReader(decides="decide", requests="ask", asking="ask"),
)
ROW: dict[str, Any] = {
    "id": "one",
    "prompt": "Deal with P-1.",
    "snapshot": {"parcels": [{"id": "P-1", "papers": ["invoice"], "status": "open"}]},
    "gold": [{"at": 1, "decision": "ask", "unmet": ["licence"]}, {"decision": "release"}],
    "script": [
        {
            "id": "brings",
            "asked": ["licence"],
            "reply": "Here it is.",
            "supplies": ["licence"],
            "writes": [{"collection": "parcels", "key": "P-1", "record": {"papers": ["invoice", "licence"]}}],
        },
        {"id": "end", "fallback": True, "reply": "That is all."},
    ],
}


def assignment(**changes: Any) -> Assignment:
    return Assignment.model_validate({**ROW, **changes})


def pack(**changes: Any) -> TaskPack:
    return replace(PACK, **changes)
