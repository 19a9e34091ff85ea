"""Attempts of a Task pack, run for real: what ends them, what is kept of them, and that no grader hides another."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from evalfleet.assertions.values import equals
from evalfleet.execution.attempt import AttemptControl
from evalfleet.execution.regrade import regrade
from evalfleet.model.coverage import COMPLETE_COVERAGE
from evalfleet.model.definition import AgentDefinition, SandboxSpec
from evalfleet.model.events import OperationFinished, OperationStarted, OperationStatus
from evalfleet.model.grading import Basis
from evalfleet.model.record import AttemptEvidence
from evalfleet.model.tool import ToolArgumentError, ToolRejected
from evalfleet.model.turn import Turn
from evalfleet.model.verdict import Verdict
from evalfleet.taskpacks.diff import Operation
from evalfleet.taskpacks.graders import SUFFICIENCY
from evalfleet.taskpacks.pack_run import RequestJudge, converse
from evalfleet.taskpacks.policy import Allowed
from evalfleet.testing.judge_endpoint import ruling
from evalfleet_adapters.python import PythonAdapter
from tests.unit.execution.test_gateways import Networked, Room, asked
from tests.unit.execution.test_judging import Court
from tests.unit.taskpacks.parcels import PACK, assignment, pack

ASK = {"items": [{"requirement": "licence", "reason": "it is missing"}], "message": "Send the licence, it is missing."}


async def clerk(turn: Any, ctx: Any) -> Turn:
    """Does what is right."""
    tools = {tool.name: tool for tool in ctx.tools}
    parcel = await tools["read"].call({"parcel": "P-1"})
    if "licence" in parcel["papers"]:
        await tools["decide"].call({"decision": "release"})
    else:
        await tools["ask"].call(ASK)
    return Turn(reply="done")


def results(found: AttemptEvidence) -> dict[str | None, str]:
    return {row.key: row.outcome.result.value for row in found.assertions}


async def test_a_right_attempt_passes_and_leaves_everything(attempt: Any) -> None:
    found = await attempt(PACK.run, clerk, row=assignment())
    assert found.summary.verdict is Verdict.PASSED
    keys = ["decision@1", "gap@1", "request@1", "decision", "gap", "state"]
    assert results(found) == dict.fromkeys(keys, "matched")
    evidence = found.attachments["taskpack"]
    assert {line["run_id"] for line in evidence["trace"]} == {"11"}
    assert [line["tool"] for line in evidence["trace"]] == ["read", "ask", "responder.reply", "read", "decide"]
    assert [point["said"] for point in evidence["points"]] == ["Deal with P-1.", "Here it is."]
    assert [(each["grader"], each["at"], each["status"]) for each in found.attachments["graders"]][-1] == (
        "request",
        None,
        "not_applicable",
    )


def plain_clerk(turn: Any, ctx: Any) -> Turn:
    """Does what is right, without a loop of its own."""
    tools = {tool.name: tool for tool in ctx.tools}
    with pytest.raises(ToolArgumentError, match="read: parcel: "):
        tools["read"]()
    with pytest.raises(TypeError, match="read takes 1 arguments, not 2"):
        tools["read"]("P-1", "P-2")
    if "licence" in tools["read"]("P-1")["papers"]:
        tools["decide"](decision="release")
    else:
        tools["ask"](**ASK)
    return Turn(reply="done")


async def test_plain_agents_call_the_tools_from_their_threads(attempt: Any) -> None:
    adapter = PythonAdapter(AgentDefinition(target=plain_clerk, coverage=COMPLETE_COVERAGE))
    try:
        found = await attempt(PACK.run, adapter, row=assignment())
    finally:
        await adapter.close()
    assert found.summary.verdict is Verdict.PASSED
    called = [line["tool"] for line in found.attachments["taskpack"]["trace"]]
    assert called == ["read", "read", "ask", "responder.reply", "read", "read", "decide"]


async def test_an_eval_looks_at_the_records_as_they_stand(attempt: Any, make_job: Any, make_services: Any) -> None:
    seen: list[Any] = []

    async def body(t: Any, row: Any) -> None:
        async with PACK.open(t, row) as work:
            seen.append(t.state)
            t.use_tools(work.world.tools)
            await t.send(row.prompt)
            seen.append(t.state)
            seen[1]["letters"].clear()
            t.check(len(t.state["letters"]), equals(1))
        t.check(t.state["parcels"]["P-1"]["status"], equals("open"))

    found = await attempt(body, clerk, row=assignment())
    assert found.summary.verdict is Verdict.PASSED
    assert seen[0] == {"letters": {}, "parcels": {"P-1": {"id": "P-1", "papers": ["invoice"], "status": "open"}}}
    again = await regrade(make_job(body, row=assignment()), make_services(), AttemptControl(), found)
    assert again.basis is Basis.KEPT


async def test_without_a_pack_there_are_no_records(attempt: Any) -> None:
    async def body(t: Any) -> None:
        assert t.state

    summary = (await attempt(body)).summary
    assert (summary.kind, summary.code) == ("authoring", "NO_STATE")


async def test_what_the_script_does_not_know_is_not_held_against_the_agent(
    attempt: Any, make_job: Any, make_services: Any
) -> None:
    silent = assignment(script=[{"id": "a", "asked": ["invoice"], "reply": "Here."}])
    found = await attempt(PACK.run, clerk, row=silent)
    assert (found.summary.verdict, found.summary.kind, found.summary.code) == (
        Verdict.ERRORED,
        "authoring",
        "RESPONDER_NO_RULE",
    )
    assert [line["tool"] for line in found.attachments["taskpack"]["trace"]] == ["read", "ask"]
    again = await regrade(make_job(PACK.run, row=silent), make_services(), AttemptControl(), found)
    assert (again.basis, again.evidence.summary.code) == (Basis.KEPT, "RESPONDER_NO_RULE"), "nor by graders of today"


async def test_an_agent_that_crashes_leaves_what_it_did(attempt: Any) -> None:
    async def crashing(turn: Any, ctx: Any) -> Turn:
        await clerk(turn, ctx)
        raise RuntimeError("crashed")

    found = await attempt(PACK.run, crashing, row=assignment())
    assert found.summary.verdict is Verdict.ERRORED
    assert [line["tool"] for line in found.attachments["taskpack"]["trace"]] == ["read", "ask"]


async def test_an_agent_out_of_time_leaves_what_it_did_and_whose_time_it_was(attempt: Any, blocked: Any) -> None:
    found = await attempt(PACK.run, blocked, row=assignment(), turn_timeout=0.3)
    assert (found.summary.verdict, found.summary.kind) == (Verdict.ERRORED, "deadline")
    assert [line["tool"] for line in found.attachments["taskpack"]["trace"]] == ["read", "ask"]


@pytest.fixture
def blocked() -> Callable[..., Any]:
    """An agent that does its work and then never answers."""

    async def run(turn: Any, ctx: Any) -> Turn:
        await clerk(turn, ctx)
        await ctx.clock.sleep(60)
        return Turn()

    return run


async def test_calls_that_no_tool_saw_are_in_the_trace(attempt: Any) -> None:
    async def lost(turn: Any, ctx: Any) -> Turn:
        events = (
            OperationStarted("1", "gone", {"a": 1}),
            OperationFinished("1", OperationStatus.FAILED, "no such tool"),
            OperationStarted("2", "read", raw_input='{"parcel": '),
            OperationFinished("2", OperationStatus.FAILED, "no JSON"),
        )
        return Turn(reply="lost", events=events)

    found = await attempt(PACK.run, lost, row=assignment())
    trace = found.attachments["taskpack"]["trace"]
    assert [(line["tool"], line["arguments"], line["evalfleet.error"]) for line in trace] == [
        ("gone", {"a": 1}, "UNKNOWN_TOOL"),
        ("read", {}, "INVALID_ARGUMENTS"),
    ]
    assert trace[1]["evalfleet.received"] == '{"parcel": '
    assert found.summary.verdict is Verdict.FAILED


async def test_an_agent_whose_tools_can_not_be_served_is_not_to_blame(
    attempt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "evalfleet.taskpacks.mcp_server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel.server", None)
    room = Room()

    async def caller(turn: Any, ctx: Any) -> Turn:
        assert await asked(room.opened[0][1], "/mcp") == 501
        return await clerk(turn, ctx)

    options = {"row": assignment(), "serves": ("/mcp",), "sandbox": (Networked(), SandboxSpec())}
    summary = (await attempt(PACK.run, caller, using={"gateway": room}, **options)).summary
    assert (summary.verdict, summary.kind, summary.code) == (Verdict.ERRORED, "authoring", "MISSING_EXTRA")
    quiet = (await attempt(PACK.run, clerk, using={"gateway": Room()}, **options)).summary
    assert quiet.verdict is Verdict.PASSED, "nobody asked"


async def test_what_an_agent_calls_once_all_is_over_changes_nothing(attempt: Any) -> None:
    held: list[Any] = []

    async def lingering(turn: Any, ctx: Any) -> Turn:
        held.extend(ctx.tools)
        return await clerk(turn, ctx)

    async def body(t: Any, row: Any) -> None:
        async with PACK.open(t, row) as work:
            evidence = await converse(t, work, row, PACK.reader, PACK.allowed(row))
            with pytest.raises(ToolRejected, match="the attempt is over"):
                await held[1].call(ASK)
            assert len(work.world.trace.calls) == len(evidence["trace"])

    found = await attempt(body, lingering, row=assignment(), allow_no_assertions=True)
    assert found.summary.code is None


async def test_a_grader_that_breaks_or_hangs_is_no_verdict_and_hides_none(attempt: Any) -> None:
    free = threading.Event()

    def hangs(seen: Any) -> Any:
        free.wait(30)

    def breaks(seen: Any) -> Any:
        raise KeyError("gone")

    own = pack(graders={**SUFFICIENCY, "gap": breaks, "mine": hangs})
    try:
        found = await attempt(own.run, clerk, row=assignment())
    finally:
        free.set()
    assert (found.summary.verdict, found.summary.kind) == (Verdict.ERRORED, "grader")
    assert results(found) == {
        "decision@1": "matched",
        "gap@1": "errored",
        "request@1": "matched",
        "mine@1": "errored",
        "decision": "matched",
        "gap": "errored",
        "mine": "errored",
        "state": "matched",
    }
    assert found.assertions[3].outcome.reason == "evaluator-error:grader (it took longer than 0.1 s)"


async def test_what_a_grader_could_not_say_is_graded_again_without_the_agent(
    attempt: Any, make_job: Any, make_services: Any
) -> None:
    def breaks(seen: Any) -> Any:
        raise KeyError("gone")

    recorded = await attempt(pack(graders={**SUFFICIENCY, "gap": breaks}).run, clerk, row=assignment())
    job = make_job(PACK.run, clerk, row=assignment())
    found = await regrade(job, make_services(), AttemptControl(), recorded)
    assert (recorded.summary.verdict, found.evidence.summary.verdict) == (Verdict.ERRORED, Verdict.PASSED)
    assert found.basis is Basis.REPLAYED
    assert found.evidence.attachments == recorded.attachments


async def test_a_result_whose_evidence_is_gone_stays_a_result(attempt: Any, make_job: Any, make_services: Any) -> None:
    recorded = await attempt(PACK.run, clerk, row=assignment())
    bare = replace(recorded, attachments={})
    for _ in range(2):
        job = make_job(PACK.run, clerk, row=assignment())
        found = await regrade(job, make_services(), AttemptControl(), bare)
        assert (found.basis, found.evidence.summary.verdict) == (Basis.KEPT, Verdict.PASSED)


async def test_new_gold_is_held_against_the_old_evidence(attempt: Any, make_job: Any, make_services: Any) -> None:
    recorded = await attempt(PACK.run, clerk, row=assignment())
    other = assignment(gold=[{"decision": "ask", "unmet": ["licence"]}])
    found = await regrade(make_job(PACK.run, clerk, row=other), make_services(), AttemptControl(), recorded)
    assert found.evidence.summary.verdict is Verdict.FAILED
    assert results(found.evidence) == {
        "decision": "mismatched",
        "gap": "mismatched",
        "request": "mismatched",
        "state": "matched",
    }


async def test_the_judge_of_an_eval_grades_the_request_where_a_pack_says_so(
    attempt: Any, make_job: Any, make_services: Any
) -> None:
    allowed = [Allowed(collection="letters", operation=Operation.ADDED)]
    own = pack(request_judge=RequestJudge(rubric="Names each gap and says why.", minimum=0.6), policy=allowed)
    single = assignment(gold=[{"decision": "ask", "unmet": ["licence"]}], script=[])
    for agent, score, verdict in ((clerk, 0.9, Verdict.PASSED), (clerk, 0.5, Verdict.FAILED)):
        court = Court(attempt, make_job, make_services)
        found = await court(own.run, [ruling(score)], adapter=agent, row=single)
        (asked,) = [row for row in found.assertions if row.key == "request"]
        assert (asked.name, asked.label, asked.outcome.measurement) == ("judge.rubric", "request", score)
        assert (found.attachments["graders"][2]["status"], found.assertions[0].key) == ("pass", "decision")
        question = court.bodies[0]["messages"][1]["content"]
        assert "Send the licence, it is missing." in question and "Names each gap" in question
        assert results(found)["gap"] == "matched"
        assert (found.summary.verdict, results(found)["state"]) == (verdict, "matched")


async def test_a_judge_that_gives_no_answer_hides_no_other_grader(
    attempt: Any, make_job: Any, make_services: Any
) -> None:
    own = pack(request_judge=RequestJudge(rubric="Names each gap and says why."), policy=[])
    single = assignment(gold=[{"decision": "ask", "unmet": ["licence"]}], script=[])
    found = await Court(attempt, make_job, make_services)(own.run, [], adapter=clerk, row=single)
    assert results(found) == {
        "decision": "matched",
        "gap": "matched",
        "request": "unavailable",
        "state": "mismatched",
    }
    assert (found.summary.verdict, found.summary.kind) == (Verdict.ERRORED, "judge")
