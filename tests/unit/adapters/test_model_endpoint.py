"""The scripted model that tests and examples talk to."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from evalfleet.testing.http_endpoint import HttpEndpoint, Reply, json_reply
from evalfleet.testing.model_endpoint import ModelEndpoint, completion, streamed, tool_call
from evalfleet.testing.model_turn import ModelTurn, ScriptedCall, ScriptedUsage
from evalfleet_adapters.converters.openai_chat import read_response
from evalfleet_adapters.converters.openai_stream import ChatStream
from evalfleet_adapters.converters.sse import SseParser

QUESTION = {"model": "m", "messages": [{"role": "user", "content": "ask me"}]}


async def ask(model: ModelEndpoint, **fields: Any) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(f"{model.base_url}/chat/completions", json={**QUESTION, **fields})


async def post(model: ModelEndpoint, path: str, **body: Any) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(f"{model.url}/v1/{path}", json={"model": "m", **body})


def text_of(response: httpx.Response) -> str:
    return response.json()["choices"][0]["message"]["content"]


async def test_answers_come_in_order_and_then_it_echoes() -> None:
    script = ["first", completion("second"), json_reply({"x": 1}, 418), lambda request: str(request.json["n"])]
    async with ModelEndpoint(script) as model:
        first, second, third = await ask(model), await ask(model), await ask(model)
        assert (text_of(first), text_of(second), third.status_code) == ("first", "second", 418)
        assert text_of(await ask(model, n=7)) == "7"
        echoed = await ask(model)
    assert text_of(echoed) == "ask me"
    assert echoed.json()["usage"] == {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}
    assert [body["messages"] for body in model.bodies] == [QUESTION["messages"]] * 5


async def test_another_path_is_not_found() -> None:
    async with ModelEndpoint() as model, httpx.AsyncClient() as client:
        response = await client.get(f"{model.base_url}/embeddings")
    assert (response.status_code, response.json()["error"]["type"]) == (404, "not_found")


async def test_one_script_answers_all_apis_and_is_counted() -> None:
    spent = ScriptedUsage(input=7, output=3, cache_read=20, cache_write=10, reasoning=2)
    call = ScriptedCall("add", {"left": 9007199254740993}, "c")
    turn = ModelTurn(text="Adding.", calls=(call,), thinking="I add.", usage=spent)
    async with ModelEndpoint([turn, turn, turn, "cut"]) as model:
        chat = (await ask(model)).json()
        response = (await post(model, "responses", input="hi")).json()
        message = (await post(model, "messages?beta=true", messages=QUESTION["messages"])).json()
        assert (model.answered, model.left) == (3, 1)
        assert model.usage == spent + spent + spent
    choice = chat["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Adding.", "tool_calls")
    assert (chat["usage"]["prompt_tokens"], chat["usage"]["completion_tokens"]) == (37, 3)
    assert [item["type"] for item in response["output"]] == ["reasoning", "message", "function_call"]
    assert response["output"][2]["arguments"] == choice["message"]["tool_calls"][0]["function"]["arguments"]
    assert (response["usage"]["input_tokens"], response["usage"]["input_tokens_details"]["cached_tokens"]) == (37, 20)
    assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use"]
    assert message["content"][2]["input"] == call.arguments
    assert (message["stop_reason"], message["usage"]["input_tokens"]) == ("tool_use", 7)


@pytest.mark.parametrize(
    ("stop", "finish", "status", "reason"),
    [
        ("stop", "stop", "completed", "end_turn"),
        ("length", "length", "incomplete", "max_tokens"),
        ("filtered", "content_filter", "incomplete", "refusal"),
    ],
)
async def test_how_it_stopped_is_said_in_each_apis_words(stop: Any, finish: str, status: str, reason: str) -> None:
    async with ModelEndpoint([ModelTurn(text="x", stop=stop, usage=None)] * 3) as model:
        chat = (await ask(model)).json()
        response = (await post(model, "responses", input=[])).json()
        message = (await post(model, "messages", messages=[])).json()
    assert (chat["choices"][0]["finish_reason"], "usage" in chat) == (finish, False)
    assert (response["status"], response["usage"]) == (status, None)
    assert (message["stop_reason"], message["usage"]) == (reason, None)


async def test_each_api_echoes_and_a_question_aside_takes_nothing_from_the_script() -> None:
    def aside(request: Any) -> str | None:
        return "a title" if "title" in json.dumps(request.json) else None

    parts = [{"type": "input_text", "text": "one "}, {"type": "input_text", "text": "two"}]
    async with ModelEndpoint(["scripted"], aside=aside) as model:
        assert text_of(await ask(model, messages=[{"role": "user", "content": "a title, please"}])) == "a title"
        assert text_of(await ask(model)) == "scripted"
        response = (await post(model, "responses", input=[{"role": "user", "content": parts}])).json()
        message = (await post(model, "messages", messages=QUESTION["messages"])).json()
    assert response["output"][0]["content"][0]["text"] == "one two"
    assert message["content"] == [{"type": "text", "text": "ask me"}]


async def test_models_and_tokens_are_told_and_no_answers() -> None:
    async with ModelEndpoint(["kept"]) as model, httpx.AsyncClient() as client:
        openai = (await client.get(f"{model.base_url}/models")).json()
        anthropic = (await client.get(f"{model.url}/v1/models", headers={"anthropic-version": "2023-06-01"})).json()
        counted = (await post(model, "messages/count_tokens", system="Be brief.", messages=QUESTION["messages"])).json()
        assert (model.left, model.answered) == (1, 0)
    assert [openai["data"][0]["object"], anthropic["data"][0]["type"]] == ["model", "model"]
    assert counted == {"input_tokens": 4}


@pytest.mark.parametrize(
    "document",
    [
        completion("a\0\ud800 long enough to be cut into pieces"),
        completion("x", reasoning_content="why " * 20, usage=None),
        completion(None, calls=[tool_call("f", {"n": 9007199254740993}, "a"), tool_call("g", {"t": "é" * 99}, "b")]),
        completion("cut", finish="length"),
    ],
)
def test_a_streamed_answer_says_what_the_whole_one_says(document: Any) -> None:
    parser, stream = SseParser(), ChatStream()
    body = streamed(document).body
    assert isinstance(body, tuple)
    *events, done = [event for chunk in body for event in parser.feed(chunk)]
    assert done.data == "[DONE]"
    for event in events:
        stream.add(json.loads(event.data))
    assert read_response(stream.response()) == read_response(document)


async def test_an_endpoint_knows_its_address_only_while_it_listens() -> None:
    with pytest.raises(RuntimeError, match="use `async with`"):
        _ = HttpEndpoint(lambda _: Reply()).url


async def test_chunks_gaps_and_keep_alive() -> None:
    script = [Reply(body=(b"a", b"b", b""), gap=0.01), Reply(body=b"c", delay=0.01), Reply(body=b"d" * 3_000_000)]
    async with HttpEndpoint(lambda _: script.pop(0)) as endpoint, httpx.AsyncClient() as client:
        bodies = [(await client.post(endpoint.url, content=b"x" * 2_000_000)).content for _ in range(3)]
    assert bodies == [b"ab", b"c", b"d" * 3_000_000]
    assert all(request.body == b"x" * 2_000_000 for request in endpoint.requests)


async def test_a_chunked_request_is_read() -> None:
    async def pieces() -> Any:
        yield b"a" * 10
        yield b"b"

    async with HttpEndpoint(lambda request: Reply(body=request.body)) as endpoint, httpx.AsyncClient() as client:
        assert (await client.post(endpoint.url, content=pieces())).content == b"a" * 10 + b"b"


async def test_an_asynchronous_handler_answers_and_a_silent_one_never_does() -> None:
    async def handler(_: Any) -> Reply:
        await asyncio.sleep(0)
        return Reply(body=b"ok") if len(endpoint.requests) == 1 else Reply(silent=True)

    async with HttpEndpoint(handler) as endpoint, httpx.AsyncClient(timeout=0.1) as client:
        assert (await client.get(endpoint.url)).content == b"ok"
        with pytest.raises(httpx.ReadTimeout):
            await client.get(endpoint.url)
