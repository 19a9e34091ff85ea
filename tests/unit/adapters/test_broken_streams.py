"""Streams of models that break off at any byte: nothing is raised but SendFailure, and no event is invented."""

from __future__ import annotations

from typing import Any

import pytest

from evalfleet.errors import Acceptance, FailureKind, SendFailure
from evalfleet.model.events import (
    MISSING,
    Message,
    OperationFinished,
    OperationStarted,
    OperationStatus,
    Role,
    Thinking,
    Unrecognised,
)
from evalfleet.model.turn import Turn
from evalfleet.model.usage import Usage
from evalfleet_adapters.anthropic_options import AnthropicOptions
from evalfleet_adapters.chat_wire import ChatWire
from evalfleet_adapters.converters.model_reply import Finish, ModelReply
from evalfleet_adapters.messages_wire import MessagesWire
from evalfleet_adapters.model_stream import AnswerStream
from evalfleet_adapters.openai_options import OpenAIOptions
from evalfleet_adapters.responses_wire import ResponsesWire
from evalfleet_adapters.wire import Wire
from tests.unit.adapters.broken_off import invented, recorded

WIRES: dict[str, Wire] = {
    "openai_chat": ChatWire("m", OpenAIOptions.model_validate({}), ()),
    "openai_responses": ResponsesWire("m", OpenAIOptions.model_validate({"api": "responses"}), ()),
    "anthropic_messages": MessagesWire("m", AnthropicOptions.model_validate({}), ()),
}
each = pytest.mark.parametrize("name", WIRES)


def read(name: str, data: bytes, size: int | None = None) -> ModelReply:
    stream = AnswerStream(WIRES[name], lambda _: None)
    for start in range(0, len(data), size or len(data)):
        stream.feed(data[start : start + (size or len(data))])
    return WIRES[name].read(stream.end())


def order(identifier: str, **more: Any) -> OperationStarted:
    return OperationStarted(identifier, "order", {"order": 9007199254740993, **more})


def test_a_whole_chat_stream() -> None:
    reply = read("openai_chat", recorded("openai_chat"))
    assert reply.all_events == (
        Thinking("The customer wants café prices."),
        Message(Role.ASSISTANT, "It costs 3 € 🙂."),
        Unrecognised("message.telepathy", "a kind of field that nobody knows"),
        order("call_7"),
    )
    assert reply.usage == Usage(
        input_tokens=20, output_tokens=40, cache_read_tokens=100, reasoning_tokens=12, requests=1
    )


def test_a_whole_responses_stream() -> None:
    reply = read("openai_responses", recorded("openai_responses"))
    searched = OperationStarted("ws_1", "web_search", {"type": "search", "query": "café prices"})
    assert [event for event in reply.events if not isinstance(event, Unrecognised)] == [
        Thinking("The customer wants café prices.\n\nSearch first."),
        searched,
        OperationFinished("ws_1", OperationStatus.COMPLETED, MISSING),
        Message(Role.ASSISTANT, "Looking it up: 3 € 🙂."),
        OperationStarted("mcp_1", "lookup", {"q": 1}),
        OperationFinished("mcp_1", OperationStatus.FAILED, "no such shop"),
        order("call_7", note="café"),
    ]
    unknown = [event.name for event in reply.events if isinstance(event, Unrecognised)]
    assert unknown == ["response.telepathy.delta", "message.annotations"]
    assert isinstance(reply.events[3], Unrecognised), "an unknown event lost its place"
    assert reply.usage == Usage(
        input_tokens=20, output_tokens=40, cache_read_tokens=100, cache_write_tokens=0, reasoning_tokens=12, requests=1
    )
    assert [(call.id, call.name) for call in reply.calls] == [("call_7", "order")]
    assert reply.finish is Finish.TOOLS


def test_a_whole_messages_stream() -> None:
    reply = read("anthropic_messages", recorded("anthropic_messages"))
    found = [
        {"type": "web_search_result", "url": "https://example.com", "title": "Prices", "encrypted_content": "ZQ=="}
    ]
    assert [event for event in reply.events if not isinstance(event, Unrecognised)] == [
        Thinking("The customer wants café prices."),
        OperationStarted("srvtoolu_1", "web_search", {"query": "café prices"}),
        OperationFinished("srvtoolu_1", OperationStatus.COMPLETED, found),
        Message(Role.ASSISTANT, "It costs 3 € 🙂, so I order."),
        order("toolu_7", note="café"),
        OperationStarted("toolu_8", "now", {}),
    ]
    unknown = [event.name for event in reply.events if isinstance(event, Unrecognised)]
    assert unknown == ["telepathy_start", "text.citations"]
    assert reply.usage == Usage(
        input_tokens=5, output_tokens=300, cache_read_tokens=40_000, cache_write_tokens=10_000,
        reasoning_tokens=90, requests=1,
    )  # fmt: skip
    (back,) = reply.sent_back
    assert back["content"][0] == {
        "type": "thinking", "thinking": "The customer wants café prices.", "signature": "c2lnbmVk",
    }  # fmt: skip
    assert back["content"][1] == {"type": "redacted_thinking", "data": "aGlkZGVu"}
    assert [block["type"] for block in back["content"]][2:] == [
        "server_tool_use", "web_search_tool_result", "text", "text", "text", "tool_use", "tool_use",
    ]  # fmt: skip


@each
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_however_the_network_cuts_it_the_answer_is_the_same(name: str, size: int) -> None:
    assert read(name, recorded(name), size) == read(name, recorded(name))


@each
def test_cut_at_every_byte_it_fails_with_what_came_and_invents_nothing(name: str) -> None:
    data = recorded(name)
    whole = read(name, data)
    longest = 0
    for end in range(len(data)):
        stream = AnswerStream(WIRES[name], lambda _: None)
        stream.feed(data[:end])
        try:
            events = WIRES[name].read(stream.end()).all_events
        except SendFailure as failure:
            assert (failure.kind, failure.code) == (FailureKind.PROVIDER, "STREAM_CUT"), end
            assert failure.acceptance is Acceptance.STARTED
            partial = stream.rescued() or Turn(reply="")
            events = partial.events
            longest = max(longest, len(events))
        assert invented(events, whole.all_events) == [], f"cut after {end} bytes"
    assert longest >= len(whole.events) - len(whole.calls) - 1, "what came before the cut is lost"


@each
def test_rubbish_in_the_middle_is_a_failure_of_the_provider(name: str) -> None:
    data = recorded(name)
    middle = data.index(b"\n\n", len(data) // 2) + 2
    with pytest.raises(SendFailure, match="not JSON") as caught:
        read(name, data[:middle] + b"data: {rubbish\n\n" + data[middle:])
    assert (caught.value.kind, caught.value.code) == (FailureKind.PROVIDER, "BAD_RESPONSE")


@each
def test_an_invented_event_is_seen(name: str) -> None:
    """The check above can fail: an event that the whole stream lacks, one at a wrong place, and a text that differs."""
    whole = read(name, recorded(name)).all_events
    assert invented(whole, whole) == []
    assert invented([OperationStarted("x", "y")], whole) == [OperationStarted("x", "y")]
    assert len(invented(whole[1:], whole)) > 0
    assert invented([Thinking("Other")], whole) == [Thinking("Other")]
    assert invented([*whole, whole[0]], whole) == [whole[0]]
