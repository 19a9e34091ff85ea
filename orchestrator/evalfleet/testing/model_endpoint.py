"""A scripted local model behind an OpenAI-compatible HTTP endpoint, for tests and examples."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from evalfleet.testing.http_endpoint import HttpEndpoint, Reply, Request, json_reply

#: One answer: a text, a chat completion object, a raw HTTP reply, or a function that makes one from the request.
Scripted: TypeAlias = "str | Mapping[str, Any] | Reply | Callable[[Request], str | Mapping[str, Any] | Reply]"


class ModelEndpoint(HttpEndpoint):
    """`async with ModelEndpoint(["first answer", tool_call("add", {"left": 1})]) as model: model.base_url`.

    Answers come in the order of `script`, whoever asks; after the last one `otherwise` answers, which echoes the
    last user message by default. A completion is streamed when the request asks for a stream.
    """

    def __init__(self, script: Iterable[Scripted] = (), otherwise: Callable[[Request], Scripted] | None = None) -> None:
        super().__init__(self._next)
        self._script = list(script)
        self._otherwise = otherwise or echo

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def bodies(self) -> list[Any]:
        """The JSON bodies of all requests so far."""
        return [request.json for request in self.requests]

    def _next(self, request: Request) -> Reply:
        if not request.target.endswith("/chat/completions"):
            return json_reply({"error": {"message": f"no such path {request.target}", "type": "not_found"}}, 404)
        answer = self._script.pop(0) if self._script else self._otherwise(request)
        while callable(answer):
            answer = answer(request)
        if isinstance(answer, Reply):
            return answer
        document = completion(answer) if isinstance(answer, str) else answer
        return streamed(document) if request.json.get("stream") else json_reply(document)


def completion(
    text: str | None,
    *,
    calls: Iterable[Mapping[str, Any]] = (),
    finish: str | None = None,
    usage: Mapping[str, Any] | tuple[int, int] | None = (10, 5),
    **message: Any,
) -> dict[str, Any]:
    """A chat completion object. A pair as `usage` is prompt and completion tokens; None leaves usage out."""
    raw_calls = list(calls)
    said: dict[str, Any] = {"role": "assistant", "content": text, **message}
    if raw_calls:
        said["tool_calls"] = raw_calls
    reason = finish or ("tool_calls" if raw_calls else "stop")
    document: dict[str, Any] = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [{"index": 0, "message": said, "finish_reason": reason}],
    }
    if isinstance(usage, tuple):
        usage = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return document if usage is None else {**document, "usage": usage}


def tool_call(name: str, arguments: Any, identifier: str = "call_1") -> dict[str, Any]:
    """A tool call for `completion(calls=[…])`; arguments that are not text become JSON text."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": text}}


def echo(request: Request) -> dict[str, Any]:
    """The text of the last user message as the answer; words count as tokens."""
    messages = request.json.get("messages", [])
    said: Any = next((message["content"] for message in reversed(messages) if message.get("role") == "user"), "")
    text = said if isinstance(said, str) else "".join(part.get("text", "") for part in said)
    words = sum(len(str(message.get("content")).split()) for message in messages)
    return completion(text, usage=(words, len(text.split())))


def streamed(document: Mapping[str, Any], size: int = 16) -> Reply:
    """A completion as server-sent events, usage at the end.

    Text and arguments come in pieces of `size` characters, longer ones when a text would make more than 256.
    """
    choice = document["choices"][0]
    message = dict(choice["message"])
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    for index, call in enumerate(message.pop("tool_calls", [])):
        arguments = call["function"]["arguments"]
        deltas.append({"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": part}}]} for part in _cut(arguments, size)
        ]
    for key, value in message.items():
        if isinstance(value, str) and key != "role":
            deltas += [{key: part} for part in _cut(value, size)]
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    if document.get("usage"):
        chunks.append({"choices": [], "usage": document["usage"]})
    body = tuple(sse(json.dumps(chunk)) for chunk in chunks)
    return Reply(headers={"content-type": "text/event-stream"}, body=(*body, sse("[DONE]")))


def sse(data: str) -> bytes:
    """One server-sent event of one line."""
    return f"data: {data}\n\n".encode()


def _cut(text: Any, size: int) -> list[Any]:
    if not isinstance(text, str):
        return [text]  # arguments as an object or null, as some servers send them
    size = max(size, len(text) // 256)
    return [text[start : start + size] for start in range(0, len(text), size)]
