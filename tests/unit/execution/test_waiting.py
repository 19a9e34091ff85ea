"""A call that waits for a person, from the model to the assertions: what each turn and the whole session say of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from evalfleet.assertions.matchers import includes
from evalfleet.assertions.tools import event_match, tool_match
from evalfleet.model.tool import tool
from evalfleet.model.verdict import Verdict
from evalfleet.testing.model_endpoint import ModelEndpoint, completion, tool_call
from evalfleet_adapters.openai import OpenAIAdapter
from evalfleet_adapters.openai_options import OpenAIOptions

DELETED: list[str] = []


@tool
def delete(path: str) -> str:
    """Delete a file."""
    DELETED.append(path)
    return f"{path} is gone"


@asynccontextmanager
async def clerk(*script: Any) -> AsyncGenerator[OpenAIAdapter, None]:
    """A model that wants to delete a file, and its adapter, which asks first."""
    asks = completion("I need to delete it.", calls=[tool_call("delete", {"path": "/tmp/x"}, "c1")])
    async with ModelEndpoint([asks, *script]) as model:
        options = OpenAIOptions.model_validate({"base_url": model.base_url, "approve": ["delete"]})
        adapter = OpenAIAdapter("m", options, (delete,))
        yield adapter
        await adapter.close()


@pytest.fixture(autouse=True)
def nothing_deleted() -> None:
    DELETED.clear()


async def test_an_approved_call_is_pending_in_one_turn_completed_in_the_next_and_one_in_the_session(
    attempt: Any,
) -> None:
    async def body(t: Any) -> None:
        asked = await t.send("Clean up.")
        t.parked()
        request = t.require_input_request(
            action="delete", input={"path": includes("/tmp")}, options=["approve", "deny"]
        )
        asked.called_tool(tool_match("delete", status="pending"))
        assert DELETED == [] and request.input == {"path": "/tmp/x"}
        done = await t.respond("approve")
        done.succeeded()
        done.called_tool(tool_match("delete", input={"path": "/tmp/x"}, output=includes("gone"), status="completed"))
        t.called_tool(tool_match("delete").exactly(1))
        t.no_failed_actions()
        t.event_order("input.requested", event_match("operation.finished"), event_match("message", role="assistant"))
        t.check(done.reply, includes("done"))

    async with clerk("All done.") as adapter:
        evidence = await attempt(body, adapter)
    assert [row.holds for row in evidence.assertions] == [True] * 9, evidence.summary.message
    assert (evidence.summary.verdict, DELETED, evidence.diagnostics) == (Verdict.PASSED, ["/tmp/x"], ())


async def test_a_denied_call_is_rejected_and_did_not_fail(attempt: Any) -> None:
    async def body(t: Any) -> None:
        await t.send("Clean up.")
        done = await t.respond_all("deny")
        done.called_tool(tool_match("delete", status="rejected").exactly(1))
        done.succeeded()
        t.no_failed_actions()
        t.not_called_tool(tool_match("delete", status="completed"))

    async with clerk("Then not.") as adapter:
        evidence = await attempt(body, adapter)
    assert [row.holds for row in evidence.assertions] == [True] * 4, evidence.summary.message
    assert DELETED == []


async def test_a_turn_that_waits_has_not_succeeded(attempt: Any) -> None:
    async def body(t: Any) -> None:
        (await t.send("Clean up.")).succeeded()

    async with clerk() as adapter:
        assert (await attempt(body, adapter)).summary.verdict is Verdict.FAILED
