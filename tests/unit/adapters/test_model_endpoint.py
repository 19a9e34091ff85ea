"""The scripted model that tests and examples talk to."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from evalfleet.testing.http_endpoint import HttpEndpoint, Reply, json_reply
from evalfleet.testing.model_endpoint import ModelEndpoint, completion, streamed, tool_call
from evalfleet_adapters.converters.openai_chat import read_response
from evalfleet_adapters.converters.openai_stream import ChatStream
from evalfleet_adapters.converters.sse import SseParser

QUESTION = {"model": "m", "messages": [{"role": "user", "content": "ask me"}]}


async def ask(model: ModelEndpoint, **fields: Any) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(f"{model.base_url}/chat/completions", json={**QUESTION, **fields})


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
        response = await client.get(f"{model.base_url}/models")
    assert (response.status_code, response.json()["error"]["type"]) == (404, "not_found")


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
