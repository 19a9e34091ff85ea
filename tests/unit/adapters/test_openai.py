"""The `openai` adapter against a scripted model behind real HTTP: turns, tools, failures and retries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from evalfleet.errors import Acceptance, ConfigurationError, FailureKind, SendFailure
from evalfleet.model.coverage import Channel, complete, partial, unavailable
from evalfleet.model.events import (
    MISSING,
    ErrorReported,
    InputOption,
    InputRequested,
    Message,
    OperationFinished,
    OperationStarted,
    OperationStatus,
    Role,
    Thinking,
    Unrecognised,
)
from evalfleet.model.turn import InputFile, InputResponse, Turn, TurnInput, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.ports import Adapter, AdapterFactory, ArmSettings
from evalfleet.testing.adapter_context import FakeContext, FakeSecrets
from evalfleet.testing.http_endpoint import Reply, json_reply
from evalfleet.testing.model_endpoint import ModelEndpoint, Scripted, completion, sse, streamed, tool_call
from evalfleet_adapters.openai import OpenAIOptions, factory

ONE_CALL = Usage(input_tokens=10, output_tokens=5, requests=1)
HTML = b"<html>bad gateway</html>"
STREAM = {"content-type": "text/event-stream"}


def said(text: str) -> Message:
    return Message(Role.ASSISTANT, text)


def arm(options: OpenAIOptions, model: str | None = "small") -> ArmSettings:
    return ArmSettings(name="a", model=model, flags={}, options=options, project=Path())


@asynccontextmanager
async def serving(script: Iterable[Scripted] = (), **options: Any) -> Any:
    """An adapter with the given options, and the scripted model that it talks to."""
    async with ModelEndpoint(script) as model:
        adapter = factory.build(arm(OpenAIOptions.model_validate({"base_url": model.base_url, **options})))
        try:
            yield adapter, model
        finally:
            await adapter.close()


async def say(adapter: Adapter, *inputs: str | TurnInput, ctx: FakeContext | None = None) -> list[Turn]:
    ctx = ctx or FakeContext()
    session = await adapter.open(ctx)
    return [await session.send(TurnInput(item) if isinstance(item, str) else item, ctx) for item in inputs]


async def failure(serving: AbstractAsyncContextManager[Any], *inputs: str, ctx: Any = None) -> tuple[SendFailure, int]:
    """The failure, and how many requests were made."""
    async with serving as (adapter, model):
        with pytest.raises(SendFailure) as caught:
            await say(adapter, *(inputs or ("x",)), ctx=ctx)
        return caught.value, len(model.requests)


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request: pytest.FixtureRequest) -> bool:
    return request.param


def test_the_factory_is_one() -> None:
    assert isinstance(factory, AdapterFactory)


# --- turns ----------------------------------------------------------------------------------------------------


async def test_a_conversation_remembers_and_sessions_share_nothing(stream: bool) -> None:
    async with serving(["first", "second", "other"], stream=stream, system="Be brief.") as (adapter, model):
        turns = await say(adapter, "one", "two")
        await say(adapter, "three")
    assert turns == [Turn(events=(said("first"),), usage=ONE_CALL), Turn(events=(said("second"),), usage=ONE_CALL)]
    system = {"role": "system", "content": "Be brief."}
    assert [body["messages"] for body in model.bodies] == [
        [system, {"role": "user", "content": "one"}],
        [system, {"role": "user", "content": "one"}, {"role": "assistant", "content": "first"},
         {"role": "user", "content": "two"}],
        [system, {"role": "user", "content": "three"}],
    ]  # fmt: skip


async def test_the_request_says_what_the_options_say() -> None:
    options = {
        "temperature": 0,
        "top_p": 0.5,
        "max_tokens": 7,
        "seed": "case",
        "stream": True,
        "params": {"reasoning_effort": "low"},
        "api_key_env": "KEY",
        "strict_schema": True,
    }
    ctx = FakeContext()
    ctx.seed, ctx.secrets = 99, FakeSecrets({"KEY": "sk-secret"})
    schema = {"type": "object"}
    async with serving(['{"n": 9007199254740993}'], **options) as (adapter, model):
        (turn,) = await say(adapter, TurnInput("x", output_schema=schema), ctx=ctx)
    assert turn.data == {"n": 9007199254740993}
    assert model.requests[0].headers["authorization"] == "Bearer sk-secret"
    assert model.bodies == [
        {
            "model": "small",
            "messages": [{"role": "user", "content": "x"}],
            "temperature": 0,
            "top_p": 0.5,
            "max_tokens": 7,
            "seed": 99,
            "stream": True,
            "stream_options": {"include_usage": True},
            "reasoning_effort": "low",
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "output", "schema": schema, "strict": True},
            },
        }
    ]


async def test_a_reply_that_is_no_json_has_no_data() -> None:
    async with serving(["no json", "null", "[" * 150 + "]" * 150]) as (adapter, _):
        turns = await say(adapter, *[TurnInput("x", output_schema={})] * 3)
    assert [turn.data for turn in turns] == [MISSING, None, MISSING]
    assert all(turn.coverage == {} for turn in turns)


async def test_files_become_content_parts() -> None:
    files = (
        InputFile("a.png", "image/png", b"\x89P"),
        InputFile("b.wav", "audio/wav", b"RI"),
        InputFile("c.pdf", "application/pdf", b"%P"),
        InputFile("d.txt", "text/plain", "é".encode()),
    )
    async with serving(["ok"]) as (adapter, model):
        await say(adapter, TurnInput("look", files=files))
    assert model.bodies[0]["messages"][0]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVA="}},
        {"type": "input_audio", "input_audio": {"data": "Ukk=", "format": "wav"}},
        {"type": "file", "file": {"filename": "c.pdf", "file_data": "data:application/pdf;base64,JVA="}},
        {"type": "text", "text": "d.txt:\né"},
    ]


async def test_odd_text_goes_there_and_back(stream: bool) -> None:
    text = "\0 \ud800 \u2028 é 🙂 \ufeff\r\n\x1b[31m"
    async with serving(stream=stream) as (adapter, _):
        (turn,) = await say(adapter, text)
    assert turn.events == (said(text),)


@pytest.mark.parametrize(
    ("finish", "status", "events"),
    [
        ("stop", TurnStatus.COMPLETED, (said("x"),)),
        ("length", TurnStatus.TRUNCATED, (said("x"),)),
        ("content_filter", TurnStatus.FAILED,
         (said("x"), ErrorReported("the provider's content filter stopped the reply"))),
        ("brand_new", TurnStatus.COMPLETED, (said("x"), Unrecognised("choice.finish_reason", "brand_new"))),
    ],
)  # fmt: skip
async def test_how_the_model_stopped_is_the_turns_status(finish: str, status: TurnStatus, events: Any) -> None:
    async with serving([completion("x", finish=finish)]) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert (turn.status, turn.events) == (status, events)
    assert (Channel.STATUS in turn.coverage) is (finish == "brand_new")


async def test_oa_07_usage_twice_and_running_counts_once() -> None:
    def chunk(usage: Any, *choices: Any) -> bytes:
        return sse(json.dumps({"choices": list(choices), "usage": usage}))

    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    text, stop = {"delta": {"content": "ok"}}, {"delta": {}, "finish_reason": "stop"}
    twice = Reply(headers=STREAM, body=(chunk(None, text), chunk(usage, stop), chunk(usage), sse("[DONE]")))
    running = Reply(
        headers=STREAM,
        body=(chunk({"prompt_tokens": 10, "completion_tokens": 1}, text), chunk(usage, stop), sse("[DONE]")),
    )
    async with serving([twice, running], stream=True) as (adapter, _):
        turns = await say(adapter, "x", "y")
    assert [turn.usage for turn in turns] == [ONE_CALL, ONE_CALL]


async def test_oa_08_no_usage_is_unknown_and_counted(project: Path) -> None:
    call = completion(None, calls=[tool_call("add", {"left": 1, "right": 2})])
    async with serving([completion("ok", usage=None), call, completion("3", usage=None)], tools=["my_agents:add"]) as (
        adapter,
        _,
    ):
        none, half = await say(adapter, "x", "y")
    assert none.usage == Usage(requests=1, unknown_calls=1)
    assert none.coverage == {Channel.USAGE: unavailable("the provider reported no usage")}
    assert half.usage == Usage(input_tokens=10, output_tokens=5, requests=2, unknown_calls=1)
    assert half.coverage == {Channel.USAGE: partial("1 of 2 model calls reported no usage")}


async def test_oa_11_reasoning_is_no_answer(stream: bool) -> None:
    thought = completion(None, reasoning_content="so it is 12", finish="length")
    silent = completion(None, reasoning_content="so it is 12")
    async with serving([thought, silent], stream=stream) as (adapter, _):
        cut, empty = await say(adapter, "x", "y")
    assert (cut.status, cut.events, cut.reply) == (TurnStatus.TRUNCATED, (Thinking("so it is 12"),), None)
    assert (empty.status, empty.events, empty.reply) == (TurnStatus.COMPLETED, (Thinking("so it is 12"),), None)
    async with serving([silent], stream=stream, reasoning_as_reply=True) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert turn.events == (Thinking("so it is 12"), said("so it is 12"))


# --- tools ----------------------------------------------------------------------------------------------------


async def test_a_tool_loop_runs_and_is_recorded(project: Path, stream: bool) -> None:
    calls = [tool_call("add", {"left": 1, "right": 2}, "a"), tool_call("slow_add", {"left": 3, "right": 4}, "b")]
    script = [completion("Let me see.", calls=calls), "3 and 7"]
    async with serving(script, stream=stream, tools=["my_agents:add", "my_agents:slow_add"]) as (adapter, model):
        (turn,) = await say(adapter, "x")
    assert turn.status is TurnStatus.COMPLETED
    assert turn.events == (
        said("Let me see."),
        OperationStarted("a", "add", {"left": 1, "right": 2}),
        OperationStarted("b", "slow_add", {"left": 3, "right": 4}),
        OperationFinished("a", OperationStatus.COMPLETED, 3),
        OperationFinished("b", OperationStatus.COMPLETED, 7),
        said("3 and 7"),
    )
    assert turn.usage == ONE_CALL + ONE_CALL
    first, second = model.bodies
    assert [tool["function"]["name"] for tool in first["tools"]] == ["add", "slow_add"]
    assert first["tools"][0]["function"]["description"] == "Add two integers."
    assert second["messages"][1:] == [
        {"role": "assistant", "content": "Let me see.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "3"},
        {"role": "tool", "tool_call_id": "b", "content": "7"},
    ]


@pytest.mark.parametrize(
    ("call", "status", "output"),
    [
        (tool_call("unlucky", {}), OperationStatus.FAILED, "ZeroDivisionError: tool broke"),
        (tool_call("exits", {}), OperationStatus.FAILED, "SystemExit: 1"),
        (tool_call("gives_up", {}), OperationStatus.FAILED, "CancelledError: "),
        (tool_call("forbidden", {"path": "/x"}), OperationStatus.REJECTED, "nobody may read /x"),
        (tool_call("shapeless", {}), OperationStatus.FAILED,
         "TypeError: the tool returned a object, which has no JSON form"),
        (tool_call("dated", {"n": 9007199254740993}), OperationStatus.COMPLETED,
         {"day": "2026-01-02", "n": 9007199254740993, "1": [2, 3]}),
        (tool_call("dated", {"n": "1"}), OperationStatus.FAILED, 'dated: n: Input should be a valid integer, not "1"'),
        (tool_call("dated", ""), OperationStatus.FAILED, "dated: n: Field required"),
        (tool_call("nothing", {}), OperationStatus.FAILED,
         "there is no tool 'nothing'; there are unlucky, exits, gives_up, forbidden, shapeless, dated"),
    ],
)  # fmt: skip
async def test_however_a_call_ends_the_model_is_told(project: Path, call: Any, status: Any, output: Any) -> None:
    tools = [f"my_agents:{name}" for name in ("unlucky", "exits", "gives_up", "forbidden", "shapeless", "dated")]
    async with serving([completion(None, calls=[call]), "ok"], tools=tools) as (adapter, model):
        (turn,) = await say(adapter, "x")
    assert turn.events[1] == OperationFinished("call_1", status, output)
    told = model.bodies[1]["messages"][-1]["content"]
    assert (told if isinstance(output, str) else json.loads(told)) == output


@pytest.mark.parametrize("arguments", [{"q": "a"}, "", None, '{"q":'], ids=["object", "empty", "null", "cut"])
async def test_oa_05_odd_arguments_survive_the_next_request(project: Path, arguments: Any, stream: bool) -> None:
    raw_call = {"id": "c", "type": "function", "function": {"name": "dated", "arguments": arguments}}
    script = [completion(None, calls=[raw_call]), "ok"]
    async with serving(script, stream=stream, tools=["my_agents:dated"]) as (adapter, model):
        (turn,) = await say(adapter, "x")
    sent = model.bodies[1]["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == (arguments if isinstance(arguments, dict) else {})
    started, finished, _ = turn.events
    assert finished.status is OperationStatus.FAILED
    if arguments == '{"q":':
        assert started == OperationStarted("c", "dated", MISSING, raw_input='{"q":')
        assert 'received: {"q":' in finished.output
    else:
        assert started == OperationStarted("c", "dated", arguments or {})


async def test_oa_13_big_integers_reach_the_tool_and_the_next_request(project: Path, stream: bool) -> None:
    call = tool_call("add", '{"left": 9007199254740993, "right": 0}')
    async with serving([completion(None, calls=[call]), "ok"], stream=stream, tools=["my_agents:add"]) as (
        adapter,
        model,
    ):
        (turn,) = await say(adapter, "x")
    assert turn.events[1] == OperationFinished("call_1", OperationStatus.COMPLETED, 9007199254740993)
    assert "9007199254740993" in model.bodies[1]["messages"][1]["tool_calls"][0]["function"]["arguments"]


async def test_too_many_rounds_fail_the_turn(project: Path) -> None:
    call = completion(None, calls=[tool_call("add", {"left": 1, "right": 1})])
    async with serving([call] * 9, tools=["my_agents:add"], max_tool_rounds=2) as (adapter, model):
        (turn,) = await say(adapter, "x")
    assert len(model.requests) == 3
    assert turn.status is TurnStatus.FAILED
    assert turn.events[-1] == ErrorReported("stopped: the model wanted more than 2 rounds of tool calls")


async def test_a_call_cut_at_the_token_limit_is_not_run(project: Path) -> None:
    call = completion(None, calls=[tool_call("add", '{"left": 1')], finish="length")
    async with serving([call], tools=["my_agents:add"]) as (adapter, model):
        (turn,) = await say(adapter, "x")
    assert (turn.status, len(model.requests)) == (TurnStatus.TRUNCATED, 1)
    assert turn.events == (OperationStarted("call_1", "add", MISSING, raw_input='{"left": 1'),)


TOOLS = ["my_agents:add", "my_agents:slow_add"]
LEFT, RIGHT = {"left": 1, "right": 2}, {"left": 3, "right": 4}
OPTIONS = (InputOption("approve", "Run it"), InputOption("deny", "Don't run it"))


def answer(**chosen: str) -> TurnInput:
    """A send that answers the calls of these ids."""
    options = ("approve", "deny")
    responses = [
        InputResponse(call, **({"option_id": said} if said in options else {"text": said}))
        for call, said in chosen.items()
    ]
    return TurnInput("\n".join(chosen.values()), responses=tuple(responses))


async def test_a_call_that_needs_approval_parks_the_turn_and_an_answer_goes_on_with_the_same_rounds(
    project: Path, stream: bool
) -> None:
    calls = [tool_call("add", LEFT, "a"), tool_call("slow_add", RIGHT, "b")]
    script = [completion("Let me see.", calls=calls), "3 and 7", "again"]
    async with serving(script, stream=stream, tools=TOOLS, approve=["add"]) as (adapter, model):
        parked, done, after = await say(adapter, "x", answer(a="approve"), "y")
    assert (parked.status, parked.usage) == (TurnStatus.WAITING, ONE_CALL)
    assert parked.events == (
        said("Let me see."),
        OperationStarted("a", "add", LEFT),
        OperationStarted("b", "slow_add", RIGHT),
        OperationFinished("b", OperationStatus.COMPLETED, 7),
        InputRequested("a", "May add run?", "add", LEFT, OPTIONS),
    )
    assert (done.status, done.usage) == (TurnStatus.COMPLETED, ONE_CALL)
    assert done.events == (OperationFinished("a", OperationStatus.COMPLETED, 3), said("3 and 7"))
    assert after.events == (said("again"),)
    assert model.bodies[1]["messages"][1:] == [
        {"role": "assistant", "content": "Let me see.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "b", "content": "7"},
        {"role": "tool", "tool_call_id": "a", "content": "3"},
    ]


@pytest.mark.parametrize(
    ("given", "told", "more"),
    [
        (answer(a="deny"), "The call was denied.", []),
        (answer(a="not on a Sunday"), "The call was denied: not on a Sunday", []),
        (TurnInput("never mind"), "The call was denied.", [{"role": "user", "content": "never mind"}]),
    ],
)
async def test_a_call_that_nobody_allows_is_rejected_and_the_model_is_told(
    project: Path, given: TurnInput, told: str, more: list[Any]
) -> None:
    script = [completion(None, calls=[tool_call("add", LEFT, "a")]), "as you wish"]
    async with serving(script, tools=TOOLS, approve=["add"]) as (adapter, model):
        _, done = await say(adapter, "x", given)
    assert done.status is TurnStatus.COMPLETED
    assert done.events == (OperationFinished("a", OperationStatus.REJECTED, told), said("as you wish"))
    assert model.bodies[1]["messages"][2:] == [{"role": "tool", "tool_call_id": "a", "content": told}, *more]


async def test_a_tool_may_say_itself_that_its_calls_need_approval(project: Path) -> None:
    calls = [tool_call("add", LEFT, "a"), tool_call("pay", {"amount": 5}, "b")]
    async with serving([completion(None, calls=calls), "paid"], tools=["my_agents:add", "my_agents:pay"]) as served:
        adapter, _ = served
        parked, done = await say(adapter, "x", answer(b="approve"))
    assert parked.status is TurnStatus.WAITING
    assert [event.operation_id for event in parked.events if isinstance(event, OperationFinished)] == ["a"]
    assert parked.events[-1] == InputRequested("b", "May pay run?", "pay", {"amount": 5}, OPTIONS)
    assert done.events == (OperationFinished("b", OperationStatus.COMPLETED, "paid 5"), said("paid"))


async def test_calls_without_an_answer_stay_parked_and_the_model_is_not_asked(project: Path) -> None:
    calls = [tool_call("add", LEFT, "a"), tool_call("slow_add", RIGHT, "b")]
    async with serving([completion(None, calls=calls), "done"], tools=TOOLS, approve=["add", "slow_add"]) as served:
        adapter, model = served
        first, second, third = await say(adapter, "x", answer(b="deny"), answer(a="approve"))
    asked = [
        [event.request_id for event in turn.events if isinstance(event, InputRequested)] for turn in (first, second)
    ]
    assert (asked, second.status) == ([["a", "b"], ["a"]], TurnStatus.WAITING)
    assert third.status is TurnStatus.COMPLETED
    assert len(model.bodies) == 2
    roles = [message["role"] for message in model.bodies[1]["messages"]]
    assert roles == ["user", "assistant", "tool", "tool"]


async def test_a_call_that_can_not_run_needs_no_approval(project: Path) -> None:
    script = [completion(None, calls=[tool_call("add", '{"left": 1', "a")]), "sorry"]
    async with serving(script, tools=TOOLS, approve=["add"]) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert turn.status is TurnStatus.COMPLETED


async def test_calls_of_tools_nobody_runs_stay_pending_and_the_conversation_goes_on() -> None:
    offered = {"type": "function", "function": {"name": "book", "parameters": {"type": "object"}}}
    script = [completion(None, calls=[tool_call("book", {"seat": 1})]), "fine"]
    async with serving(script, params={"tools": [offered]}) as (adapter, model):
        first, second = await say(adapter, "x", "y")
    assert (first.status, first.events) == (TurnStatus.COMPLETED, (OperationStarted("call_1", "book", {"seat": 1}),))
    assert second.events == (said("fine"),)
    assert model.bodies[1]["messages"][2] == {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": "The call was not executed.",
    }


# --- failures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "kind", "code", "acceptance", "requests", "says"),
    [
        (Reply(status=502, headers={"content-type": "text/html"}, body=HTML),
         FailureKind.PROVIDER, "PROVIDER_ERROR", Acceptance.UNKNOWN, 1, "HTTP 502: text/html <html>bad gateway</html>"),
        (Reply(status=200, headers={"content-type": "text/html"}, body=HTML),
         FailureKind.PROVIDER, "BAD_RESPONSE", Acceptance.STARTED, 1,
         "HTTP 200 text/html is not JSON: <html>bad gateway</html>"),
        (Reply(status=500), FailureKind.PROVIDER, "PROVIDER_ERROR", Acceptance.UNKNOWN, 1, "HTTP 500: without a"),
        (Reply(status=503), FailureKind.PROVIDER, "PROVIDER_UNAVAILABLE", Acceptance.REJECTED, 2, "HTTP 503"),
        (json_reply({"error": {"message": "slow down", "code": "rate"}}, 429),
         FailureKind.PROVIDER, "RATE_LIMITED", Acceptance.REJECTED, 2, "HTTP 429: slow down (rate)"),
        (json_reply({"error": {"message": "pay", "code": "insufficient_quota"}}, 429),
         FailureKind.PROVIDER, "QUOTA_EXHAUSTED", Acceptance.REJECTED, 1, "HTTP 429: pay"),
        (json_reply({"error": {"message": "bad field", "type": "invalid_request_error"}}, 400),
         FailureKind.ADAPTER, "REQUEST_REFUSED", Acceptance.REJECTED, 1, "HTTP 400: bad field (invalid_request_error)"),
        (Reply(status=401), FailureKind.ADAPTER, "AUTHENTICATION_FAILED", Acceptance.REJECTED, 1, "HTTP 401"),
        (Reply(status=408), FailureKind.PROVIDER, "PROVIDER_ERROR", Acceptance.UNKNOWN, 1, "HTTP 408"),
        (Reply(status=307, headers={"location": "/x"}),
         FailureKind.ADAPTER, "REQUEST_REDIRECTED", Acceptance.REJECTED, 1, "HTTP 307: it points to /x, which is not"),
        (json_reply({"error": {"message": "overloaded", "code": 502}}),
         FailureKind.PROVIDER, "PROVIDER_ERROR", Acceptance.STARTED, 1, "overloaded (502)"),
        (json_reply({"hello": 1}), FailureKind.PROVIDER, "BAD_RESPONSE", Acceptance.STARTED, 1, "the response has no"),
        (completion("half", finish="error"),
         FailureKind.PROVIDER, "PROVIDER_ERROR", Acceptance.STARTED, 1, "the provider ended its answer with an error"),
        (completion(""),
         FailureKind.PROVIDER, "EMPTY_RESPONSE", Acceptance.STARTED, 1, "the provider's answer is wholly empty"),
        (Reply(drop=True), FailureKind.PROVIDER, "CONNECTION_BROKEN", Acceptance.UNKNOWN, 1, ""),
        (Reply(body=b'{"choices', cut=True), FailureKind.PROVIDER, "CONNECTION_BROKEN", Acceptance.STARTED, 1, ""),
        (Reply(silent=True), FailureKind.PROVIDER, "PROVIDER_TIMEOUT", Acceptance.UNKNOWN, 1, "ReadTimeout"),
        (Reply(headers={"content-encoding": "gzip"}, body=b"not gzip"),
         FailureKind.PROVIDER, "BAD_RESPONSE", Acceptance.STARTED, 1, "DecodingError"),
    ],
)  # fmt: skip
async def test_whose_fault_a_failure_is(
    reply: Any, kind: FailureKind, code: str, acceptance: Acceptance, requests: int, says: str
) -> None:
    error, made = await failure(serving([reply] * 2, max_retries=1, timeout=0.2))
    assert (error.kind, error.code, error.acceptance, made) == (kind, code, acceptance, requests)
    assert str(error).startswith(says)


async def test_nobody_listens() -> None:
    async with ModelEndpoint() as model:
        gone = model.base_url
    adapter = factory.build(arm(OpenAIOptions(base_url=gone, max_retries=0)))
    with pytest.raises(SendFailure, match="ConnectError") as caught:
        await say(adapter, "x")
    assert (caught.value.code, caught.value.acceptance) == ("CONNECTION_REFUSED", Acceptance.REJECTED)
    await adapter.close()


@pytest.mark.parametrize("key", ["sk-sec\nret", "sk-secrét"])
async def test_a_key_that_no_header_may_hold_is_not_shown(key: str) -> None:
    ctx = FakeContext()
    ctx.secrets = FakeSecrets({"KEY": key})
    error, made = await failure(serving(api_key_env="KEY"), ctx=ctx)
    assert (error.kind, error.code, made) == (FailureKind.ADAPTER, "REQUEST_INVALID", 0)
    assert str(error) == "a header of the request holds a character that HTTP does not allow"
    assert error.__cause__ is None


async def test_the_newline_at_the_end_of_a_key_file_is_no_part_of_the_key() -> None:
    ctx = FakeContext()
    ctx.secrets = FakeSecrets({"KEY": "sk-secret\n"})
    async with serving(["ok"], api_key_env="KEY") as (adapter, model):
        await say(adapter, "x", ctx=ctx)
    assert model.requests[0].headers["authorization"] == "Bearer sk-secret"


async def test_a_body_in_a_message_has_an_end() -> None:
    error, _ = await failure(serving([Reply(status=500, body=b"x" * 10_000_000)]))
    assert len(str(error)) < 600


EMPTY_STREAM = [
    {"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]},
    {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 0},
    },
]


async def test_an_03_a_wholly_empty_stream_is_an_outage_unless_it_is_accepted() -> None:
    reply = Reply(headers=STREAM, body=tuple(sse(json.dumps(chunk)) for chunk in EMPTY_STREAM))
    error, _ = await failure(serving([reply], stream=True))
    assert (error.code, error.partial) == (
        "EMPTY_RESPONSE",
        Turn(status=TurnStatus.FAILED, usage=Usage(input_tokens=9, output_tokens=0, requests=1)),
    )
    async with serving([reply], stream=True, empty_reply="accept") as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert (turn.status, turn.events) == (TurnStatus.COMPLETED, ())


def deltas(*texts: str) -> tuple[bytes, ...]:
    return tuple(sse(json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]})) for text in texts)


FINISH = sse(json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply(headers=STREAM, body=deltas("a", "b")), "STREAM_CUT"),
        (Reply(headers=STREAM, body=(*deltas("a", "b"), b'data: {"choi')), "STREAM_CUT"),
        (Reply(headers=STREAM, body=deltas("a", "b"), cut=True), "CONNECTION_BROKEN"),
        (Reply(headers=STREAM, body=(*deltas("a", "b"), sse('{"error": {"message": "boom"}}'))), "PROVIDER_ERROR"),
        (Reply(headers=STREAM, body=(*deltas("a", "b"), sse("<html>"))), "BAD_RESPONSE"),
    ],
    ids=["no-end", "inside-an-event", "connection", "error-event", "html"],
)
async def test_a_broken_stream_keeps_what_came(reply: Reply, code: str) -> None:
    error, made = await failure(serving([reply], stream=True))
    assert (error.kind, error.code, error.acceptance, made) == (FailureKind.PROVIDER, code, Acceptance.STARTED, 1)
    assert error.partial is not None
    assert error.partial.events == (said("ab"),)
    assert error.partial.usage == Usage(requests=1, unknown_calls=1)


@pytest.mark.parametrize("text", ["", "half"])
async def test_oa_10_what_a_failed_answer_cost_is_charged(stream: bool, text: str) -> None:
    broken = {"error": {"code": "server_error", "message": "m"}, "usage": {"prompt_tokens": 40, "completion_tokens": 7}}
    streamed_reply = Reply(headers=STREAM, body=(*(deltas(text) if text else ()), sse(json.dumps(broken))))
    error, _ = await failure(serving([streamed_reply if stream else json_reply(broken)], stream=stream))
    assert (error.kind, error.code) == (FailureKind.PROVIDER, "PROVIDER_ERROR")
    assert error.partial is not None
    assert error.partial.usage == Usage(input_tokens=40, output_tokens=7, requests=1)
    assert error.partial.events == ((said(text),) if text and stream else ())


@pytest.mark.parametrize(
    ("tail", "notes"),
    [((FINISH, b"data: [DONE]"), 0), ((FINISH[:-1],), 1), ((FINISH, b'data: {"usage'), 1)],
    ids=["done-without-end", "finish-without-end", "usage-cut"],
)
async def test_oa_04_an_unterminated_last_event_is_read_and_noted(tail: tuple[bytes, ...], notes: int) -> None:
    ctx = FakeContext()
    async with serving([Reply(headers=STREAM, body=(*deltas("a"), *tail))], stream=True) as (adapter, _):
        (turn,) = await say(adapter, "x", ctx=ctx)
    assert turn.events == (said("a"),)
    assert len(ctx.logged) == notes


async def test_a_server_that_does_not_stream_is_understood() -> None:
    async with serving([json_reply(completion("whole"))], stream=True) as (adapter, _):
        assert (await say(adapter, "x"))[0].events == (said("whole"),)
    async with serving([streamed(completion("pieces"))]) as (adapter, _):
        assert (await say(adapter, "x"))[0].events == (said("pieces"),)


async def test_a_failed_send_leaves_the_conversation_as_it_was_and_tells_what_it_cost(project: Path) -> None:
    call = completion("Adding.", calls=[tool_call("add", {"left": 1, "right": 1})])
    ctx = FakeContext()
    async with serving([call, Reply(status=503), "again"], tools=["my_agents:add"], max_retries=0) as (adapter, model):
        session = await adapter.open(ctx)
        with pytest.raises(SendFailure) as caught:
            await session.send(TurnInput("x"), ctx)
        await session.send(TurnInput("y"), ctx)
    partial_turn = caught.value.partial
    assert caught.value.acceptance is Acceptance.STARTED
    assert partial_turn is not None
    assert partial_turn.events[0] == said("Adding.")
    assert partial_turn.events[2] == OperationFinished("call_1", OperationStatus.COMPLETED, 2)
    assert partial_turn.usage == ONE_CALL
    assert model.bodies[-1]["messages"] == [{"role": "user", "content": "y"}]


async def test_the_deadline_ends_a_send_and_its_cost_is_unknown() -> None:
    error, _ = await failure(serving([Reply(silent=True)]), ctx=FakeContext(limit=0.1))
    assert (error.kind, error.code) == (FailureKind.DEADLINE, "TURN_TIMEOUT")
    assert error.partial is not None
    assert error.partial.usage == Usage(requests=1, unknown_calls=1)


async def test_cancelling_is_prompt() -> None:
    async with serving([Reply(silent=True)]) as (adapter, model):
        task = asyncio.ensure_future(say(adapter, "x"))
        await asyncio.sleep(0.1)
        assert len(model.requests) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 1)


# --- retries --------------------------------------------------------------------------------------------------


class QuickClock:
    """Wall time of RL-02's moment; waits end at once and are kept."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def wall(self) -> float:
        return 1_767_225_600.0  # Thu, 01 Jan 2026 00:00:00 GMT

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({}, 0.25, 0.75),
        ({"retry-after": "7"}, 7, 7.5),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:09 GMT"}, 9, 9.5),
        ({"retry-after-ms": "1500", "retry-after": "60"}, 1.5, 2),
        ({"retry-after": "soon", "x-ratelimit-reset-tokens": "6s"}, 6, 6.5),
        ({"retry-after": "-5"}, 0.25, 0.75),
        ({"retry-after": "Wed, 31 Dec 2025 23:59:00 GMT"}, 0, 0.5),
    ],
)
async def test_retries_wait_as_long_as_the_provider_asks(headers: dict[str, str], least: float, most: float) -> None:
    clock = QuickClock()
    ctx = FakeContext(clock=clock)
    async with serving([Reply(status=429, headers=headers), "ok"]) as (adapter, _):
        (turn,) = await say(adapter, "x", ctx=ctx)
    assert turn.events == (said("ok"),)
    assert len(clock.slept) == 1
    assert least <= clock.slept[0] <= most
    assert "retry 1 of 2" in ctx.logged[0]


async def test_a_long_wait_is_left_to_the_engine() -> None:
    clock = QuickClock()
    reply = Reply(status=429, headers={"retry-after": "90"})
    error, made = await failure(serving([reply] * 3), ctx=FakeContext(clock=clock))
    assert (error.retry_after, made, clock.slept) == (90, 1, [])


async def test_no_retry_when_the_deadline_comes_first() -> None:
    reply = Reply(status=429, headers={"retry-after": "5"})
    error, made = await failure(serving([reply] * 3), ctx=FakeContext(limit=2))
    assert (error.code, made) == ("RATE_LIMITED", 1)


async def test_the_wait_grows_and_differs_between_cases() -> None:
    slept: list[list[float]] = []
    for seed in (1, 2):
        ctx = FakeContext(clock=QuickClock())
        ctx.seed = seed
        await failure(serving([Reply(status=503)] * 9, max_retries=4), ctx=ctx)
        slept.append(ctx.clock.slept)  # pyright: ignore
    assert slept[0] != slept[1]
    for waits in slept:
        assert all(0.25 * 2**index <= wait <= 0.75 * 2**index for index, wait in enumerate(waits))
        assert len(waits) == 4


@pytest.mark.parametrize(("idempotent", "made"), [(False, 1), (True, 3)])
async def test_what_may_have_been_accepted_is_repeated_only_when_that_does_no_harm(idempotent: bool, made: int) -> None:
    script = [Reply(status=502), Reply(drop=True), "ok"]
    ctx = FakeContext(clock=QuickClock())
    async with serving(script, idempotent=idempotent) as (adapter, model):
        try:
            await say(adapter, "x", ctx=ctx)
        except SendFailure:
            assert not idempotent
    assert len(model.requests) == made


# --- configuration --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, None),
        ({"params": {"tools": [{"type": "function"}]}}, None),
        ({"server_tools": True}, "the provider runs tools on its side"),
        ({"params": {"web_search_options": {"x": 1}}}, "the provider runs tools on its side (web_search_options)"),
        ({"params": {"tools": [{"type": "web_search"}]}}, "the provider runs tools on its side (tools[web_search])"),
    ],
)
async def test_actions_are_complete_unless_the_provider_has_tools_of_its_own(options: Any, reason: str | None) -> None:
    async with serving(**options) as (adapter, _):
        assert adapter.coverage.actions == (complete if reason is None else partial(reason))


@pytest.mark.parametrize(
    ("options", "model", "says"),
    [
        ({}, "m", "arms.a.api_key_env: https://api.openai.com/v1 needs a key"),
        ({"base_url": "http://x/v1"}, None, "arms.a.model: name the model"),
        ({"base_url": "http://x", "tools": ["my_agents:plain_function"]}, "m",
         "arms.a.tools: my_agents:plain_function is a function, no tool; put @tool on the function"),
        ({"base_url": "http://x", "tools": ["my_agents:add"] * 2}, "m", "two tools are named 'add'"),
        ({"base_url": "http://x", "tools": ["my_agents:add"], "approve": ["ad"]}, "m",
         "arms.a.approve: no tool is named 'ad'; there are: add"),
        ({"base_url": "http://x", "tools": ["my_agents:missing"]}, "m", "arms.a.tools: my_agents has no 'missing'"),
    ],
)  # fmt: skip
def test_a_wrong_arm_says_what_to_do(project: Path, options: Any, model: str | None, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        factory.build(arm(OpenAIOptions.model_validate(options), model))
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    "options", [{"params": {"model": "x"}}, {"base_url": "ftp://x"}, {"key": "sk"}, {"tools": ["add"]}, {"timeout": 0}]
)
def test_wrong_options_are_refused(options: Any) -> None:
    with pytest.raises(ValidationError):
        OpenAIOptions.model_validate(options)


def test_the_agent_is_model_prompt_parameters_and_tools(project: Path) -> None:
    def identity(model: str = "m", **options: Any) -> Any:
        return factory.identify(arm(OpenAIOptions.model_validate({"base_url": "http://x", **options}), model))

    same = [identity(), identity(api_key_env="KEY"), identity(max_retries=9), identity(timeout=1)]
    assert len({one.digest for one in same}) == 1
    others = [identity("n"), identity(system="s"), identity(temperature=1), identity(base_url="http://y")]
    assert len({one.digest for one in [*same, *others]}) == 5
    assert identity(tools=["my_agents:add"]).sources == (project / "my_agents.py",)


async def test_a_missing_key_is_a_configuration_error_before_anything_is_sent() -> None:
    async with serving(api_key_env="NOT_SET") as (adapter, model):
        with pytest.raises(ConfigurationError, match="NOT_SET"):
            await say(adapter, "x")
    assert model.requests == []
