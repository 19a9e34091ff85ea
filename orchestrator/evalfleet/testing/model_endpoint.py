"""A scripted local model behind the HTTP APIs that agents speak: chat completions, responses and messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from evalfleet.testing.http_endpoint import HttpEndpoint, Reply, Request, json_reply
from evalfleet.testing.messages_dialect import message_events, message_object
from evalfleet.testing.model_turn import (
    ModelTurn,
    ScriptedUsage,
    last_said,
    of_completion,
    pieces,
    usage_of_completion,
    words_in,
)
from evalfleet.testing.responses_dialect import named_events, response_events, response_object

#: One answer: a text, a model's turn, a chat completion object, a raw HTTP reply, or a function that makes one from
#: the request.
Scripted: TypeAlias = (
    "str | ModelTurn | Mapping[str, Any] | Reply | Callable[[Request], str | ModelTurn | Mapping[str, Any] | Reply]"
)


class ModelEndpoint(HttpEndpoint):
    """`async with ModelEndpoint(["first answer", tool_call("add", {"left": 1})]) as model: model.base_url`.

    It serves `/v1/chat/completions`, `/v1/responses`, `/v1/messages`, `/v1/messages/count_tokens` and `/v1/models`
    from one script. Answers come in the order of `script`, whoever asks; after the last one `otherwise` answers,
    which echoes the last user message by default. `aside` is asked first and answers what is no part of the script
    (such as a title that an agent has made), or None. An answer is streamed when the request asks for a stream.
    `answered` and `usage` count what it told: answers of models and their tokens, raw replies not among them.
    """

    def __init__(
        self,
        script: Iterable[Scripted] = (),
        otherwise: Callable[[Request], Scripted] | None = None,
        *,
        aside: Callable[[Request], Scripted | None] | None = None,
    ) -> None:
        super().__init__(self._next)
        self._script = list(script)
        self._otherwise = otherwise or echo
        self._aside = aside
        self.answered = 0
        self.usage = ScriptedUsage(input=0, output=0)

    @property
    def base_url(self) -> str:
        """The root of OpenAI's APIs; that of Anthropic's is `url`."""
        return f"{self.url}/v1"

    @property
    def bodies(self) -> list[Any]:
        """The JSON bodies of all requests so far."""
        return [request.json for request in self.requests if request.body]

    @property
    def left(self) -> int:
        """How many answers of the script nobody has asked for yet."""
        return len(self._script)

    def _next(self, request: Request) -> Reply:
        path = request.target.partition("?")[0]
        if path.endswith("/models"):
            return _models("anthropic-version" in request.headers)
        if path.endswith("/messages/count_tokens"):
            return json_reply({"input_tokens": words_in(request.json)})
        said = next((said for end, said in _APIS.items() if path.endswith(end)), None)
        if said is None:
            return json_reply({"error": {"message": f"no such path {request.target}", "type": "not_found"}}, 404)
        answer = self._scripted(request)
        if isinstance(answer, Reply):
            return answer
        self.answered += 1
        told = answer.usage if isinstance(answer, ModelTurn) else usage_of_completion(answer)
        self.usage += told or ScriptedUsage(input=0, output=0)
        return said(answer, self.answered, bool(request.json.get("stream")))

    def _scripted(self, request: Request) -> ModelTurn | Mapping[str, Any] | Reply:
        answer = None if self._aside is None else self._aside(request)
        if answer is None:
            answer = self._script.pop(0) if self._script else self._otherwise(request)
        while callable(answer):
            answer = answer(request)
        return completion(answer) if isinstance(answer, str) else answer


def _say_chat(answer: ModelTurn | Mapping[str, Any], _number: int, stream: bool) -> Reply:
    document = _completed(answer) if isinstance(answer, ModelTurn) else answer
    return streamed(document) if stream else json_reply(document)


def _say_response(answer: ModelTurn | Mapping[str, Any], number: int, stream: bool) -> Reply:
    turn = answer if isinstance(answer, ModelTurn) else of_completion(answer)
    document = response_object(turn, f"resp_{number}")
    return named_events(response_events(document)) if stream else json_reply(document)


def _say_message(answer: ModelTurn | Mapping[str, Any], number: int, stream: bool) -> Reply:
    turn = answer if isinstance(answer, ModelTurn) else of_completion(answer)
    identifier = f"msg_{number}"
    return named_events(message_events(turn, identifier)) if stream else json_reply(message_object(turn, identifier))


_APIS = {"/chat/completions": _say_chat, "/responses": _say_response, "/messages": _say_message}


def _models(anthropic: bool) -> Reply:
    if anthropic:
        model = {"type": "model", "id": "scripted", "display_name": "Scripted", "created_at": "2026-01-01T00:00:00Z"}
        return json_reply({"data": [model], "has_more": False, "first_id": "scripted", "last_id": "scripted"})
    model = {"id": "scripted", "object": "model", "created": 0, "owned_by": "scripted"}
    return json_reply({"object": "list", "data": [model]})


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


def _completed(turn: ModelTurn) -> dict[str, Any]:
    finish = {"length": "length", "filtered": "content_filter"}.get(turn.stop)
    calls = [tool_call(call.name, call.arguments, call.id) for call in turn.calls]
    thinking = {} if turn.thinking is None else {"reasoning_content": turn.thinking}
    usage: dict[str, Any] | None = None
    if turn.usage is not None:
        spent = turn.usage
        prompt = spent.input + spent.cache_read + spent.cache_write
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": spent.output,
            "total_tokens": prompt + spent.output,
            "prompt_tokens_details": {"cached_tokens": spent.cache_read, "cache_write_tokens": spent.cache_write},
            "completion_tokens_details": {"reasoning_tokens": spent.reasoning},
        }
    return completion(turn.text, calls=calls, finish=finish, usage=usage, **thinking)


def tool_call(name: str, arguments: Any, identifier: str = "call_1") -> dict[str, Any]:
    """A tool call for `completion(calls=[…])`; arguments that are not text become JSON text."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": text}}


def echo(request: Request) -> dict[str, Any]:
    """The text of the last user message as the answer; words count as tokens."""
    text = last_said(request.json)
    return completion(text, usage=(words_in(request.json), len(text.split())))


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
    fixed = {key: document[key] for key in ("id", "created", "model") if key in document}
    fixed["object"] = "chat.completion.chunk"
    chunks = [{**fixed, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**fixed, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    if document.get("usage"):
        chunks.append({**fixed, "choices": [], "usage": document["usage"]})
    body = tuple(sse(json.dumps(chunk)) for chunk in chunks)
    return Reply(headers={"content-type": "text/event-stream"}, body=(*body, sse("[DONE]")))


def sse(data: str) -> bytes:
    """One server-sent event of one line."""
    return f"data: {data}\n\n".encode()


def _cut(text: Any, size: int) -> list[Any]:
    return pieces(text, size) if isinstance(text, str) else [text]  # as an object or null, as some servers send them
