"""The `http` adapter: templates, paths, what a mapping can prove, and a real endpoint."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from evalfleet.errors import Acceptance, ConfigurationError, FailureKind, SendFailure
from evalfleet.model.coverage import Channel, CoverageState, complete, partial, unavailable
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
    Unrecognised,
)
from evalfleet.model.turn import InputFile, InputResponse, Turn, TurnInput, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.ports import Adapter, AdapterFactory, ArmSettings
from evalfleet.testing.adapter_context import FakeContext, FakeSecrets
from evalfleet.testing.http_endpoint import HttpEndpoint, Reply, Request, json_reply
from evalfleet_adapters.http import HttpOptions, factory
from evalfleet_adapters.http_answer import read_answer, session_id
from evalfleet_adapters.http_mapping import ResponseMapping, look_up, render


def mapped(**fields: Any) -> ResponseMapping:
    return ResponseMapping.model_validate(fields)


def arm(options: HttpOptions, **flags: Any) -> ArmSettings:
    return ArmSettings(name="a", model=None, flags=flags, options=options, project=Path())


@asynccontextmanager
async def serving(*replies: Any, **options: Any) -> Any:
    """An adapter with the given options, and the endpoint that gives it `replies` in turn."""
    script = list(replies)

    def answer(_: Request) -> Reply:
        reply = script.pop(0)
        return reply if isinstance(reply, Reply) else json_reply(reply)

    async with HttpEndpoint(answer) as endpoint:
        adapter = factory.build(arm(HttpOptions.model_validate({"url": endpoint.url + "/ask", **options})))
        try:
            yield adapter, endpoint
        finally:
            await adapter.close()


async def say(adapter: Adapter, *inputs: str | TurnInput, ctx: FakeContext | None = None) -> list[Turn]:
    ctx = ctx or FakeContext()
    session = await adapter.open(ctx)
    return [await session.send(TurnInput(item) if isinstance(item, str) else item, ctx) for item in inputs]


def test_the_factory_is_one() -> None:
    assert isinstance(factory, AdapterFactory)


# --- paths and templates --------------------------------------------------------------------------------------

DOCUMENT = {"a": [{"b": 1}, None], "x.y": {"/": 2, "~": 3}, "": 4, "n": None}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a.0.b", 1),
        ("/a/0/b", 1),
        ("a.1", None),
        ("n", None),
        (".", DOCUMENT),
        ("/x.y/~1", 2),
        ("/x.y/~0", 3),
        ("/", 4),
        ("a.2", MISSING),
        ("a.-1", MISSING),
        ("a.0.b.c", MISSING),
        ("a.b", MISSING),
        ("a." + "9" * 30, MISSING),
        ("x.y", MISSING),
    ],
)
def test_a_path_leads_somewhere_or_nowhere(path: str, value: Any) -> None:
    assert look_up(DOCUMENT, path) is value or look_up(DOCUMENT, path) == value


@pytest.mark.parametrize(
    ("template", "rendered"),
    [
        ("${text}", "hi"),
        ("say ${text} at ${turn}", "say hi at 3"),
        ({"t": "${text}", "s": "${session}", "n": None, "k": {"s": "${session}"}}, {"t": "hi", "n": None, "k": {}}),
        (["${turn}", "${session}", True, 1.5], [3, None, True, 1.5]),
        ("[${session}]", "[]"),
        ("$${text} costs $5 {text}", "${text} costs $5 {text}"),
        ("${files}", [{"name": "f"}]),
    ],
)
def test_a_template_is_filled_in(template: Any, rendered: Any) -> None:
    values = {"text": "hi", "turn": 3, "session": None, "files": [{"name": "f"}]}
    assert render(template, values) == rendered


@given(st.text())
def test_an_input_is_never_read_as_a_template(text: str) -> None:
    assert render({"a": "${text}", "b": "<${text}>"}, {"text": text}) == {"a": text, "b": f"<{text}>"}


@pytest.mark.parametrize(
    "options",
    [
        {"request": {"q": "${txt}"}},
        {"request": {"q": ["${flags.}"]}},
        {"headers": {"x": "${secret}"}},
        {"headers": {"X-Key": "a"}, "headers_env": {"x-key": "KEY"}},
        {"response": {"reply": "a..b"}},
        {"response": {"reply": ""}},
        {"response": {"answer": "a"}},
        {"response": {"tools": {"items": "t"}}},
        {"response": {"statuses": {"x": "finished"}}},
        {"url": "ftp://x"},
        {"method": "GET"},
        {"token": "x"},
    ],
)
def test_wrong_options_are_refused(options: Any) -> None:
    with pytest.raises(ValidationError):
        HttpOptions.model_validate({"url": "http://x", **options})


def test_a_template_may_not_name_a_flag_the_arm_lacks() -> None:
    options = HttpOptions.model_validate({"url": "http://x", "request": {"p": "${flags.prompt}"}})
    assert factory.build(arm(options, prompt="short"))
    with pytest.raises(ConfigurationError, match="arm sets no such flag"):
        factory.build(arm(options))


# --- what a mapping can prove ---------------------------------------------------------------------------------

TOOLS = {"items": "tools", "name": "name"}


@pytest.mark.parametrize(
    ("fields", "channel", "entry"),
    [
        ({}, "messages", unavailable("response.reply is not mapped")),
        ({"reply": "r"}, "messages", complete),
        ({"body": "text"}, "messages", complete),
        ({}, "data", unavailable("response.data is not mapped")),
        ({"data": "."}, "data", complete),
        ({}, "status", partial("response.status is not mapped; HTTP success is completed")),
        ({"status": "s"}, "status", complete),
        ({}, "usage", unavailable("response.usage is not mapped")),
        ({"usage": {"input_tokens": "i"}}, "usage", partial("response.usage.output_tokens is not mapped")),
        ({"usage": {"input_tokens": "i", "output_tokens": "o"}}, "usage", complete),
        ({}, "actions", unavailable("response.tools is not mapped")),
        ({"tools": TOOLS}, "actions",
         partial("response.tools.status is not mapped; failed and rejected calls look completed")),
        ({"tools": {**TOOLS, "status": "s"}}, "actions", complete),
        ({"reply": "r"}, "events", partial("the endpoint shows only what the arm's response mapping names")),
    ],
)  # fmt: skip
def test_what_is_not_mapped_is_not_covered(fields: Any, channel: str, entry: Any) -> None:
    assert mapped(**fields).coverage().entry(Channel(channel)) == entry


# --- reading an answer ----------------------------------------------------------------------------------------


def test_everything_mapped_is_read() -> None:
    document = {
        "out": [{"text": "done"}],
        "json": {"n": 9007199254740993},
        "state": "finished",
        "thread": 12,
        "usage": {"in": 50_005, "out": 300, "cached": 40_000, "made": 10_000, "think": 7, "calls": 2, "usd": 0.5},
        "steps": [
            {"fn": {"name": "f", "args": {"q": 1}}, "uid": "u1", "ok": True, "result": {"r": 1}},
            {"fn": {"name": "g"}, "uid": 7, "ok": False, "result": "boom"},
            {"fn": {"name": "h"}, "ok": "denied"},
            {"fn": {"name": "i"}, "ok": "pending"},
        ],
        "ask": [{"id": "q1", "question": "Sure?"}, {"id": 2}],
    }
    mapping = mapped(
        reply="out.0.text", data="json", status="state", session="thread", statuses={"finished": "completed"},
        usage={"input_tokens": "usage.in", "output_tokens": "usage.out", "cache_read_tokens": "usage.cached",
               "cache_write_tokens": "usage.made", "reasoning_tokens": "usage.think", "requests": "usage.calls",
               "cost_usd": "usage.usd", "cached_in_input": True},
        tools={"items": "steps", "name": "fn.name", "input": "fn.args", "id": "uid", "output": "result", "status": "ok",
               "statuses": {"true": "completed", "false": "failed", "denied": "rejected"}},
        requests={"items": "ask", "id": "id", "prompt": "question"},
    )  # fmt: skip
    assert read_answer(document, mapping) == Turn(
        reply="done",
        events=(
            OperationStarted("u1", "f", {"q": 1}),
            OperationFinished("u1", OperationStatus.COMPLETED, {"r": 1}),
            OperationStarted("7", "g"),
            OperationFinished("7", OperationStatus.FAILED, "boom"),
            OperationStarted("2", "h"),
            OperationFinished("2", OperationStatus.REJECTED),
            OperationStarted("3", "i"),
            InputRequested("q1", "Sure?"),
            InputRequested("2"),
            Message(Role.ASSISTANT, "done"),
        ),
        data={"n": 9007199254740993},
        usage=Usage(
            input_tokens=5,
            output_tokens=300,
            cache_read_tokens=40_000,
            cache_write_tokens=10_000,
            reasoning_tokens=7,
            requests=2,
            cost_usd=0.5,
        ),
    )
    assert session_id(document, mapping) == "12"


@pytest.mark.parametrize(
    ("fields", "document", "channel", "reason"),
    [
        ({"reply": "a"}, {"b": 1}, Channel.MESSAGES, "the response has nothing at 'a'"),
        ({"reply": "a"}, [], Channel.MESSAGES, "the response has nothing at 'a'"),
        ({"data": "a"}, {}, Channel.DATA, "the response has nothing at 'a'"),
        ({"status": "a"}, {}, Channel.STATUS, "the response has nothing at 'a'"),
        ({"status": "a"}, {"a": "odd"}, Channel.STATUS, 'the endpoint\'s status is "odd"'),
        ({"tools": TOOLS}, {}, Channel.ACTIONS, "the response has nothing at 'tools'"),
        ({"tools": TOOLS}, {"tools": "x"}, Channel.ACTIONS, "the value at 'tools' is no array"),
        ({"tools": TOOLS}, {"tools": [{}]}, Channel.ACTIONS, "a tool call has no name at 'name'"),
        ({"tools": {**TOOLS, "status": "s"}}, {"tools": [{"name": "f"}]}, Channel.ACTIONS,
         "a tool call's status is missing"),
        ({"usage": {"input_tokens": "i", "output_tokens": "o"}}, {"i": 1}, Channel.USAGE,
         "the response has no count at 'o'"),
        ({"usage": {"input_tokens": "i"}}, {"i": "1"}, Channel.USAGE, "the endpoint reported no usage"),
    ],
)  # fmt: skip
def test_a_path_that_leads_nowhere_takes_the_coverage_back_and_keeps_the_response(
    fields: Any, document: Any, channel: Channel, reason: str
) -> None:
    turn = read_answer(document, mapped(**fields))
    assert turn.coverage[channel].reason == reason
    assert turn.coverage[channel].state is not CoverageState.COMPLETE
    assert turn.events[-1] == Unrecognised("response", document)
    assert turn.usage == (Usage(unknown_calls=1) if reason.endswith("no usage") else turn.usage)


@pytest.mark.parametrize(
    ("value", "reply"), [("x", "x"), (None, None), ({"a": 1}, '{"a": 1}'), (12, "12"), (True, "true"), ("", "")]
)
def test_a_reply_is_text_or_the_json_of_what_it_is(value: Any, reply: str | None) -> None:
    turn = read_answer({"r": value}, mapped(reply="r"))
    assert (turn.reply, turn.coverage) == (reply, {})


@pytest.mark.parametrize(
    ("document", "status", "events"),
    [
        ({"error": None}, TurnStatus.COMPLETED, ()),
        ({}, TurnStatus.COMPLETED, ()),
        ({"error": "boom"}, TurnStatus.FAILED, (ErrorReported("boom"),)),
        ({"error": {"c": 1}}, TurnStatus.FAILED, (ErrorReported('{"c": 1}'),)),
    ],
)
def test_a_mapped_error_fails_the_turn(document: Any, status: TurnStatus, events: Any) -> None:
    turn = read_answer(document, mapped(error="error"))
    assert (turn.status, turn.events) == (status, events)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=4),
    max_leaves=15,
)


@given(JSON)
def test_no_response_crashes_the_reading(document: Any) -> None:
    usage = {
        "input_tokens": "a",
        "output_tokens": "b",
        "cost_usd": "c",
        "cache_read_tokens": "d",
        "cached_in_input": True,
    }
    tools = {"items": "a", "name": "b", "id": "c", "input": "d", "output": "e", "status": "a"}
    mapping = mapped(reply="a.b", data="b", status="c", session="d", error="e", usage=usage, tools=tools,
                     requests={"items": "b", "id": "a", "prompt": "b"})  # fmt: skip
    turn = read_answer(document, mapping)
    session_id(document, mapping)
    assert turn.usage is not None
    assert (turn.usage.input_tokens or 0) >= 0


# --- the wire -------------------------------------------------------------------------------------------------


async def test_a_conversation_goes_by_the_endpoints_session_id() -> None:
    replies = [{"reply": "one", "id": "s1"}, {"reply": "two", "id": "ignored"}, {"reply": "three", "id": "s2"}]
    async with serving(*replies, response={"reply": "reply", "session": "id"}) as (adapter, endpoint):
        await say(adapter, "a", "b")
        await say(adapter, "c")
    assert [request.json for request in endpoint.requests] == [
        {"text": "a"},
        {"text": "b", "session": "s1"},
        {"text": "c"},
    ]


async def test_the_request_is_what_the_template_says() -> None:
    request = {
        "q": "${text}", "files": "${files}", "answers": "${responses}", "schema": "${schema}", "model": "${model}",
        "tone": "${flags.tone}", "all": "${flags}", "where": "${arm}/${case}/${attempt}/${repetition}/${turn}",
        "seed": "${seed}",
    }  # fmt: skip
    ctx = FakeContext()
    ctx.flags, ctx.model, ctx.seed = {"tone": "dry"}, "m", 9007199254740993
    ctx.secrets = FakeSecrets({"TOKEN": "t", "KEY": "k"})
    given = TurnInput(
        "x\0\ud800",
        files=(InputFile("f", "text/plain", b"\xff"),),
        responses=(InputResponse("r", option_id="yes"),),
        output_schema={"type": "object"},
    )
    async with HttpEndpoint(lambda _: json_reply({"reply": "ok"})) as endpoint:
        options = HttpOptions.model_validate(
            {
                "url": endpoint.url + "/ask?v=1",
                "method": "PUT",
                "request": request,
                "headers": {"X-Case": "${case}", "X-Session": "${session}"},
                "headers_env": {"Authorization": "Bearer ${TOKEN}", "X-Key": "KEY"},
            }
        )
        adapter = factory.build(arm(options, tone="dry"))
        await say(adapter, given, ctx=ctx)
        await adapter.close()
    (sent,) = endpoint.requests
    assert (sent.method, sent.target) == ("PUT", "/ask?v=1")
    assert sent.json == {
        "q": "x\0\ud800",
        "files": [{"name": "f", "media_type": "text/plain", "data_base64": "/w=="}],
        "answers": [{"request_id": "r", "option_id": "yes", "text": None}],
        "schema": {"type": "object"},
        "model": "m",
        "tone": "dry",
        "all": {"tone": "dry"},
        "where": "arm/case/0/0/0",
        "seed": 9007199254740993,
    }
    assert (sent.headers["authorization"], sent.headers["x-key"], sent.headers["x-case"]) == ("Bearer t", "k", "case")
    assert "x-session" not in sent.headers


@pytest.mark.parametrize(
    ("document", "observation"),
    [({"state": {"cart": 2}}, {"cart": 2}), ({}, {}), ({"state": [1]}, {}), ({"state": None}, {})],
)
async def test_a_scenarios_input_goes_out_whole_and_its_observation_comes_back(document: Any, observation: Any) -> None:
    template = {"request": {"turn": "${input}"}, "response": {"observation": "state"}}
    async with serving(document, **template) as (adapter, endpoint):
        context = FakeContext()
        session = await adapter.open(context)
        turn = await session.send(TurnInput("hi", value={"text": "hi", "selection": {"optionIndex": 0}}), context)
        assert endpoint.requests[0].json == {"turn": {"text": "hi", "selection": {"optionIndex": 0}}}
    assert turn.observation == observation
    assert (Channel.DATA in turn.coverage) == (not observation)


async def test_lists_are_sent_in_the_form_that_the_arm_gives_them() -> None:
    options = {
        "request": {"text": "${text}", "attachments": "${files}", "decisions": "${responses}"},
        "file": {"mime": "${media_type}", "url": "data:${media_type};base64,${data_base64}"},
        "answer": {"id": "${request_id}", "says": "${answer}", "note": "${text}"},
    }
    given = TurnInput(
        "yes",
        files=(InputFile("a.png", "image/png", b"\x89P"),),
        responses=(InputResponse("r", option_id="yes"), InputResponse("s", text="no way")),
    )
    async with HttpEndpoint(lambda _: json_reply({"reply": "ok"})) as endpoint:
        adapter = factory.build(arm(HttpOptions.model_validate({"url": endpoint.url, **options})))
        await say(adapter, given)
        await adapter.close()
    assert endpoint.requests[0].json == {
        "text": "yes",
        "attachments": [{"mime": "image/png", "url": "data:image/png;base64,iVA="}],
        "decisions": [{"id": "r", "says": "yes"}, {"id": "s", "says": "no way", "note": "no way"}],
    }


async def test_a_question_parks_the_turn_and_an_allowed_call_does_not_start_again() -> None:
    call = {"id": "c1", "name": "rm", "args": {"path": "x"}}
    asked = {
        "reply": "May I?",
        "calls": [{**call, "state": "pending"}, {"id": "c0", "name": "ls", "state": "completed"}],
        "ask": [{"id": "q1", "question": "Delete x?", "what": "rm", "with": {"path": "x"},
                 "choices": [{"key": "y", "text": "Yes"}, {"key": 2}]}],
    }  # fmt: skip
    done = {"reply": "Gone.", "calls": [{**call, "state": "completed", "result": "ok"}], "ask": []}
    options = {
        "request": {"text": "${text}", "answers": "${responses}"},
        "response": {
            "reply": "reply",
            "tools": {"items": "calls", "id": "id", "name": "name", "input": "args", "output": "result",
                      "status": "state"},
            "requests": {"items": "ask", "id": "id", "prompt": "question", "action": "what", "input": "with",
                         "options": "choices", "option_id": "key", "option_label": "text"},
        },
    }  # fmt: skip
    script = [json_reply(asked), json_reply(done)]
    async with HttpEndpoint(lambda _: script.pop(0)) as endpoint:
        adapter = factory.build(arm(HttpOptions.model_validate({"url": endpoint.url, **options})))
        given = TurnInput("y", responses=(InputResponse("q1", option_id="y"),))
        parked, after = await say(adapter, "delete x", given)
        await adapter.close()
    assert (parked.status, after.status) == (TurnStatus.WAITING, TurnStatus.COMPLETED)
    assert parked.events == (
        OperationStarted("c1", "rm", {"path": "x"}),
        OperationStarted("c0", "ls"),
        OperationFinished("c0"),
        InputRequested("q1", "Delete x?", "rm", {"path": "x"}, (InputOption("y", "Yes"), InputOption("2"))),
        Message(Role.ASSISTANT, "May I?"),
    )
    assert after.events == (OperationFinished("c1", output="ok"), Message(Role.ASSISTANT, "Gone."))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"file": {"x": "${text}"}}, "unknown placeholder ${text}; there are name, media_type, data_base64"),
        ({"answer": ["${id}"]}, "unknown placeholder ${id}; there are request_id, option_id, text, answer"),
    ],
)
def test_an_item_may_not_name_what_it_lacks(options: Any, says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        HttpOptions.model_validate({"url": "http://x", **options})
    assert says in str(caught.value)


async def test_sessions_share_no_cookies() -> None:
    reply = Reply(headers={"content-type": "application/json", "set-cookie": "user=1"}, body=b'{"reply": "ok"}')
    async with serving(reply, reply, reply) as (adapter, endpoint):
        await say(adapter, "a", "b")
        await say(adapter, "c")
    assert [request.headers.get("cookie") for request in endpoint.requests] == [None] * 3


@pytest.mark.parametrize(
    "given",
    [TurnInput("x", files=(InputFile("f", "t", b""),)), TurnInput("x", responses=(InputResponse("r", text="y"),))],
    ids=["files", "responses"],
)
async def test_what_the_template_does_not_send_is_not_dropped_silently(given: TurnInput) -> None:
    async with serving() as (adapter, endpoint):
        with pytest.raises(SendFailure, match="request template has no") as caught:
            await say(adapter, given)
    assert (caught.value.code, caught.value.acceptance) == ("INPUT_UNSUPPORTED", Acceptance.REJECTED)
    assert endpoint.requests == []


async def test_a_text_body_is_the_reply() -> None:
    reply = Reply(headers={"content-type": "text/plain; charset=utf-8"}, body="café".encode())
    async with serving(reply, response={"body": "text"}) as (adapter, _):
        assert await say(adapter, "x") == [Turn(reply="café", events=(Message(Role.ASSISTANT, "café"),))]


@pytest.mark.parametrize(
    ("reply", "kind", "code", "says"),
    [
        (Reply(status=502, headers={"content-type": "text/html"}, body=b"<html>bad gateway</html>"),
         FailureKind.PROVIDER, "PROVIDER_ERROR", "HTTP 502: text/html <html>bad gateway</html>"),
        (Reply(headers={"content-type": "text/html"}, body=b"<html>bad gateway</html>"),
         FailureKind.PROVIDER, "BAD_RESPONSE", "HTTP 200 text/html is not JSON: <html>bad gateway</html>"),
        (Reply(status=429, headers={"retry-after": "90"}), FailureKind.PROVIDER, "RATE_LIMITED", "HTTP 429"),
        (Reply(status=404, body=b"no such agent"),
         FailureKind.ADAPTER, "REQUEST_REFUSED", "HTTP 404: without a content type no such agent"),
        (Reply(body=b"[" * 100_000),
         FailureKind.PROVIDER, "BAD_RESPONSE", "HTTP 200 without a content type is not JSON"),
    ],
)  # fmt: skip
async def test_failures_are_attributed(reply: Reply, kind: FailureKind, code: str, says: str) -> None:
    async with serving(reply) as (adapter, _):
        with pytest.raises(SendFailure) as caught:
            await say(adapter, "x")
    assert (caught.value.kind, caught.value.code) == (kind, code)
    assert str(caught.value).startswith(says)


async def test_a_response_of_ten_megabytes_comes_whole() -> None:
    text = "é" * 5_000_000
    async with serving(Reply(body=json.dumps({"reply": text}).encode())) as (adapter, _):
        (turn,) = await say(adapter, "x")
    assert turn.reply == text


def test_nothing_identifies_an_agent_that_runs_elsewhere() -> None:
    identity = factory.identify(arm(HttpOptions(url="http://x/ask")))
    assert (identity.sources, identity.digest) == ((), None)
    assert identity.reason == "the code behind http://x/ask can't be seen"
