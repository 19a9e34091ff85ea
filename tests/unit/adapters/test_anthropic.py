"""The `anthropic` adapter against a scripted model behind real HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from evalfleet.errors import Acceptance, ConfigurationError, FailureKind, SendFailure
from evalfleet.grading.prices import PriceList
from evalfleet.model.coverage import Channel, complete, partial
from evalfleet.model.events import (
    ErrorReported,
    InputRequested,
    OperationFinished,
    OperationStarted,
    OperationStatus,
    Thinking,
    Unrecognised,
)
from evalfleet.model.experiment import Price
from evalfleet.model.model_call import Account, CallFate
from evalfleet.model.turn import InputFile, InputResponse, Turn, TurnInput, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.ports import AdapterFactory, ArmSettings
from evalfleet.testing.adapter_context import FakeContext, FakeModelCalls, FakeSecrets
from evalfleet.testing.http_endpoint import Reply, json_reply
from evalfleet.testing.messages_dialect import message_events, message_object
from evalfleet.testing.model_endpoint import ModelEndpoint, Scripted, completion
from evalfleet.testing.model_turn import ModelTurn, ScriptedCall, ScriptedUsage
from evalfleet.testing.responses_dialect import named_events
from evalfleet_adapters.anthropic import factory
from evalfleet_adapters.anthropic_options import AnthropicOptions
from evalfleet_adapters.messages_wire import OUTPUT_TOOL, joined
from tests.unit.adapters.test_openai import failure, said, say

ONE_CALL = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=0, cache_write_tokens=0, requests=1)
BUSY = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


@asynccontextmanager
async def serving(script: Iterable[Scripted] = (), **options: Any) -> Any:
    async with ModelEndpoint(script) as model:
        adapter = factory.build(arm({"base_url": model.url, **options}))
        try:
            yield adapter, model
        finally:
            await adapter.close()


def arm(options: dict[str, Any], model: str | None = "small") -> ArmSettings:
    given = AnthropicOptions.model_validate(options)
    return ArmSettings(name="a", model=model, flags={}, options=given, project=Path())


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request: pytest.FixtureRequest) -> bool:
    return request.param


def text(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": each} for each in texts]


def message(content: list[Any], **fields: Any) -> Reply:
    return json_reply({**message_object(ModelTurn()), "content": content, **fields})


def test_the_factory_is_one() -> None:
    assert isinstance(factory, AdapterFactory)


async def test_the_conversation_goes_back_with_thinking_and_its_signature(stream: bool) -> None:
    script = [ModelTurn(text="first", thinking="Hm."), "second"]
    options = {
        "stream": stream, "system": "Be brief.", "temperature": 0, "max_tokens": 9, "cache": "1h",
        "betas": ["one", "two"], "api_key_env": "KEY", "params": {"thinking": {"type": "adaptive"}},
    }  # fmt: skip
    ctx = FakeContext()
    ctx.secrets = FakeSecrets({"KEY": "sk-ant\n"})
    async with serving(script, **options) as (adapter, model):
        first, second = await say(adapter, "one", "two", ctx=ctx)
    assert first == Turn(events=(Thinking("Hm."), said("first")), usage=ONE_CALL)
    assert second.events == (said("second"),)
    headers = model.requests[0].headers
    assert (headers["x-api-key"], headers["anthropic-version"]) == ("sk-ant", "2023-06-01")
    assert (headers["anthropic-beta"], "authorization" in headers) == ("one,two", False)
    fixed = {
        "model": "small", "max_tokens": 9, "temperature": 0, "system": "Be brief.", "thinking": {"type": "adaptive"},
        "cache_control": {"type": "ephemeral", "ttl": "1h"},
    } | ({"stream": True} if stream else {})  # fmt: skip
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "sealed"}
    assert model.bodies == [
        {**fixed, "messages": [{"role": "user", "content": text("one")}]},
        {**fixed, "messages": [
            {"role": "user", "content": text("one")},
            {"role": "assistant", "content": [thought, *text("first")]},
            {"role": "user", "content": text("two")},
        ]},
    ]  # fmt: skip


async def test_a_gateway_may_want_a_bearer_token() -> None:
    ctx = FakeContext()
    ctx.secrets = FakeSecrets({"KEY": "k"})
    async with serving(["x"], api_key_env="KEY", key_header="authorization") as (adapter, model):
        await say(adapter, "x", ctx=ctx)
    assert model.requests[0].headers["authorization"] == "Bearer k"
    assert "x-api-key" not in model.requests[0].headers


async def test_a_tool_loop_answers_all_calls_in_one_message(project: Path, stream: bool) -> None:
    calls = (
        ScriptedCall("add", {"left": 9007199254740993, "right": 0}, "a"), ScriptedCall("unlucky", {}, "b"),
        ScriptedCall("nobody", {}, "c"),
    )  # fmt: skip
    script = [ModelTurn(text="Adding.", calls=calls), "3"]
    tools = ["my_agents:add", "my_agents:unlucky"]
    async with serving(script, stream=stream, tools=tools) as (adapter, model):
        (turn,) = await say(adapter, "x")
    assert turn.events[:2] == (said("Adding."), OperationStarted("a", "add", {"left": 9007199254740993, "right": 0}))
    ends = {e.operation_id: e.status for e in turn.events if isinstance(e, OperationFinished)}
    assert ends == {"a": OperationStatus.COMPLETED, "b": OperationStatus.FAILED, "c": OperationStatus.FAILED}
    assert (turn.status, turn.usage) == (TurnStatus.COMPLETED, ONE_CALL + ONE_CALL)
    roles = [said["role"] for said in model.bodies[1]["messages"]]
    assert roles == ["user", "assistant", "user"]
    results = model.bodies[1]["messages"][2]["content"]
    assert [(block["tool_use_id"], block.get("is_error")) for block in results] == [
        ("a", None),
        ("b", True),
        ("c", True),
    ]
    assert results[0]["content"] == "9007199254740993"
    offered = model.bodies[0]["tools"][0]
    assert (offered["name"], offered["input_schema"]["type"]) == ("add", "object")


async def test_calls_that_wait_are_answered_before_anything_else_is_said(project: Path, stream: bool) -> None:
    calls = (ScriptedCall("add", {"left": 1, "right": 2}, "a"), ScriptedCall("slow_add", {"left": 3, "right": 4}, "b"))
    script = [ModelTurn(calls=calls), "never mind"]
    tools = ["my_agents:add", "my_agents:slow_add"]
    async with serving(script, stream=stream, tools=tools, approve=["add"]) as (adapter, model):
        parked, done = await say(adapter, "x", "stop it")
    assert parked.status is TurnStatus.WAITING
    assert isinstance(parked.events[-1], InputRequested)
    assert done.events[0] == OperationFinished("a", OperationStatus.REJECTED, "The call was denied.")
    last = model.bodies[1]["messages"][-1]
    assert [block["type"] for block in last["content"]] == ["tool_result", "tool_result", "text"]
    assert [block.get("tool_use_id") for block in last["content"]] == ["b", "a", None]


async def test_an_allowed_call_goes_on(project: Path) -> None:
    script = [ModelTurn(calls=(ScriptedCall("add", {"left": 1, "right": 2}, "a"),)), "3"]
    async with serving(script, tools=["my_agents:add"], approve=["add"]) as (adapter, _):
        _, done = await say(adapter, "x", TurnInput("approve", responses=(InputResponse("a", option_id="approve"),)))
    assert done.events == (OperationFinished("a", OperationStatus.COMPLETED, 3), said("3"))


def test_results_stand_before_what_is_said() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": "1"}
    conversation = [{"role": "user", "content": text("x")}, {"role": "user", "content": [result]}]
    assert joined(conversation) == [{"role": "user", "content": [result, *text("x")]}]
    assert conversation[0]["content"] == text("x"), "the conversation itself was changed"


REFUSED = {"type": "refusal", "category": "cyber", "explanation": "No."}


@pytest.mark.parametrize(
    ("fields", "status", "events"),
    [
        ({"stop_reason": "end_turn"}, TurnStatus.COMPLETED, ()),
        ({"stop_reason": "stop_sequence"}, TurnStatus.COMPLETED, ()),
        ({"stop_reason": "max_tokens"}, TurnStatus.TRUNCATED, ()),
        ({"stop_reason": "model_context_window_exceeded"}, TurnStatus.TRUNCATED, ()),
        ({"stop_reason": "refusal", "stop_details": REFUSED}, TurnStatus.FAILED,
         (ErrorReported("the provider refused to go on: cyber: No."),)),
        ({"stop_reason": "refusal"}, TurnStatus.FAILED, (ErrorReported("the provider refused to go on"),)),
        ({"stop_reason": "tired"}, TurnStatus.COMPLETED, (Unrecognised("stop_reason", "tired"),)),
    ],
)  # fmt: skip
async def test_why_the_model_stopped_is_the_turns_status(fields: Any, status: TurnStatus, events: Any) -> None:
    async with serving([message(text("x"), **fields)]) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert (turn.status, turn.events) == (status, (said("x"), *events))
    assert (Channel.STATUS in turn.coverage) is (fields["stop_reason"] == "tired")


SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "web_search_result"}]}
UNAVAILABLE = {"type": "web_search_tool_result_error", "error_code": "unavailable"}


async def test_an_answer_that_was_paused_goes_on_by_itself(stream: bool) -> None:
    script = [message([SEARCH], stop_reason="pause_turn"), message([FOUND, *text("It is q.")], stop_reason="end_turn")]
    async with serving(script, stream=stream, params={"tools": [{"type": "web_search_20250305"}]}) as (adapter, model):
        (turn,) = await say(adapter, "x")
    assert turn.events == (
        OperationStarted("s1", "web_search", {"query": "q"}),
        OperationFinished("s1", OperationStatus.COMPLETED, FOUND["content"]),
        said("It is q."),
    )
    assert model.bodies[1]["messages"][1] == {"role": "assistant", "content": [SEARCH]}
    assert turn.usage == ONE_CALL + ONE_CALL


async def test_an_answer_that_is_paused_for_ever_ends() -> None:
    script = [message([SEARCH], stop_reason="pause_turn")] * 9
    async with serving(script, max_tool_rounds=2) as (adapter, model):
        (turn,) = await say(adapter, "x")
        assert len(model.requests) == 3
    assert turn.status is TurnStatus.FAILED


@pytest.mark.parametrize(
    ("blocks", "events"),
    [
        ([SEARCH, {**FOUND, "content": UNAVAILABLE}],
         [OperationStarted("s1", "web_search", {"query": "q"}),
          OperationFinished("s1", OperationStatus.FAILED, UNAVAILABLE)]),
        ([{"type": "mcp_tool_use", "id": "m1", "name": "buy", "input": {}, "server_name": "shop"},
          {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": True, "content": text("no")}],
         [OperationStarted("m1", "buy", {}), OperationFinished("m1", OperationStatus.FAILED, text("no"))]),
        ([FOUND], [Unrecognised("operation without a start", {"id": "s1", "output": FOUND["content"]})]),
        ([{"type": "telepathy", "said": 1}], [Unrecognised("content.telepathy", {"type": "telepathy", "said": 1})]),
    ],
)  # fmt: skip
async def test_what_the_provider_runs_is_shown_and_makes_actions_partial(blocks: Any, events: Any) -> None:
    async with serving([message([*blocks, *text("x")]), "y"]) as (adapter, model):
        first, _ = await say(adapter, "one", "two")
    assert first.events == (*events, said("x"))
    assert (Channel.ACTIONS in first.coverage) is (blocks != [FOUND])
    assert model.bodies[1]["messages"][1]["content"] == [*blocks, *text("x")]


async def test_an_03_a_wholly_empty_stream_is_an_outage_unless_it_is_accepted() -> None:
    empty = ModelTurn(usage=ScriptedUsage(input=9, output=0))
    caught, _ = await failure(serving([empty], stream=True))
    assert caught.code == "EMPTY_RESPONSE"
    assert caught.partial is not None
    assert caught.partial.usage == Usage(
        input_tokens=9, output_tokens=0, cache_read_tokens=0, cache_write_tokens=0, requests=1
    )
    async with serving([empty, "y"], stream=True, empty_reply="accept") as (adapter, model):
        first, _ = await say(adapter, "one", "two")
    assert (first.status, first.events) == (TurnStatus.COMPLETED, ())
    assert model.bodies[1]["messages"] == [{"role": "user", "content": text("one", "two")}]


async def test_an_04_cached_tokens_are_no_input(stream: bool) -> None:
    spent = ScriptedUsage(input=5, cache_write=10_000, cache_read=40_000, output=300)
    async with serving([ModelTurn(text="x", usage=spent)], stream=stream) as (adapter, _):
        (turn,) = await say(adapter, "x")
    usage = turn.usage
    assert usage == Usage(
        input_tokens=5, output_tokens=300, cache_read_tokens=40_000, cache_write_tokens=10_000, requests=1
    )
    price = Price(input=3.0, output=15.0, cache_read=0.30, cache_write=3.75)
    assert PriceList({"small": price})("small", usage) == pytest.approx(0.054015, abs=1e-9)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BUSY, "PROVIDER_UNAVAILABLE"),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}, "RATE_LIMITED"),
        ({"type": "error", "error": {"type": "api_error", "message": "boom"}}, "PROVIDER_ERROR"),
    ],
)
async def test_an_error_in_the_stream_keeps_what_came(error: Any, code: str) -> None:
    begun = message_events(ModelTurn(text="half an answer of some length"))[:4]
    caught, made = await failure(serving([named_events([*begun, error])], stream=True))
    assert (caught.kind, caught.code, caught.acceptance) == (FailureKind.PROVIDER, code, Acceptance.STARTED)
    assert (made, caught.partial and caught.partial.events) == (1, (said("half an answer o"),))


async def test_an_overloaded_provider_is_asked_again_by_us_alone() -> None:
    ctx = FakeContext()
    calls = FakeModelCalls()
    ctx.calls = calls
    headers = {"retry-after": "0"}
    async with serving([json_reply(BUSY, 529, headers), completion("hi")], max_tokens=77) as (adapter, model):
        (turn,) = await say(adapter, "x", ctx=ctx)
        account = Account(provider="anthropic", base_url=model.url, key=None, model="small")
    assert turn.events == (said("hi"),)
    assert [(call.account, call.output_limit) for call, _ in calls.made] == [(account, 77)] * 2
    assert [end and end.fate for _, end in calls.made] == [CallFate.THROTTLED, CallFate.ANSWERED]


async def test_files_are_blocks_and_others_are_refused() -> None:
    files = (
        InputFile("a.png", "image/png", b"1"), InputFile("a.pdf", "application/pdf", b"2"),
        InputFile("a.csv", "text/csv", b"x,y"),
    )  # fmt: skip
    async with serving(["ok"]) as (adapter, model):
        await say(adapter, TurnInput("look", files=files))
        with pytest.raises(SendFailure, match=r"a\.tiff: the API takes no image/tiff") as caught:
            await say(adapter, TurnInput("look", files=(InputFile("a.tiff", "image/tiff", b"1"),)))
    assert (caught.value.code, caught.value.acceptance) == ("INPUT_UNSUPPORTED", Acceptance.REJECTED)
    assert model.bodies[0]["messages"][0]["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "MQ=="}},
        {"type": "document", "title": "a.pdf",
         "source": {"type": "base64", "media_type": "application/pdf", "data": "Mg=="}},
        {"type": "document", "title": "a.csv", "source": {"type": "text", "media_type": "text/plain", "data": "x,y"}},
        *text("look"),
    ]  # fmt: skip


async def test_structured_output_by_format() -> None:
    schema = {"type": "object"}
    options = {"params": {"output_config": {"effort": "low"}}}
    async with serving(['{"n": 9007199254740993}'], **options) as (adapter, model):
        (turn,) = await say(adapter, TurnInput("x", output_schema=schema))
    assert turn.data == {"n": 9007199254740993}
    assert model.bodies[0]["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": schema}}


async def test_structured_output_by_a_tool_is_a_reply_and_no_call(project: Path, stream: bool) -> None:
    schema = {"type": "object"}
    script = [
        ModelTurn(calls=(ScriptedCall("add", {"left": 1, "right": 2}, "a"),)),
        ModelTurn(calls=(ScriptedCall(OUTPUT_TOOL, {"n": 3}, "b"),)),
        "more",
    ]
    async with serving(script, stream=stream, structured="tool", tools=["my_agents:add"]) as (adapter, model):
        first, _ = await say(adapter, TurnInput("x", output_schema=schema), "y")
    assert (first.status, first.data) == (TurnStatus.COMPLETED, {"n": 3})
    assert [event for event in first.events if isinstance(event, OperationStarted)] == [
        OperationStarted("a", "add", {"left": 1, "right": 2})
    ]
    assert first.events[-1] == said('{"n": 3}')
    assert model.bodies[0]["tool_choice"] == {"type": "any"}
    assert [tool["name"] for tool in model.bodies[0]["tools"]] == ["add", OUTPUT_TOOL]
    assert model.bodies[2]["messages"][-2:] == [
        {"role": "assistant", "content": text('{"n": 3}')}, {"role": "user", "content": text("y")},
    ]  # fmt: skip
    assert "tool_choice" not in model.bodies[2]


async def test_a_call_cut_at_the_token_limit_is_not_run(project: Path) -> None:
    script = [ModelTurn(calls=(ScriptedCall("add", '{"left": 1', "a"),), stop="length"), "y"]
    async with serving(script, stream=True, tools=["my_agents:add"]) as (adapter, model):
        first, _ = await say(adapter, "x", "y")
    assert first.status is TurnStatus.TRUNCATED
    (started,) = first.events
    assert isinstance(started, OperationStarted)
    assert started.raw_input == '{"left": 1'
    assert model.bodies[1]["messages"][1]["content"][0]["input"] == {}
    assert model.bodies[1]["messages"][2]["content"][0]["content"] == "The call was not executed."


async def test_oa_11_thinking_is_no_answer(stream: bool) -> None:
    thought = ModelTurn(thinking="so it is 12")
    async with serving([thought], stream=stream) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert (turn.status, turn.events) == (TurnStatus.COMPLETED, (Thinking("so it is 12"),))
    async with serving([thought], stream=stream, reasoning_as_reply=True) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert turn.events == (Thinking("so it is 12"), said("so it is 12"))


async def test_hidden_thinking_makes_events_partial() -> None:
    hidden = {"type": "redacted_thinking", "data": "x"}
    async with serving([message([hidden, *text("x")])]) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert turn.coverage == {Channel.EVENTS: partial("the provider does not show the model's reasoning")}


@pytest.mark.parametrize("document", [{}, {"content": None}, [], "x"])
async def test_what_is_no_message_is_a_bad_response(document: Any) -> None:
    caught, _ = await failure(serving([json_reply(document)]))
    assert (caught.kind, caught.code) == (FailureKind.PROVIDER, "BAD_RESPONSE")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"params": {"tools": [{"name": "f", "input_schema": {}}]}}, None),
        ({"params": {"tools": [{"type": "bash_20250124", "name": "bash"}]}}, "tools[bash_20250124]"),
        ({"params": {"mcp_servers": [{"url": "x"}]}}, "mcp_servers"),
    ],
)
def test_tools_of_the_provider_make_actions_partial(options: Any, reason: str | None) -> None:
    adapter = factory.build(arm({"base_url": "http://127.0.0.1:1", **options}))
    expected = complete if reason is None else partial(f"the provider runs tools on its side ({reason})")
    assert adapter.coverage.actions == expected


@pytest.mark.parametrize(
    ("options", "model", "says"),
    [
        ({}, "m", r"arms\.a\.api_key_env: https://api\.anthropic\.com needs a key"),
        ({"base_url": "http://x"}, None, r"arms\.a\.model: name the model"),
        ({"base_url": "http://x", "approve": ["nobody"]}, "m", "no tool is named 'nobody'"),
    ],
)
def test_a_wrong_arm_says_what_to_do(options: Any, model: str | None, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        factory.build(arm(options, model))


@pytest.mark.parametrize(
    "options",
    [
        {"params": {"max_tokens": 1}}, {"max_tokens": 0}, {"cache": "1d"}, {"seed": 1}, {"version": "latest"},
        {"version": "2026-10-21", "temperature": 0},
    ],
)  # fmt: skip
def test_wrong_options_are_refused(options: Any) -> None:
    with pytest.raises(ValidationError):
        AnthropicOptions.model_validate(options)


def test_the_agent_is_model_prompt_and_parameters(project: Path) -> None:
    base = {"base_url": "http://x", "tools": ["my_agents:add"]}
    one = factory.identify(arm(base))
    assert [path.name for path in one.sources] == ["my_agents.py"]
    assert factory.identify(arm({**base, "timeout": 5})) == one
    assert factory.identify(arm({**base, "system": "x"})) != one
    assert factory.identify(arm(base, "other")) != one
