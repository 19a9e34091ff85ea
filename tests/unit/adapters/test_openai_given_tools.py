"""Tools that an eval gives to the agent of a model are offered, run and recorded like the arm's own, by every API."""

from __future__ import annotations

import pytest

from evalfleet.errors import ConfigurationError
from evalfleet.model.events import InputRequested, OperationFinished, OperationStatus
from evalfleet.model.tool import tool
from evalfleet.model.turn import TurnInput, TurnStatus
from evalfleet.ports import Adapter
from evalfleet.testing.adapter_context import FakeContext
from evalfleet.testing.model_endpoint import ModelEndpoint, completion, tool_call
from evalfleet_adapters.anthropic import AnthropicAdapter
from evalfleet_adapters.anthropic_options import AnthropicOptions
from evalfleet_adapters.openai import OpenAIAdapter, OpenAIOptions


@tool
async def look(place: str) -> str:
    """Look somewhere."""
    return f"saw {place}"


@tool
def own() -> str:
    """The arm's own."""
    return "own"


@tool(needs_approval=True)
def careful() -> str:
    return "done"


def adapter(model: ModelEndpoint, api: str = "chat") -> Adapter:
    if api == "messages":
        return AnthropicAdapter("small", AnthropicOptions.model_validate({"base_url": model.url}), (own,))
    return OpenAIAdapter("small", OpenAIOptions.model_validate({"base_url": model.base_url, "api": api}), (own,))


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_they_are_offered_beside_the_arms_own_and_run(api: str) -> None:
    script = [
        completion(None, calls=[tool_call("look", {"place": "here"}, "1")]),
        completion("fine"),
        completion("again"),
    ]
    async with ModelEndpoint(script) as model:
        chat = adapter(model, api)
        ctx = FakeContext()
        session = await chat.open(ctx)
        ctx.tools = [look]
        turn = await session.send(TurnInput("look"), ctx)
        ctx.tools = []
        await session.send(TurnInput("and now"), ctx)
        await chat.close()
        offered = [[each.get("function", each)["name"] for each in request["tools"]] for request in model.bodies]
    assert offered == [["own", "look"], ["own", "look"], ["own"]]
    finished = [event for event in turn.events if isinstance(event, OperationFinished)]
    assert finished == [OperationFinished("1", OperationStatus.COMPLETED, "saw here")]


async def test_one_that_needs_approval_waits() -> None:
    async with ModelEndpoint([completion(None, calls=[tool_call("careful", {}, "1")])]) as model:
        chat = adapter(model)
        ctx = FakeContext()
        ctx.tools = [careful]
        turn = await (await chat.open(ctx)).send(TurnInput("do"), ctx)
        await chat.close()
    assert turn.status is TurnStatus.WAITING
    assert [event.request_id for event in turn.events if isinstance(event, InputRequested)] == ["1"]


async def test_one_named_like_the_arms_own_is_refused() -> None:
    async with ModelEndpoint([]) as model:
        chat = adapter(model)
        ctx = FakeContext()
        ctx.tools = [own]
        session = await chat.open(ctx)
        with pytest.raises(ConfigurationError, match="two tools are named 'own'"):
            await session.send(TurnInput("do"), ctx)
        await chat.close()
