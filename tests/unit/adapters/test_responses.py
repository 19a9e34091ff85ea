"""The `openai` adapter by the Responses API, against a scripted model behind real HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from evalfleet.errors import Acceptance, FailureKind, SendFailure
from evalfleet.model.coverage import Channel, complete, partial
from evalfleet.model.events import (
    MISSING,
    Compaction,
    ErrorReported,
    InputRequested,
    Message,
    OperationFinished,
    OperationStarted,
    OperationStatus,
    Role,
    Thinking,
    Unrecognised,
)
from evalfleet.model.model_call import Account, CallFate
from evalfleet.model.turn import InputFile, InputResponse, Turn, TurnInput, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.testing.adapter_context import FakeContext, FakeModelCalls
from evalfleet.testing.http_endpoint import Reply, json_reply
from evalfleet.testing.model_endpoint import Scripted, completion
from evalfleet.testing.model_turn import ModelTurn, ScriptedCall, ScriptedUsage
from evalfleet.testing.responses_dialect import named_events, response_events, response_object
from evalfleet_adapters.openai import OpenAIOptions
from tests.unit.adapters.test_openai import failure, said, say, serving

ONE_CALL = Usage(
    input_tokens=10, output_tokens=5, cache_read_tokens=0, cache_write_tokens=0, reasoning_tokens=0, requests=1
)
USER = {"type": "message", "role": "user"}
HOSTED = {"type": "mcp", "server_label": "shop", "server_url": "https://example.com"}


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request: pytest.FixtureRequest) -> bool:
    return request.param


def responses(script: Any = (), **options: Any) -> Any:
    return serving(script, api="responses", **options)


def answered(stream: bool, **fields: Any) -> Reply:
    """A response object with these fields, as the server would send it."""
    document = {**response_object(ModelTurn()), **fields}
    if not stream:
        return json_reply(document)
    items = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate(document["output"])
    ]
    return named_events([*items, {"type": f"response.{document['status']}", "response": document}])


async def test_every_request_has_the_whole_conversation_and_stores_nothing(stream: bool) -> None:
    script = [ModelTurn(text="first", thinking="Hm."), "second"]
    options = {"stream": stream, "system": "Be brief.", "params": {"reasoning": {"effort": "low"}}, "max_tokens": 9}
    async with responses(script, **options) as (adapter, model):
        first, second = await say(adapter, "one", "two")
    assert first == Turn(events=(Thinking("Hm."), said("first")), usage=ONE_CALL)
    assert second.events == (said("second"),)
    assert [request.target for request in model.requests] == ["/v1/responses"] * 2
    fixed = {
        "model": "small", "store": False, "instructions": "Be brief.", "reasoning": {"effort": "low"},
        "include": ["reasoning.encrypted_content"], "max_output_tokens": 9,
    } | ({"stream": True} if stream else {})  # fmt: skip
    reasoning, message = response_object(script[0], "resp_1")["output"]  # type: ignore[arg-type]
    assert model.bodies == [
        {**fixed, "input": [{**USER, "content": "one"}]},
        {**fixed, "input": [{**USER, "content": "one"}, reasoning, message, {**USER, "content": "two"}]},
    ]


async def test_reasoning_without_its_content_is_not_sent_back() -> None:
    """An id alone would be one that the provider does not know: nothing of ours is stored there."""
    turn = ModelTurn(text="x", calls=(ScriptedCall("f", {"n": 1}, "a"),))
    items = [{"id": "rs_1", "type": "reasoning", "summary": []}, *response_object(turn)["output"]]
    async with responses([answered(False, output=items), "y"]) as (adapter, model):
        await say(adapter, "one", "two")
    assert model.bodies[1]["input"][1:4] == [
        {"type": "message", "role": "assistant", "content": "x"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"n": 1}', "status": "completed"},
        {"type": "function_call_output", "call_id": "a", "output": "The call was not executed."},
    ]
    assert "include" not in model.bodies[0]


async def test_a_tool_loop_runs_and_is_recorded(project: Path, stream: bool) -> None:
    calls = (ScriptedCall("add", {"left": 1, "right": 2}, "a"), ScriptedCall("unlucky", {}, "b"))
    script = [ModelTurn(text="Adding.", thinking="Add.", calls=calls), "3"]
    tools = ["my_agents:add", "my_agents:unlucky"]
    async with responses(script, stream=stream, tools=tools) as (adapter, model):
        (turn,) = await say(adapter, "x")
    assert turn.events[:4] == (
        Thinking("Add."),
        said("Adding."),
        OperationStarted("a", "add", {"left": 1, "right": 2}),
        OperationStarted("b", "unlucky", {}),
    )
    ends = {e.operation_id: e.status for e in turn.events if isinstance(e, OperationFinished)}
    assert ends == {"a": OperationStatus.COMPLETED, "b": OperationStatus.FAILED}
    assert (turn.status, turn.usage) == (TurnStatus.COMPLETED, ONE_CALL + ONE_CALL)
    kinds = [(item["type"], item.get("call_id")) for item in model.bodies[1]["input"][1:]]
    assert kinds == [
        ("reasoning", None), ("message", None), ("function_call", "a"), ("function_call", "b"),
        ("function_call_output", "a"), ("function_call_output", "b"),
    ]  # fmt: skip
    assert model.bodies[1]["input"][5]["output"] == "3"
    offered = model.bodies[0]["tools"][0]
    assert (offered["type"], offered["name"], offered["strict"]) == ("function", "add", False)


async def test_oa_05_and_oa_13_arguments_in_every_form(project: Path, stream: bool) -> None:
    calls = tuple(
        ScriptedCall("add", text, str(number))
        for number, text in enumerate(['{"left": 9007199254740993, "right": 0}', "", '{"left":'])
    )
    async with responses([ModelTurn(calls=calls), "ok"], stream=stream, tools=["my_agents:add"]) as (adapter, model):
        (turn,) = await say(adapter, "x")
    started = [event for event in turn.events if isinstance(event, OperationStarted)]
    assert [(event.input, event.raw_input) for event in started] == [
        ({"left": 9007199254740993, "right": 0}, None), ({}, None), (MISSING, '{"left":'),
    ]  # fmt: skip
    items = model.bodies[1]["input"]
    assert [item["arguments"] for item in items[1:4]] == ['{"left": 9007199254740993, "right": 0}', "{}", "{}"]
    assert items[4]["output"] == "9007199254740993"
    assert "not valid JSON" in items[6]["output"]


async def test_two_calls_of_one_id_are_two(project: Path) -> None:
    calls = (ScriptedCall("add", {"left": 1, "right": 2}, "a"), ScriptedCall("add", {"left": 3, "right": 4}, "a"))
    async with responses([ModelTurn(calls=calls), "ok"], tools=["my_agents:add"]) as (adapter, model):
        await say(adapter, "x")
    outputs = {item["call_id"]: item["output"] for item in model.bodies[1]["input"] if "output" in item}
    assert outputs == {"a": "3", "a_1": "7"}
    assert [item["call_id"] for item in model.bodies[1]["input"][1:3]] == ["a", "a_1"]


INCOMPLETE = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


async def test_oa_09_a_limit_used_up_by_hidden_reasoning_is_truncated_and_counted(stream: bool) -> None:
    usage = {"input_tokens": 30, "output_tokens": 512}
    reply = answered(stream, **INCOMPLETE, output=[{"type": "reasoning", "summary": []}], usage=usage)
    async with responses([reply], stream=stream) as (adapter, model):
        (turn,) = await say(adapter, "x")
        assert len(model.requests) == 1
    assert (turn.status, turn.events) == (TurnStatus.TRUNCATED, ())
    assert turn.usage == Usage(input_tokens=30, output_tokens=512, requests=1)


@pytest.mark.parametrize(
    ("fields", "status", "events", "doubt"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, TurnStatus.FAILED,
         (ErrorReported("the provider's content filter stopped the reply"),), None),
        ({"status": "incomplete", "incomplete_details": {"reason": "steered"}}, TurnStatus.COMPLETED,
         (Unrecognised("response.incomplete_details", {"reason": "steered"}),),
         partial("the provider left the response incomplete: 'steered'")),
    ],
)  # fmt: skip
async def test_how_a_response_was_left_incomplete(fields: Any, status: Any, events: Any, doubt: Any) -> None:
    output = response_object(ModelTurn(text="x"))["output"]
    async with responses([answered(False, **fields, output=output)]) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert (turn.status, turn.events, turn.coverage.get(Channel.STATUS)) == (status, (said("x"), *events), doubt)


@pytest.mark.parametrize(
    ("usage", "charged"),
    [
        ({"input_tokens": 40, "output_tokens": 7}, Usage(input_tokens=40, output_tokens=7, requests=1)),
        (None, Usage(requests=1, unknown_calls=1)),
    ],
)
async def test_oa_10_a_failed_response_is_the_providers_and_charged(stream: bool, usage: Any, charged: Usage) -> None:
    error = {"code": "server_error", "message": "it broke"}
    reply = answered(stream, status="failed", error=error, output=[], usage=usage)
    caught, made = await failure(responses([reply], stream=stream))
    assert (caught.kind, caught.code, caught.acceptance) == (FailureKind.PROVIDER, "PROVIDER_ERROR", Acceptance.STARTED)
    assert (str(caught), made) == ("it broke (server_error)", 1)
    assert caught.partial is not None
    assert caught.partial.usage == charged


@pytest.mark.parametrize("code", ["invalid_prompt", "image_too_large", "unsupported_image_media_type"])
async def test_a_response_that_failed_for_what_was_sent_is_no_fault_of_the_provider(code: str, stream: bool) -> None:
    reply = answered(stream, status="failed", error={"code": code, "message": "no"}, output=[], usage=None)
    caught, _ = await failure(responses([reply], stream=stream))
    assert (caught.kind, caught.code) == (FailureKind.ADAPTER, "REQUEST_REFUSED")


async def test_oa_10_a_completed_response_with_null_usage_is_unknown(stream: bool) -> None:
    async with responses([ModelTurn(text="x", usage=None)], stream=stream) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert turn.usage == Usage(requests=1, unknown_calls=1)
    assert turn.coverage[Channel.USAGE].state.value == "unavailable"


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, "RATE_LIMITED"),
        ({"type": "error", "error": {"code": "server_is_overloaded", "message": "busy"}}, "PROVIDER_UNAVAILABLE"),
        ({"type": "error", "code": None, "message": "boom"}, "PROVIDER_ERROR"),
    ],
)
async def test_an_error_in_the_stream_keeps_what_came(event: Any, code: str) -> None:
    begun = response_events(response_object(ModelTurn(text="half an answer of some length")))[:5]
    caught, _ = await failure(responses([named_events([*begun, event])], stream=True))
    assert (caught.kind, caught.code) == (FailureKind.PROVIDER, code)
    assert caught.partial is not None
    assert caught.partial.events == (said("half an answer o"),)


async def test_oa_11_reasoning_is_no_answer(stream: bool) -> None:
    thought = ModelTurn(thinking="so it is 12")
    async with responses([thought], stream=stream) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert (turn.status, turn.events) == (TurnStatus.COMPLETED, (Thinking("so it is 12"),))
    async with responses([thought], stream=stream, reasoning_as_reply=True) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert turn.events == (Thinking("so it is 12"), said("so it is 12"))


async def test_oa_12_a_page_instead_of_json_keeps_its_beginning() -> None:
    page = b"<html>bad gateway</html>"
    for status, code in ((502, "PROVIDER_ERROR"), (200, "BAD_RESPONSE")):
        caught, _ = await failure(responses([Reply(status=status, headers={"content-type": "text/html"}, body=page)]))
        assert (caught.kind, caught.code) == (FailureKind.PROVIDER, code)
        assert "bad gateway" in str(caught)


@pytest.mark.parametrize("document", [{}, {"output": None}, [], "x", {"status": "in_progress", "output": []}])
async def test_what_is_no_response_is_a_bad_one(document: Any) -> None:
    caught, _ = await failure(responses([json_reply(document)]))
    assert (caught.kind, caught.code) == (FailureKind.PROVIDER, "BAD_RESPONSE")


async def test_a_stream_whose_end_holds_no_items_says_what_came() -> None:
    document = response_object(ModelTurn(text="said", calls=(ScriptedCall("f", {"n": 1}, "a"),)))
    events = response_events(document)
    events[-1] = {"type": "response.completed", "response": {**document, "output": []}}
    async with responses([named_events(events)], stream=True) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert turn.events == (said("said"), OperationStarted("a", "f", {"n": 1}))


async def test_an_03_a_wholly_empty_response_is_an_outage_unless_it_is_accepted(stream: bool) -> None:
    caught, _ = await failure(responses([ModelTurn(usage=ScriptedUsage(output=0))], stream=stream))
    assert caught.code == "EMPTY_RESPONSE"
    async with responses([ModelTurn()], stream=stream, empty_reply="accept") as (adapter, _):
        assert (await say(adapter, "x"))[0].status is TurnStatus.COMPLETED


async def test_structured_output_and_files_are_asked_for_in_the_apis_own_form() -> None:
    files = (
        InputFile("a.png", "image/png", b"1"), InputFile("a.pdf", "application/pdf", b"2"),
        InputFile("a.txt", "text/plain", b"three"),
    )  # fmt: skip
    schema: Mapping[str, Any] = {"type": "object"}
    options = {"params": {"text": {"verbosity": "low"}}, "strict_schema": True}
    async with responses(['{"n": 9007199254740993}'], **options) as (adapter, model):
        (turn,) = await say(adapter, TurnInput("look", output_schema=schema, files=files))
    assert turn.data == {"n": 9007199254740993}
    form = {"type": "json_schema", "name": "output", "schema": schema, "strict": True}
    assert model.bodies[0]["text"] == {"verbosity": "low", "format": form}
    assert model.bodies[0]["input"][0]["content"] == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "data:image/png;base64,MQ==", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,Mg=="},
        {"type": "input_text", "text": "a.txt:\nthree"},
    ]


async def test_a_file_that_the_api_does_not_take_is_refused_before_anything_is_sent() -> None:
    async with responses() as (adapter, model):
        with pytest.raises(SendFailure, match=r"a\.mp3: the API takes no audio/mpeg") as caught:
            await say(adapter, TurnInput("hear", files=(InputFile("a.mp3", "audio/mpeg", b"1"),)))
        assert model.requests == []
    assert (caught.value.code, caught.value.acceptance) == ("INPUT_UNSUPPORTED", Acceptance.REJECTED)


# --- what the provider runs -----------------------------------------------------------------------------------

DENIED = "The call was denied."
ASKED = {"id": "mcpr_1", "type": "mcp_approval_request", "name": "buy", "server_label": "shop", "arguments": '{"n": 1}'}
BOUGHT = {
    "id": "mcp_1", "type": "mcp_call", "name": "buy", "server_label": "shop", "arguments": '{"n": 1}',
    "approval_request_id": "mcpr_1", "output": "bought", "error": None, "status": "completed",
}  # fmt: skip


@pytest.mark.parametrize(
    ("choice", "item", "status", "output"),
    [
        ("approve", {"approve": True}, OperationStatus.COMPLETED, "bought"),
        (
            "deny",
            {"approve": False, "reason": "The call was denied."},
            OperationStatus.REJECTED,
            "The call was denied.",
        ),
    ],
)
async def test_a_tool_of_the_provider_that_needs_approval_waits_and_happens_once(
    choice: str, item: Any, status: OperationStatus, output: str, stream: bool
) -> None:
    allowed = choice == "approve"
    message = response_object(ModelTurn(text="done"))["output"]
    script: list[Scripted] = [
        answered(stream, output=[ASKED]),
        answered(stream, output=[*([BOUGHT] if allowed else []), *message]),
    ]
    async with responses(script, stream=stream, params={"tools": [HOSTED]}) as (adapter, model):
        parked, done = await say(
            adapter, "buy", TurnInput(choice, responses=(InputResponse("mcpr_1", option_id=choice),))
        )
    assert parked.status is TurnStatus.WAITING
    assert parked.events[0] == OperationStarted("mcpr_1", "buy", {"n": 1})
    assert isinstance(parked.events[1], InputRequested)
    assert done.events == (OperationFinished("mcpr_1", status, output), said("done"))
    assert model.bodies[1]["input"][1:] == [
        ASKED, {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", **item},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("item", "events", "kept"),
    [
        ({"id": "fs", "type": "file_search_call", "status": "completed", "queries": ["q"],
          "results": [{"file_id": "f"}]},
         [OperationStarted("fs", "file_search", ["q"]),
          OperationFinished("fs", OperationStatus.COMPLETED, [{"file_id": "f"}])], True),
        ({"id": "ci", "type": "code_interpreter_call", "status": "failed", "code": "1/0", "outputs": None},
         [OperationStarted("ci", "code_interpreter", "1/0"), OperationFinished("ci", OperationStatus.FAILED, None)],
         True),
        ({"id": "ws", "type": "web_search_call", "status": "searching"},
         [OperationStarted("ws", "web_search", MISSING)], True),
        ({"id": "cc", "call_id": "c1", "type": "computer_call", "status": "completed", "action": {"type": "click"}},
         [OperationStarted("c1", "computer", {"type": "click"})], False),
        ({"id": "cp", "type": "compaction", "encrypted_content": "x"}, [Compaction()], True),
        ({"id": "xx", "type": "telepathy_call", "said": 1},
         [Unrecognised("output.telepathy_call", {"id": "xx", "type": "telepathy_call", "said": 1})], True),
    ],
)  # fmt: skip
async def test_items_of_the_provider_are_shown_and_sent_back(item: Any, events: Any, kept: bool) -> None:
    output = [item, *response_object(ModelTurn(text="x"))["output"]]
    async with responses([answered(False, output=output), "y"], server_tools=True) as (adapter, model):
        first, _ = await say(adapter, "one", "two")
    assert first.events == (*events, said("x"))
    assert (item in model.bodies[1]["input"]) is kept


async def test_a_custom_call_is_pending_and_answered_in_its_own_kind() -> None:
    item = {"id": "ct", "type": "custom_tool_call", "call_id": "c1", "name": "grammar", "input": "free text"}
    tools = [{"type": "custom", "name": "grammar"}]
    async with responses([answered(False, output=[item]), "ok"], params={"tools": tools}) as (adapter, model):
        first, _ = await say(adapter, "one", "two")
    assert first.events == (OperationStarted("c1", "grammar", MISSING, raw_input="free text"),)
    assert model.bodies[1]["input"][2]["type"] == "custom_tool_call_output"


async def test_a_refusal_is_what_the_model_says(stream: bool) -> None:
    part = {"type": "refusal", "refusal": "I can't help with that."}
    item = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    async with responses([answered(stream, output=[item])], stream=stream) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert turn.events == (Message(Role.ASSISTANT, "I can't help with that."),)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, None),
        ({"params": {"tools": [{"type": "function"}]}}, None),
        ({"params": {"tools": [{"type": "web_search"}]}}, "the provider runs tools on its side (tools[web_search])"),
    ],
)
async def test_tools_of_the_provider_make_actions_partial(options: Any, reason: str | None) -> None:
    async with responses(**options) as (adapter, _):
        assert adapter.coverage.actions == (complete if reason is None else partial(reason))


async def test_each_request_is_admitted_for_its_account() -> None:
    async with responses([completion("hi")], max_tokens=77) as (adapter, model):
        ctx = FakeContext()
        calls = FakeModelCalls()
        ctx.calls = calls
        await say(adapter, "x", ctx=ctx)
        account = Account(provider="openai", base_url=model.base_url, key=None, model="small")
    ((call, end),) = calls.made
    assert call.account == account
    assert (call.output_limit, call.input_bytes) == (77, len(model.requests[0].body))
    assert end is not None
    assert (end.fate, end.usage) == (CallFate.ANSWERED, ONE_CALL)


@pytest.mark.parametrize("options", [{"seed": 1}, {"params": {"previous_response_id": "x"}}, {"params": {"input": []}}])
def test_wrong_options_are_refused(options: Any) -> None:
    with pytest.raises(ValidationError):
        OpenAIOptions.model_validate({"api": "responses", **options})
    json.dumps(OpenAIOptions.model_validate({"api": "responses"}).agent_fields())


def test_the_usual_api_is_no_part_of_what_the_agent_is() -> None:
    """Results of arms from before there were two APIs are still theirs."""
    assert "api" not in OpenAIOptions.model_validate({}).agent_fields()
    assert OpenAIOptions.model_validate({"api": "responses"}).agent_fields()["api"] == "responses"
