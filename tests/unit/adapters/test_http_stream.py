"""Streams of an HTTP agent: events of its own by a mapping, and the AI SDK's UI message stream."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import ValidationError

from evalfleet.errors import Acceptance, FailureKind, SendFailure
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
from evalfleet.model.model_call import CallFate
from evalfleet.model.turn import InputFile, InputResponse, Turn, TurnInput, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.testing.adapter_context import FakeContext, FakeModelCalls
from evalfleet.testing.http_endpoint import HttpEndpoint, Reply, json_reply
from evalfleet_adapters.http import HttpAdapter, HttpOptions
from evalfleet_adapters.http_mapping import ResponseMapping
from evalfleet_adapters.http_stream import EventStream, Heard, HeardEvents, HeardUiMessage
from tests.unit.adapters.broken_off import invented, recorded

OWN = {
    "stream": "sse",
    "events": {
        "kind": "kind", "delta": {"token": "text"}, "thinking": {"thought": "why"}, "done": "end", "ignore": ["ping"],
    },
    "session": "thread",
    "status": "state",
    "statuses": {"done": "completed"},
    "usage": {"input_tokens": "usage.in", "output_tokens": "usage.out"},
    "tools": {
        "items": "call", "id": "id", "name": "name", "input": "args", "output": "result", "status": "state",
        "statuses": {"running": "pending"},
    },
}  # fmt: skip
UI = {
    "stream": "ui-message",
    "usage": {
        "input_tokens": "metadata.usage.inputTokens", "output_tokens": "metadata.usage.outputTokens",
        "cache_read_tokens": "metadata.usage.cachedInputTokens", "cached_in_input": True,
    },
    "data": "data.cart",
}  # fmt: skip
MAPPED = {"generic": ResponseMapping.model_validate(OWN), "ui_message_stream": ResponseMapping.model_validate(UI)}
EVENT_STREAM = {"content-type": "text/event-stream"}
each = pytest.mark.parametrize("name", MAPPED)


def hears(name: str) -> Heard:
    mapped = MAPPED[name]
    return HeardEvents(mapped, ()) if mapped.stream == "sse" else HeardUiMessage(mapped, (), None)


def read(name: str, data: bytes, size: int | None = None) -> Turn:
    heard = hears(name)
    stream = EventStream(heard, lambda _: None)
    for start in range(0, len(data), size or len(data)):
        stream.feed(data[start : start + (size or len(data))])
    stream.end()
    return heard.turn()


def said(text: str) -> Message:
    return Message(Role.ASSISTANT, text)


def sse(*documents: Any) -> Reply:
    body = tuple(f"data: {each if isinstance(each, str) else json.dumps(each)}\n\n".encode() for each in documents)
    return Reply(headers=EVENT_STREAM, body=body)


@asynccontextmanager
async def serving(script: Iterable[Reply], response: Any, **options: Any) -> Any:
    replies = list(script)
    async with HttpEndpoint(lambda _: replies.pop(0)) as endpoint:
        adapter = HttpAdapter(HttpOptions.model_validate({"url": endpoint.url, "response": response, **options}))
        try:
            yield adapter, endpoint
        finally:
            await adapter.close()


async def say(adapter: HttpAdapter, *inputs: str | TurnInput, ctx: FakeContext | None = None) -> list[Turn]:
    ctx = ctx or FakeContext()
    session = await adapter.open(ctx)
    return [await session.send(TurnInput(given) if isinstance(given, str) else given, ctx) for given in inputs]


# --- whole, and broken off ------------------------------------------------------------------------------------


def test_a_whole_stream_of_events_keeps_its_order() -> None:
    turn = read("generic", recorded("generic"))
    assert turn.events == (
        said("Looking it up 🙂."),
        OperationStarted("c1", "prices", {"of": "café"}),
        OperationStarted("c2", "order", {"order": 9007199254740993}),
        OperationFinished("c2", OperationStatus.FAILED, "sold out"),
        OperationFinished("c1", OperationStatus.COMPLETED, {"euro": 3}),
        Unrecognised("telepathy", {"kind": "telepathy", "said": "a kind of event that nobody knows"}),
        Thinking("Say it."),
        said("It costs 3 €."),
    )
    assert (turn.status, turn.usage) == (TurnStatus.COMPLETED, Usage(input_tokens=120, output_tokens=40))
    assert turn.coverage == {}


def test_a_whole_ui_message_stream_keeps_its_order() -> None:
    turn = read("ui_message_stream", recorded("ui_message_stream"))
    assert [event for event in turn.events if not isinstance(event, Unrecognised)] == [
        Thinking("The customer wants café prices."),
        said("Looking it up 🙂."),
        OperationStarted("c1", "prices", {"of": "café"}),
        OperationStarted("c2", "order", {"order": 9007199254740993}),
        OperationFinished("c1", OperationStatus.COMPLETED, {"euro": 3}),
        OperationFinished("c2", OperationStatus.FAILED, "sold out"),
        OperationStarted("c3", "order", MISSING, raw_input='{"ord'),
        OperationFinished("c3", OperationStatus.FAILED, "the input is no JSON"),
        said("It costs 3 €, sold out."),
    ]
    unknown = [event.name for event in turn.events if isinstance(event, Unrecognised)]
    assert unknown == ["telepathy", "source-url", "data-cart", "file"]
    assert (turn.status, turn.data) == (TurnStatus.COMPLETED, {"items": [1]})
    assert turn.usage == Usage(input_tokens=20, output_tokens=40, cache_read_tokens=100)


@each
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_however_the_network_cuts_it_the_turn_is_the_same(name: str, size: int) -> None:
    assert read(name, recorded(name), size) == read(name, recorded(name))


@each
def test_cut_at_every_byte_it_fails_with_what_came_and_invents_nothing(name: str) -> None:
    data = recorded(name)
    whole = read(name, data).events
    longest = 0
    for end in range(len(data)):
        heard = hears(name)
        stream = EventStream(heard, lambda _: None)
        stream.feed(data[:end])
        try:
            stream.end()
            events = heard.turn().events
        except SendFailure as failure:
            assert (failure.kind, failure.code) == (FailureKind.PROVIDER, "STREAM_CUT"), end
            assert failure.acceptance is Acceptance.STARTED
            rescued = stream.rescued()
            events = () if rescued is None else rescued.events
            longest = max(longest, len(events))
        assert invented(events, whole) == [], f"cut after {end} bytes"
    assert longest == len(whole), "what came before the cut is lost"


@each
def test_rubbish_in_the_middle_is_a_failure_of_the_endpoint(name: str) -> None:
    data = recorded(name)
    middle = data.index(b"\n\n", len(data) // 2) + 2
    with pytest.raises(SendFailure, match="not JSON") as caught:
        read(name, data[:middle] + b"data: {rubbish\n\n" + data[middle:])
    assert (caught.value.kind, caught.value.code) == (FailureKind.PROVIDER, "BAD_RESPONSE")


# --- over HTTP ------------------------------------------------------------------------------------------------


async def test_a_stream_is_read_and_its_session_sent_back() -> None:
    whole = Reply(headers=EVENT_STREAM, body=recorded("generic"))
    async with serving([whole, whole], OWN) as (adapter, endpoint):
        turns = await say(adapter, "one", "two")
    assert [turn.status for turn in turns] == [TurnStatus.COMPLETED] * 2
    assert [request.json for request in endpoint.requests] == [{"text": "one"}, {"text": "two", "session": "th-1"}]


@pytest.mark.parametrize(
    ("reply", "code", "came"),
    [
        (Reply(headers=EVENT_STREAM, body=(recorded("generic")[:200],)), "STREAM_CUT", True),
        (Reply(headers=EVENT_STREAM, body=(recorded("generic")[:200],), cut=True), "CONNECTION_BROKEN", True),
        (json_reply({"reply": "x"}), "BAD_RESPONSE", False),
        (Reply(status=503), "PROVIDER_UNAVAILABLE", False),
    ],
    ids=["no-end", "connection", "no-stream", "refused"],
)
async def test_whose_fault_a_failure_is(reply: Reply, code: str, came: bool) -> None:
    async with serving([reply], OWN, max_retries=0) as (adapter, _):
        with pytest.raises(SendFailure) as caught:
            await say(adapter, "x")
    assert (caught.value.kind, caught.value.code) == (FailureKind.PROVIDER, code)
    assert (caught.value.partial is not None) is came
    if caught.value.partial is not None:
        assert caught.value.partial.events[0] == said("Looking it up 🙂.")


@pytest.mark.parametrize(
    ("response", "documents", "events"),
    [
        ({"events": {"delta": "choices.0.delta.content"}},
         [{"choices": [{"delta": {"content": "a"}}]}, {"choices": [{"delta": {"content": "b"}}]}, "[DONE]"],
         (said("ab"),)),
        ({"events": {"data": "text", "delta": "."}}, ["Hello", " world"], (said("Hello world"),)),
        ({"events": {"delta": "t"}, "reply": "full"}, [{"t": "a"}, {"full": "abc"}], (said("a"),)),
        ({"reply": "full"}, [{"full": "abc"}], ()),
        ({"events": {"delta": "t"}, "tools": {"items": ".", "name": "tool", "output": "out"}},
         [{"t": "a"}, {"tool": "f", "out": 1}, {"tool": "g", "out": 2}],
         (said("a"), OperationStarted("0", "f"), OperationFinished("0", OperationStatus.COMPLETED, 1),
          OperationStarted("1", "g"), OperationFinished("1", OperationStatus.COMPLETED, 2))),
    ],
    ids=["chat-chunks", "text", "reply-beside-pieces", "reply-alone", "calls-without-id"],
)  # fmt: skip
async def test_a_mapping_of_events(response: Any, documents: Any, events: Any) -> None:
    async with serving([sse(*documents)], {"stream": "sse", **response}) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert turn.events == events
    assert turn.reply == ("abc" if "reply" in response else None)


async def test_what_the_stream_does_not_say_takes_its_coverage_back() -> None:
    response = {
        "stream": "sse", "events": {"delta": "t"}, "status": "state",
        "tools": {"items": "calls", "name": "tool", "status": "state"},
    }  # fmt: skip
    async with serving([sse({"calls": [{"id": 1}]}, {"calls": {"tool": "f", "state": "dreaming"}})], response) as (
        adapter,
        _,
    ):
        (turn,) = await say(adapter, "x")
    assert set(turn.coverage) == {Channel.ACTIONS, Channel.MESSAGES, Channel.STATUS}
    assert turn.coverage[Channel.MESSAGES] == partial("no event has a piece of the reply where events.delta says")
    assert turn.events[:2] == (Unrecognised("message", {"calls": [{"id": 1}]}), OperationStarted("0", "f"))
    assert isinstance(turn.events[-1], Unrecognised)


async def test_an_error_in_a_stream_of_events_fails_the_turn() -> None:
    response = {"stream": "sse", "events": {"delta": "t"}, "error": "error"}
    async with serving([sse({"t": "a"}, {"error": "out of paper"})], response) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert (turn.status, turn.events) == (TurnStatus.FAILED, (said("a"), ErrorReported("out of paper")))


async def test_questions_in_a_stream_of_events_park_the_turn() -> None:
    response = {"stream": "sse", "events": {"delta": "t"}, "requests": {"items": "ask", "id": "id", "prompt": "q"}}
    async with serving([sse({"t": "a"}, {"ask": {"id": "q1", "q": "Sure?"}})], response) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert turn.status is TurnStatus.WAITING
    assert turn.events == (said("a"), InputRequested("q1", "Sure?"))


# --- the AI SDK -----------------------------------------------------------------------------------------------

CHAT = {"id": "${case}", "messages": "${messages}"}
CALL = {"type": "tool-input-available", "toolCallId": "c1", "toolName": "pay", "input": {"euro": 3}}
ASK = {"type": "tool-approval-request", "approvalId": "a1", "toolCallId": "c1"}
OPTIONS = (InputOption("approve", "Run it"), InputOption("deny", "Don't run it"))
START, FINISH = {"type": "start", "messageId": "m1"}, {"type": "finish"}


def text_part(text: str, number: str = "t") -> list[dict[str, Any]]:
    return [
        {"type": "text-start", "id": number}, {"type": "text-delta", "id": number, "delta": text},
        {"type": "text-end", "id": number},
    ]  # fmt: skip


async def test_the_whole_conversation_goes_out_as_ui_messages() -> None:
    whole = Reply(headers=EVENT_STREAM, body=recorded("ui_message_stream"))
    file = InputFile("a.png", "image/png", b"1")
    second = sse(START, *text_part("Bye."), FINISH, "[DONE]")
    async with serving([whole, second], UI, request=CHAT) as (adapter, endpoint):
        await say(adapter, TurnInput("Hi.", files=(file,)), "Bye.")
    first, then = [request.json["messages"] for request in endpoint.requests]
    assert first == [
        {"id": "message-0", "role": "user", "parts": [
            {"type": "text", "text": "Hi."},
            {"type": "file", "mediaType": "image/png", "filename": "a.png", "url": "data:image/png;base64,MQ=="},
        ]},
    ]  # fmt: skip
    assert [message["role"] for message in then] == ["user", "assistant", "user"]
    assert then[1]["id"] == "m1"
    assert [(part["type"], part.get("state")) for part in then[1]["parts"]] == [
        ("step-start", None), ("reasoning", "done"), ("text", "done"), ("tool-prices", "output-available"),
        ("dynamic-tool", "output-error"), ("step-start", None), ("source-url", None), ("data-cart", None),
        ("file", None), ("tool-order", "output-error"), ("text", "done"),
    ]  # fmt: skip
    assert then[1]["parts"][3] == {
        "type": "tool-prices", "toolCallId": "c1", "state": "output-available", "input": {"of": "café"},
        "output": {"euro": 3},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("response", "answer", "end", "status"),
    [
        (InputResponse("a1", option_id="approve"), {"approved": True},
         {"type": "tool-output-available", "toolCallId": "c1", "output": "paid"}, OperationStatus.COMPLETED),
        (InputResponse("a1", text="too dear"), {"approved": False, "reason": "too dear"},
         {"type": "tool-output-denied", "toolCallId": "c1"}, OperationStatus.REJECTED),
    ],
)  # fmt: skip
async def test_an_approval_goes_on_in_the_same_message(
    response: InputResponse, answer: Any, end: Any, status: OperationStatus
) -> None:
    script = [
        sse(START, {"type": "start-step"}, CALL, ASK, {"type": "finish-step"}, FINISH, "[DONE]"),
        sse(START, end, *text_part("Done."), FINISH, "[DONE]"),
        sse(*text_part("Bye."), "[DONE]"),
    ]
    async with serving(script, UI, request=CHAT) as (adapter, endpoint):
        parked, done, _ = await say(adapter, "Pay.", TurnInput("", responses=(response,)), "Bye.")
    assert parked.status is TurnStatus.WAITING
    assert parked.events == (
        OperationStarted("c1", "pay", {"euro": 3}),
        InputRequested("a1", "May pay run?", "pay", {"euro": 3}, OPTIONS),
        *parked.events[2:],
    )
    ended = OperationFinished("c1", status, MISSING if status is OperationStatus.REJECTED else "paid")
    assert [event for event in done.events if not isinstance(event, Unrecognised)] == [ended, said("Done.")]
    again = endpoint.requests[1].json["messages"]
    assert [message["role"] for message in again] == ["user", "assistant"]
    assert again[1]["parts"][1]["state"] == "approval-responded"
    assert again[1]["parts"][1]["approval"] == {"id": "a1", **answer}
    last = endpoint.requests[2].json["messages"]
    assert [message["role"] for message in last] == ["user", "assistant", "user"]
    assert last[1]["parts"][1]["state"] in ("output-available", "output-denied")
    assert last[1]["parts"][2]["text"] == "Done."


async def test_an_approval_that_nobody_gives_is_denied_when_something_else_is_said() -> None:
    script = [sse(START, CALL, ASK, FINISH), sse({"type": "start", "messageId": "m2"}, *text_part("Fine."), FINISH)]
    async with serving(script, UI, request=CHAT) as (adapter, endpoint):
        _, done = await say(adapter, "Pay.", "Never mind.")
    assert done.events[:2] == (OperationFinished("c1", OperationStatus.REJECTED), said("Fine."))
    again = endpoint.requests[1].json["messages"]
    assert [message["role"] for message in again] == ["user", "assistant", "user"]
    assert again[1]["parts"][0]["state"] == "output-denied"
    assert again[1]["parts"][0]["approval"] == {"id": "a1", "approved": False}


async def test_a_failed_send_leaves_the_conversation_as_it_was() -> None:
    script = [sse(START, *text_part("half")), sse(START, *text_part("whole"), FINISH)]
    ctx = FakeContext()
    async with serving(script, UI, request=CHAT) as (adapter, endpoint):
        session = await adapter.open(ctx)
        with pytest.raises(SendFailure):
            await session.send(TurnInput("one"), ctx)
        await session.send(TurnInput("two"), ctx)
    assert [message["parts"][0]["text"] for message in endpoint.requests[1].json["messages"]] == ["two"]


@pytest.mark.parametrize(
    ("chunks", "status", "events"),
    [
        ([*text_part("x"), {"type": "finish", "finishReason": "length"}], TurnStatus.TRUNCATED, (said("x"),)),
        ([*text_part("x"), {"type": "finish", "finishReason": "content-filter"}], TurnStatus.FAILED,
         (said("x"), ErrorReported("the application finished with the reason content-filter"))),
        ([*text_part("x"), {"type": "error", "errorText": "out of paper"}, FINISH], TurnStatus.FAILED,
         (said("x"), ErrorReported("out of paper"))),
        ([*text_part("x"), {"type": "abort", "reason": "tired"}], TurnStatus.FAILED,
         (said("x"), ErrorReported("tired"))),
        ([CALL, FINISH], TurnStatus.COMPLETED, (OperationStarted("c1", "pay", {"euro": 3}),)),
        ([{"type": "tool-input-start", "toolCallId": "c1", "toolName": "pay"},
          {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": '{"eu'}, FINISH], TurnStatus.COMPLETED,
         (OperationStarted("c1", "pay", MISSING, raw_input='{"eu'),)),
        ([{"type": "tool-input-error", "toolCallId": "c1", "toolName": "pay", "input": {}, "errorText": "no such tool"},
          {"type": "tool-output-error", "toolCallId": "c1", "errorText": "no such tool"}, FINISH], TurnStatus.COMPLETED,
         (OperationStarted("c1", "pay", {}), OperationFinished("c1", OperationStatus.FAILED, "no such tool"))),
        ([{"type": "tool-output-available", "toolCallId": "zz", "output": 1}, FINISH], TurnStatus.COMPLETED,
         (Unrecognised("tool-output-available", {"type": "tool-output-available", "toolCallId": "zz", "output": 1}),)),
    ],
)  # fmt: skip
async def test_how_a_ui_message_ends(chunks: Any, status: TurnStatus, events: Any) -> None:
    async with serving([sse(*chunks, "[DONE]")], {"stream": "ui-message"}) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert (turn.status, turn.events) == (status, events)


def test_what_a_ui_message_stream_can_show() -> None:
    shown = ResponseMapping.model_validate({"stream": "ui-message"}).coverage()
    assert (shown.actions, shown.messages, shown.status) == (complete, complete, complete)
    assert shown.usage == unavailable("response.usage is not mapped")
    assert shown.events == partial("the endpoint shows only what the application forwards")


@pytest.mark.parametrize(
    ("response", "says"),
    [
        ({"reply": "x", "events": {"delta": "x"}}, "events are of a stream"),
        ({"stream": "sse"}, "name where the reply's pieces stand"),
        ({"stream": "sse", "reply": "x", "body": "text"}, "a stream has no body"),
        ({"stream": "ui-message", "reply": "x"}, "has its own place for reply"),
        ({"stream": "ui-message", "events": {"delta": "x"}}, "events are of a stream"),
        ({"stream": "sse", "events": {"delta": "a..b"}}, "a path is dotted"),
    ],
)
def test_a_wrong_mapping_is_refused(response: Any, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        ResponseMapping.model_validate(response)


async def test_answers_need_a_place_in_the_request_of_a_chat() -> None:
    given = TurnInput("", responses=(InputResponse("a1", option_id="approve"),))
    async with serving([], UI, request={"text": "${text}"}) as (adapter, endpoint):
        with pytest.raises(SendFailure, match="no \\$\\{responses\\}"):
            await say(adapter, given)
    assert endpoint.requests == []


@pytest.mark.parametrize(
    ("response", "reply", "used"),
    [
        (OWN, Reply(headers=EVENT_STREAM, body=recorded("generic")), Usage(input_tokens=120, output_tokens=40)),
        ({"reply": "r", "usage": {"input_tokens": "in"}}, json_reply({"r": "x", "in": 3}), Usage(input_tokens=3)),
        ({"reply": "r", "usage": {"input_tokens": "in"}}, json_reply({"r": "x"}), None),
        ({"reply": "r"}, json_reply({"r": "x"}), None),
    ],
    ids=["stream", "json", "not-told", "not-mapped"],
)
async def test_who_rations_calls_is_told_what_an_answer_used(response: Any, reply: Reply, used: Usage | None) -> None:
    ctx, calls = FakeContext(), FakeModelCalls()
    ctx.calls = calls
    async with serving([reply], response) as (adapter, _):
        await say(adapter, "x", ctx=ctx)
    assert [end and (end.fate, end.usage) for _, end in calls.made] == [(CallFate.ANSWERED, used)]
