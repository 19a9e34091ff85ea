"""What a body gives to its agent, and the documents that it keeps with the attempt."""

from __future__ import annotations

from typing import Any

import pytest

from evalfleet.assertions.matchers import equals
from evalfleet.execution.attempt import AttemptControl
from evalfleet.execution.regrade import regrade
from evalfleet.model.grading import Basis
from evalfleet.model.tool import tool
from evalfleet.model.turn import Turn
from evalfleet.model.verdict import Verdict


@tool
def look(place: str) -> str:
    """Look somewhere."""
    return f"saw {place}"


async def looks(turn: Any, ctx: Any) -> Turn:
    """An agent that uses the first tool it is given."""
    return Turn(reply=await ctx.tools[0].call({"place": turn.text}) if ctx.tools else "no tools")


async def test_an_agent_has_the_tools_from_the_next_send_on(attempt: Any) -> None:
    async def body(t: Any) -> None:
        t.check((await t.send("here")).reply, equals("no tools"))
        t.use_tools([look])
        t.check((await t.send("there")).reply, equals("saw there"))
        t.check((await t.new_session().send("everywhere")).reply, equals("saw everywhere"))
        t.use_tools([])
        t.check((await t.send("here")).reply, equals("no tools"))

    found = await attempt(body, looks)
    assert (found.summary.verdict, found.summary.assertions) == (Verdict.PASSED, 4)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (lambda t: t.use_tools([print]), "INVALID_TOOLS"),
        (lambda t: t.use_tools([look, look]), "INVALID_TOOLS"),
        (lambda t: t.attach("a b", 1), "INVALID_ATTACHMENT"),
        (lambda t: t.attach("a", {1: 2}), "INVALID_ATTACHMENT"),
        (lambda t: t.attach("a", object()), "INVALID_ATTACHMENT"),
        (lambda t: t.attach("a", "x" * 8_000_000), "INVALID_ATTACHMENT"),
    ],
)
async def test_what_is_no_tool_and_no_document_is_the_authors_mistake(attempt: Any, wrong: Any, code: str) -> None:
    found = await attempt(lambda t: wrong(t))
    assert (found.summary.kind, found.summary.code) == ("authoring", code)


async def test_documents_are_kept_as_they_were_given(attempt: Any) -> None:
    async def body(t: Any) -> None:
        value = {"trace": [1, None, 0.5]}
        t.attach("trace", value)
        value["trace"].append("later")
        t.attach("other", 1)
        t.attach("other", [2])
        assert t.recorded("trace") is None

    found = await attempt(body, allow_no_assertions=True)
    assert found.attachments == {"trace": {"trace": [1, None, 0.5]}, "other": [2]}


async def test_an_attempt_that_fails_keeps_what_was_attached(attempt: Any) -> None:
    async def body(t: Any) -> None:
        t.attach("trace", [1])
        raise RuntimeError("broken")

    found = await attempt(body)
    assert (found.summary.verdict, found.attachments) == (Verdict.ERRORED, {"trace": [1]})


async def test_a_replay_reads_what_was_attached_and_keeps_it(attempt: Any, make_job: Any, make_services: Any) -> None:
    async def live(t: Any) -> None:
        await t.send("one")
        t.attach("trace", [1, 2])
        t.check(1, equals(2))

    async def edited(t: Any) -> None:
        t.check(t.recorded("trace"), equals([1, 2]))
        t.attach("trace", ["another"])

    recorded = await attempt(live)
    found = await regrade(make_job(edited), make_services(), AttemptControl(), recorded)
    assert (recorded.summary.verdict, found.evidence.summary.verdict) == (Verdict.FAILED, Verdict.PASSED)
    assert found.evidence.attachments == {"trace": [1, 2]}


async def test_a_replay_can_not_be_decided_by_what_never_was_attached(
    attempt: Any, make_job: Any, make_services: Any
) -> None:
    async def live(t: Any) -> None:
        t.check(1, equals(1))

    async def edited(t: Any) -> None:
        t.check(len(t.recorded("trace")), equals(2))

    recorded = await attempt(live)
    found = await regrade(make_job(edited), make_services(), AttemptControl(), recorded)
    assert (found.basis, found.evidence) == (Basis.KEPT, recorded)
    assert found.reason == "not-recorded: the test body decides by what it attached"
