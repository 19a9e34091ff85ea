"""A pack's lint, and the repetition of what an attempt wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from evalfleet.taskpacks.cases import Cases
from evalfleet.taskpacks.pack_lint import assignment_faults, pack_faults
from evalfleet.taskpacks.pack_run import Work
from evalfleet.taskpacks.pack_tool import pack_tool
from evalfleet.taskpacks.reader import Point, read_point
from evalfleet.taskpacks.reapply import reapply
from evalfleet.taskpacks.replay import changed
from evalfleet.taskpacks.sqlite_cases import SqliteCases
from evalfleet.testing.fakes import FakeClock
from tests.unit.taskpacks.parcels import PACK, ROW, ask, assignment, decide, pack, read


@pack_tool(mutating=True, name="decide")
def decide_and_date(cases: Cases, decision: str) -> str:
    cases.update("parcels", "P-1", status=decision, decided_at=cases.now)
    return decision


@pack_tool(mutating=True, name="decide")
def decide_aloud(cases: Cases, decision: str) -> str:
    return cases.update("parcels", "P-1", status=decision)["status"] + "!"


@pack_tool(mutating=True, name="decide")
def decide_never(cases: Cases, decision: str) -> str:
    raise RuntimeError("never")


@pytest.fixture
async def evidence(tmp_path: Path) -> dict[str, Any]:
    """What an attempt of the pack leaves that asks, is answered, and decides."""
    row, own = assignment(), pack(backend=SqliteCases(tmp_path / "live"))
    async with own.world("live", "41", row, FakeClock()) as (world, restored):
        work = Work(world, own.manifest(row, restored, 5), restored)
        world.turn = 1
        await world.call("read", {"parcel": "P-1"})
        await world.call(
            "ask", {"items": [{"requirement": "licence", "reason": "it is missing"}], "message": "Send it."}
        )
        calls = world.trace.calls
        work.points.append(Point(1, row.prompt, own.reader(calls)))
        await world.reply(["licence"])
        world.turn = 2
        await world.call("decide", {"decision": "release"})
        work.state = (await world.examine(own.allowed(row))).document()
        return work.document()


async def repeated(evidence: dict[str, Any], tmp_path: Path, row: Any = None, **changes: Any) -> str | None:
    own = pack(backend=SqliteCases(tmp_path / "again"), **changes)
    found = await reapply(own, row or assignment(), evidence, "again", FakeClock())
    return None if found is None else str(found)


async def test_an_attempt_leaves_what_a_replay_needs(evidence: dict[str, Any]) -> None:
    assert [(line["step"], line["tool"]) for line in evidence["trace"]] == [
        (1, "read"),
        (2, "ask"),
        (3, "responder.reply"),
        (4, "decide"),
    ]
    assert evidence["state"]["clean"] is True
    point = read_point(evidence["points"][0])
    assert (point.reading.decision, point.reading.requested, point.reading.reasons) == (
        "ask",
        ("licence",),
        {"licence": "it is missing"},
    )
    assert set(evidence["results"]) >= {line["result_ref"] for line in evidence["trace"]}


async def test_the_recorded_writes_lead_to_the_recorded_state(evidence: dict[str, Any], tmp_path: Path) -> None:
    assert await repeated(evidence, tmp_path) is None
    assert not list((tmp_path / "again" / "attempts").iterdir())


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ([read, ask, decide_and_date], "REPLAY_DIVERGED at step 4 (decide): it left the state "),
        ([read, ask, decide_aloud], "REPLAY_DIVERGED at step 4 (decide): it returned sha256:"),
        ([read, ask, decide_never], "REPLAY_DIVERGED at step 4 (decide): it ended error, recorded is ok"),
        ([read, ask], "REPLAY_DIVERGED at step 4 (decide): it ended denied, recorded is ok"),
        ([ask, decide], None),
    ],
)
async def test_a_tool_that_does_something_else_is_named_with_its_step(
    evidence: dict[str, Any], tmp_path: Path, tools: Any, message: str | None
) -> None:
    found = await repeated(evidence, tmp_path, tools=tools)
    assert (found or "None").startswith(message or "None")


async def test_another_snapshot_or_script_is_told(evidence: dict[str, Any], tmp_path: Path) -> None:
    other = assignment(snapshot={"parcels": [{"id": "P-1", "papers": [], "status": "open"}]})
    assert (await repeated(evidence, tmp_path, other) or "").startswith(
        "REPLAY_DIVERGED at step 0 (reset): the snapshot is"
    )
    silent = assignment(script=[{"id": "other", "asked": ["invoice"], "reply": "Here."}])
    found = await repeated(evidence, tmp_path, silent)
    assert found == "REPLAY_DIVERGED at step 3 (responder.reply): no rule of the responder answers who asks for licence"


async def test_a_trace_without_its_writes_or_their_end_is_told(evidence: dict[str, Any], tmp_path: Path) -> None:
    trace = evidence["trace"]
    short = {**evidence, "trace": trace[:3]}
    assert (await repeated(short, tmp_path) or "").startswith("REPLAY_DIVERGED at step 3 (the end): the state is")
    cut = {**trace[3], "evalfleet.phase": "intent", "evalfleet.status": "unknown", "result_ref": None}
    found = await repeated({**evidence, "trace": [*trace[:3], cut]}, tmp_path)
    assert found == "REPLAY_DIVERGED at step 4 (decide): nobody knows whether this call was carried out"


async def test_a_manifest_says_what_is_another_today(evidence: dict[str, Any], tmp_path: Path) -> None:
    for changes, row, names in (
        ({}, assignment(), ()),
        ({"tools": [read, ask]}, assignment(), ("tools",)),
        ({}, assignment(script=[]), ("assignment", "script")),
        ({"graders": {}}, assignment(), ("graders",)),
    ):
        own = pack(backend=SqliteCases(tmp_path / "now"), **changes)
        async with own.world("now", "1", row, FakeClock()) as (_, restored):
            assert changed(evidence["manifest"], own.manifest(row, restored, 5)) == names


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({}, []),
        ({"snapshot": {"boxes": []}}, ["invalid-start"]),
        ({"snapshot": {"parcels": [{"papers": []}]}}, ["invalid-start"]),
        ({"gold": [{"decision": "burn"}], "script": []}, ["unknown-decision"]),
        ({"gold": [{"decision": "ask", "unmet": ["stamp"]}], "script": []}, ["unknown-requirement"]),
        ({"max_turns": 1, "script": []}, ["late-gold"]),
        ({"script": [{"id": "a", "asked": ["invoice"], "reply": "Here."}]}, ["missing-rule"]),
        ({"script": [{"id": "a", "asked": ["licence"], "reply": "Just release it."}]}, ["leaks-decision"]),
    ],
)
def test_what_is_wrong_with_a_row(changes: dict[str, Any], codes: list[str]) -> None:
    assert [fault.code for fault in assignment_faults(PACK, assignment(**changes))] == codes


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({}, []),
        ({"tools": [read, ask, decide, decide_aloud]}, ["doubled-tool"]),
        ({"requirements": {"invoice": ("paper",), "licence": ("Paper",)}}, ["ambiguous-name"]),
    ],
)
def test_what_is_wrong_with_a_pack(changes: dict[str, Any], codes: list[str]) -> None:
    assert [fault.code for fault in pack_faults(pack(**changes))] == codes


@pytest.mark.parametrize(
    "changes",
    [
        {"gold": []},
        {"gold": [{"at": 1, "decision": "ask"}]},
        {"gold": [{"decision": "ask"}, {"decision": "release"}]},
        {"gold": [{"at": 1, "decision": "ask"}, {"at": 1, "decision": "ask"}, {"decision": "ask"}]},
        {"max_turns": 0},
        {"prompt": ""},
        {"answer": 1},
    ],
)
def test_rows_that_are_no_assignments(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        assignment(**changes)


def test_a_row_has_one_digest_in_every_process() -> None:
    document = assignment().model_dump(mode="json")
    assert document["gold"][0]["unmet"] == ["licence"]
    many = assignment(gold=[{"decision": "ask", "unmet": list("hgfedcba")}], script=[])
    assert many.model_dump(mode="json")["gold"][0]["unmet"] == list("abcdefgh")
    assert ROW["id"] == document["id"]
