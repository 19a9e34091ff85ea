"""Chat completions, whole and streamed: the OA field reports row by row."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.model.coverage import Channel, partial
from evalfleet.model.events import MISSING, Message, OperationStarted, Role, Thinking, Unrecognised
from evalfleet.model.usage import Usage
from evalfleet_adapters.converters.openai_chat import (
    Finish,
    ModelReply,
    UnusableResponse,
    read_arguments,
    read_response,
    read_usage,
    reported_error,
)
from evalfleet_adapters.converters.openai_stream import ChatStream

USAGE = {"prompt_tokens": 10, "completion_tokens": 5}


def completion(message: dict[str, Any], finish: str | None = "stop", **extra: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": USAGE, **extra}


def streamed(*chunks: dict[str, Any]) -> ModelReply:
    stream = ChatStream()
    for chunk in chunks:
        stream.add(chunk)
    return read_response(stream.response())


def delta(finish: str | None = None, usage: Any = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}], "usage": usage}


def call_delta(**fields: Any) -> dict[str, Any]:
    return delta(tool_calls=[fields])


def test_a_plain_answer() -> None:
    reply = read_response(completion({"role": "assistant", "content": "12"}))
    assert (reply.text, reply.finish, reply.calls) == ("12", Finish.STOP, ())
    assert reply.events == (Message(Role.ASSISTANT, "12"),)
    assert reply.sent_back[0] == {"role": "assistant", "content": "12"}
    assert reply.coverage == {}


def test_oa_02_arguments_before_the_name_without_an_index() -> None:
    reply = streamed(
        call_delta(id="c1", function={"arguments": '{"q":'}),
        call_delta(id="c1", function={"name": "look"}),
        call_delta(id="c1", function={"arguments": '"a"}'}),
        delta("tool_calls"),
    )
    (call,) = reply.calls
    assert (call.id, call.name, call.arguments) == ("c1", "look", {"q": "a"})


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        ([{"index": 0, "id": "a", "function": {"name": "f"}}, {"index": 1, "id": "b", "function": {"name": "g"}},
          {"index": 0, "function": {"arguments": '{"x":1}'}}, {"index": 1, "function": {"arguments": '{"y":2}'}}],
         [("a", "f", {"x": 1}), ("b", "g", {"y": 2})]),
        ([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}},
          {"index": 0, "id": "b", "function": {"name": "g", "arguments": "{}"}}],
         [("a", "f", {}), ("b", "g", {})]),
        ([{"function": {"name": "f", "arguments": '{"x":'}}, {"function": {"arguments": "1}"}},
          {"function": {"name": "f", "arguments": '{"x":2}'}}],
         [("call_0", "f", {"x": 1}), ("call_1", "f", {"x": 2})]),
        ([{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":'}},
          {"index": 0, "id": "a", "function": {"name": "f", "arguments": "1}"}}],
         [("a", "f", {"x": 1})]),
        ([{"index": 0, "id": "a", "function": {"name": "look"}}, {"index": 0, "function": {"name": "up"}}],
         [("a", "lookup", {})]),
        ([{"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": 1}}}], [("a", "f", {"x": 1})]),
    ],
    ids=["interleaved", "one-index-two-ids", "neither", "name-repeated", "name-in-pieces", "object"],
)  # fmt: skip
def test_tool_call_pieces_find_their_call(pieces: list[Any], calls: list[Any]) -> None:
    reply = streamed(*[call_delta(**piece) for piece in pieces], delta("tool_calls"))
    assert [(call.id, call.name, call.arguments) for call in reply.calls] == calls


@pytest.mark.parametrize(
    ("value", "arguments", "sent_back"),
    [
        ({"q": "a"}, {"q": "a"}, '{"q": "a"}'),
        ("", {}, "{}"),
        (None, {}, "{}"),
        ("  \n", {}, "{}"),
        ("null", {}, "{}"),
        ('{"q":', None, "{}"),
        ("[1]", None, "{}"),
        ('"{}"', None, "{}"),
        (7, None, "{}"),
        ("[" * 100_000, None, "{}"),
        ('{"n":' + "9" * 5000 + "}", None, "{}"),
        ('{"order":9007199254740993}', {"order": 9007199254740993}, '{"order":9007199254740993}'),
        ('{"s":"\\ud800"}', {"s": "\ud800"}, '{"s":"\\ud800"}'),
    ],
)
def test_oa_05_and_oa_13_arguments_in_every_form(value: Any, arguments: Any, sent_back: str) -> None:
    raw_call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": value}}
    reply = read_response(completion({"content": None, "tool_calls": [raw_call]}, "tool_calls"))
    (call,) = reply.calls
    assert call.arguments == arguments
    assert reply.sent_back[0]["tool_calls"][0] == {
        "id": "c1",
        "type": "function",
        "function": {"name": "look", "arguments": sent_back},
    }
    started = call.started()
    if arguments is None:
        assert call.problem
        raw = value if isinstance(value, str) else json.dumps(value)
        assert started == OperationStarted("c1", "look", MISSING, raw_input=raw)
    else:
        assert call.problem is None
        assert started == OperationStarted("c1", "look", arguments)


@pytest.mark.parametrize(
    "chunks",
    [
        [delta(content="hi"), delta("stop", USAGE), {"choices": [], "usage": USAGE}],
        [delta(content="h", usage={"prompt_tokens": 10, "completion_tokens": 1}),
         delta(content="i", usage={"prompt_tokens": 10, "completion_tokens": 4}), delta("stop", USAGE)],
        [delta(content="hi"), delta("stop", USAGE), {"choices": [], "usage": None}],
    ],
    ids=["twice", "running", "then-null"],
)  # fmt: skip
def test_oa_07_usage_counts_once(chunks: list[Any]) -> None:
    reply = streamed(*chunks)
    assert reply.text == "hi"
    assert reply.usage == Usage(input_tokens=10, output_tokens=5, requests=1)


def test_oa_08_no_usage_is_unknown_and_never_zero() -> None:
    response = completion({"content": "ok"})
    del response["usage"]
    reply = read_response(response)
    assert reply.usage is None
    assert reply.coverage == {Channel.USAGE: partial("the provider reported no usage")}


def test_oa_09_a_budget_spent_on_hidden_reasoning_is_cut_short_and_not_empty() -> None:
    usage = {"prompt_tokens": 30, "completion_tokens": 512, "completion_tokens_details": {"reasoning_tokens": 512}}
    reply = read_response(completion({"content": ""}, "length") | {"usage": usage})
    assert (reply.finish, reply.is_empty) == (Finish.LENGTH, False)
    assert reply.usage == Usage(input_tokens=30, output_tokens=512, reasoning_tokens=512, requests=1)
    assert reply.coverage == {Channel.EVENTS: partial("the provider does not show the model's reasoning")}


@pytest.mark.parametrize(("finish", "expected"), [("length", Finish.LENGTH), ("stop", Finish.STOP)])
def test_oa_11_reasoning_is_kept_apart_from_the_answer(finish: str, expected: Finish) -> None:
    response = completion({"role": "assistant", "content": None, "reasoning_content": "so it is 12"}, finish)
    reply = read_response(response)
    assert (reply.text, reply.finish, reply.is_empty) == (None, expected, False)
    assert reply.events == (Thinking("so it is 12"),)
    promoted = read_response(response, reasoning_as_reply=True)
    assert promoted.events == (Thinking("so it is 12"), Message(Role.ASSISTANT, "so it is 12"))


def test_oa_13_big_integers_survive_a_stream() -> None:
    pieces = ['{"order":90071', "99254740993}"]
    reply = streamed(*[call_delta(index=0, id="c", function={"name": "f", "arguments": piece}) for piece in pieces])
    assert reply.calls[0].arguments == {"order": 9007199254740993}


@pytest.mark.parametrize(
    ("message", "finish", "usage", "empty"),
    [
        ({"content": ""}, "stop", USAGE, True),
        ({"content": None}, "stop", None, True),
        ({}, "stop", {"prompt_tokens": 5, "completion_tokens": 0}, True),
        ({"content": None}, None, None, True),
        ({"content": " "}, "stop", USAGE, False),
        ({"content": None}, "length", USAGE, False),
        ({"content": None}, "content_filter", USAGE, False),
        ({"content": None, "audio": {"id": "a"}}, "stop", USAGE, False),
        ({"content": None, "refusal": "I won't."}, "stop", USAGE, False),
        ({"content": None}, "stop", {**USAGE, "completion_tokens_details": {"reasoning_tokens": 4}}, False),
    ],
)
def test_an_03_wholly_empty(message: Any, finish: Any, usage: Any, empty: bool) -> None:
    reply = read_response(completion({"role": "assistant", **message}, finish) | {"usage": usage})
    assert reply.is_empty is empty


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        ({**USAGE, "prompt_tokens_details": {"cached_tokens": 4}},
         Usage(input_tokens=6, output_tokens=5, cache_read_tokens=4, requests=1)),
        ({"prompt_tokens": 50_005, "completion_tokens": 300,
          "prompt_tokens_details": {"cached_tokens": 40_000, "cache_write_tokens": 10_000}},
         Usage(input_tokens=5, output_tokens=300, cache_read_tokens=40_000, cache_write_tokens=10_000, requests=1)),
        ({"prompt_tokens": 5, "completion_tokens": 300, "prompt_tokens_details": {"cached_tokens": 40_000}},
         Usage(input_tokens=5, output_tokens=300, cache_read_tokens=40_000, requests=1)),
        ({**USAGE, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 2},
         Usage(input_tokens=2, output_tokens=5, cache_read_tokens=8, requests=1)),
        ({**USAGE, "cost": 0.25}, Usage(input_tokens=10, output_tokens=5, requests=1, cost_usd=0.25)),
        ({"prompt_tokens": 3_000_000_000}, Usage(input_tokens=3_000_000_000, requests=1)),
        ({"prompt_tokens": "10", "completion_tokens": True}, None),
        ({"prompt_tokens": -1, "completion_tokens": float("inf")}, None),
        ({}, None),
        (None, None),
        ([10, 5], None),
    ],
)  # fmt: skip
def test_usage_buckets_exclude_each_other(raw: Any, usage: Usage | None) -> None:
    assert read_usage(raw) == usage


@pytest.mark.parametrize(
    ("reason", "finish", "known"),
    [
        ("stop", Finish.STOP, True),
        ("tool_calls", Finish.TOOLS, True),
        ("function_call", Finish.TOOLS, True),
        ("length", Finish.LENGTH, True),
        ("content_filter", Finish.FILTERED, True),
        ("error", Finish.ERROR, True),
        ("brand_new", Finish.UNKNOWN, False),
        (None, Finish.UNKNOWN, False),
    ],
)
def test_finish_reasons(reason: str | None, finish: Finish, known: bool) -> None:
    reply = read_response(completion({"content": "x"}, reason))
    assert reply.finish is finish
    assert (Channel.STATUS not in reply.coverage) is known
    assert (Unrecognised("choice.finish_reason", reason) in reply.events) is (not known and reason is not None)


def test_what_nobody_knows_is_kept() -> None:
    message = {
        "content": [{"type": "text", "text": "a"}, {"type": "hologram", "x": 1}],
        "aura": {"hue": 3},
        "nil": None,
    }
    reply = read_response(completion(message, timings={"ms": 3}, system_fingerprint="fp"))
    assert reply.text == "a"
    assert reply.events[1:] == (
        Unrecognised("message.content.hologram", {"type": "hologram", "x": 1}),
        Unrecognised("message.aura", {"hue": 3}),
        Unrecognised("response.timings", {"ms": 3}),
    )


def test_content_in_parts_keeps_thinking_apart() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    chunks = [delta(content="a"), delta(content=[thinking]), delta(content=[{"type": "text", "text": "b"}])]
    reply = streamed(*chunks, delta(content="c"), delta("stop", USAGE))
    assert reply.text == "abc"
    assert reply.events[0] == Thinking("hm")


def test_a_second_choice_is_kept_raw() -> None:
    response = completion({"content": "first"})
    response["choices"].insert(0, {"index": 1, "message": {"content": "second"}, "finish_reason": "stop"})
    reply = read_response(response)
    assert reply.text == "first"
    assert Unrecognised("choice", response["choices"][0]) in reply.events
    other = {"choices": [{"index": 1, "delta": {"content": "second"}}]}
    assert streamed(delta(content="first"), other, delta("stop")).text == "first"


def test_a_cited_web_search_takes_back_that_all_actions_are_seen() -> None:
    reply = read_response(completion({"content": "x", "annotations": [{"type": "url_citation"}]}))
    assert reply.coverage[Channel.ACTIONS].reason


def test_a_legacy_function_call_is_a_tool_call() -> None:
    function = {"name": "f", "arguments": '{"a":1}'}
    assert read_response(completion({"function_call": function}, "function_call")).calls[0].arguments == {"a": 1}
    reply = streamed(delta(function_call={"name": "f", "arguments": '{"a"'}), delta(function_call={"arguments": ":1}"}))
    assert reply.calls[0].arguments == {"a": 1}


def test_two_calls_with_one_id_stay_two() -> None:
    raw_call = {"id": "x", "function": {"name": "f", "arguments": "{}"}}
    calls = read_response(completion({"tool_calls": [raw_call, raw_call]}, "tool_calls")).calls
    assert len({call.id for call in calls}) == 2


@pytest.mark.parametrize("response", [{}, [], None, {"choices": []}, {"choices": [{}]}, {"choices": "x"}, "text", 7])
def test_what_is_no_completion_is_refused(response: Any) -> None:
    with pytest.raises(UnusableResponse, match=r"no choices|no message"):
        read_response(response)


@pytest.mark.parametrize(
    ("response", "code", "message"),
    [
        ({"error": {"message": "overloaded", "code": 529}}, "529", "overloaded"),
        ({"error": {"message": "no", "type": "server_error", "code": None}}, "server_error", "no"),
        ({"error": "boom"}, "error", "boom"),
        ({"error": {"x": 1}}, "error", '{"x": 1}'),
    ],
)
def test_an_error_in_the_body_is_seen(response: Any, code: str, message: str) -> None:
    error = reported_error(response)
    assert error is not None
    assert (error.code, error.message) == (code, message)
    assert reported_error({"error": None}) is None


def test_reasoning_of_a_hundred_thousand_chunks_is_linear() -> None:
    stream = ChatStream()
    for _ in range(100_000):
        stream.add(delta(reasoning_content="wordy "))
    stream.add(delta("stop"))
    assert read_response(stream.response()).events == (Thinking("wordy " * 100_000),)


@given(
    st.text(min_size=1),
    st.text(),
    st.dictionaries(st.text(), st.integers() | st.text() | st.none() | st.lists(st.booleans())),
    st.lists(st.integers(1, 9), min_size=1),
)
def test_streamed_and_whole_are_the_same(
    answer: str, reasoning: str, arguments: dict[str, Any], sizes: list[int]
) -> None:
    raw = json.dumps(arguments)
    raw_call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": raw}}
    message = {"content": answer, "reasoning_content": reasoning, "tool_calls": [raw_call]}

    def cut(text: str) -> list[str]:
        step = sizes[len(text) % len(sizes)]
        return [text[start : start + step] for start in range(0, len(text), step)]

    chunks = [delta(reasoning_content=piece) for piece in cut(reasoning)]
    chunks += [delta(content=piece) for piece in cut(answer)]
    chunks.append(call_delta(index=0, id="c", function={"name": "f"}))
    chunks += [call_delta(index=0, function={"arguments": piece}) for piece in cut(raw)]
    assert streamed(*chunks, delta("tool_calls", USAGE)) == read_response(completion(message, "tool_calls"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["choices", "message", "delta", "content", "tool_calls", "function", "arguments", "index",
                         "usage", "error", "finish_reason", "type", "text", "id", "name", "prompt_tokens", "x"]),
        inner, max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@given(JSON, st.lists(JSON, max_size=4))
def test_no_json_crashes_the_converters(response: Any, chunks: list[Any]) -> None:
    reported_error(response)
    read_usage(response)
    read_arguments(response)
    stream = ChatStream()
    for chunk in chunks:
        stream.add(chunk)
    for document in (response, stream.response(), {"choices": chunks}):
        try:
            read_response(document)
        except UnusableResponse as error:
            assert str(error)
