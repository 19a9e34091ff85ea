"""OpenAI-style chat completions → pieces of a turn. Reads one response object; streams become one first.

What providers vary in is read leniently (content as text or parts; reasoning under several names; usage twice,
running or absent) and what nobody knows is kept as `Unrecognised`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalfleet.model.coverage import Channel, CoverageEntry, partial
from evalfleet.model.events import Event, Message, Role, Thinking, Unrecognised
from evalfleet.model.usage import Usage
from evalfleet_adapters.converters.model_reply import (
    Finish,
    ModelReply,
    ProviderError,
    ToolCall,
    UnusableResponse,
    distinct,
    head,
    kept,
    read_arguments,
)
from evalfleet_adapters.converters.untrusted import amount, as_text, count, mapping, sequence, text

_FINISH = {
    "stop": Finish.STOP,
    "eos": Finish.STOP,
    "end_turn": Finish.STOP,
    "tool_calls": Finish.TOOLS,
    "function_call": Finish.TOOLS,
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "content_filter": Finish.FILTERED,
    "error": Finish.ERROR,
}

_MESSAGE_KEYS = {
    "role", "content", "refusal", "reasoning_content", "reasoning", "reasoning_details", "tool_calls",
    "function_call", "annotations",
}  # fmt: skip
_CHOICE_KEYS = {"index", "message", "delta", "finish_reason", "native_finish_reason"}
_RESPONSE_KEYS = {
    "id", "object", "created", "model", "system_fingerprint", "service_tier", "provider", "usage", "choices", "error",
}  # fmt: skip


def reported_error(response: Any) -> ProviderError | None:
    """The error inside a response of any status, of any of the APIs; None when it reports none."""
    error = mapping(response).get("error")
    if not error:
        return None
    fields = mapping(error)
    code = fields.get("code") or fields.get("type") or "error"
    message = text(fields.get("message")) or (error if isinstance(error, str) else as_text(error))
    return ProviderError(code=str(code), message=message)


def read_response(response: Any, *, reasoning_as_reply: bool = False) -> ModelReply:
    """The model's reply in one chat completion.

    `reasoning_as_reply` makes the reasoning the answer when there is no other. Raises UnusableResponse.
    """
    document = mapping(response)
    choices = [mapping(choice) for choice in sequence(document.get("choices"))]
    if not choices:
        raise UnusableResponse(f"the response has no choices: {head(response)}")
    choice = next((item for item in choices if item.get("index") == 0), choices[0])
    message = mapping(choice.get("message"))
    if not message:
        raise UnusableResponse(f"the response's choice has no message: {head(choice)}")
    parts = list(_content_events(message.get("content")))
    reasoning = _reasoning(message) + "".join(event.text for event in parts if isinstance(event, Thinking))
    answer = _joined(event.text for event in parts if isinstance(event, Message))
    answer = answer or text(message.get("refusal")) or answer
    if not answer and reasoning and reasoning_as_reply:
        answer = reasoning
    calls = tuple(_calls(message))
    events: list[Event] = [Thinking(reasoning)] if reasoning else []
    events += [Message(Role.ASSISTANT, answer)] if answer else []
    events += [event for event in parts if isinstance(event, Unrecognised)]
    events += _unrecognised(document, choices, choice, message)
    usage = read_usage(document.get("usage"))
    finish_reason = choice.get("finish_reason")
    return ModelReply(
        text=answer,
        events=tuple(events),
        calls=calls,
        finish=_FINISH.get(str(finish_reason), Finish.UNKNOWN),
        usage=usage,
        sent_back=(_sent_back(answer, calls),),
        coverage=dict(_doubts(message, finish_reason, usage, reasoning)),
    )


def read_usage(raw: Any) -> Usage | None:
    """Usage in exclusive buckets: cached tokens are taken out of the input, unless they were never in it.

    `cost` is what the provider itself says in US dollars. None when no token count can be read.
    """
    fields = mapping(raw)
    prompt, output = count(fields.get("prompt_tokens")), count(fields.get("completion_tokens"))
    if prompt is None and output is None:
        return None
    details = mapping(fields.get("prompt_tokens_details"))
    read = _first_count(details.get("cached_tokens"), fields.get("prompt_cache_hit_tokens"))
    write = _first_count(details.get("cache_write_tokens"), details.get("cache_creation_tokens"))
    if prompt is not None:
        cached = (read or 0) + (write or 0)
        prompt = prompt - cached if cached <= prompt else prompt
    return Usage(
        input_tokens=prompt,
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=write,
        reasoning_tokens=count(mapping(fields.get("completion_tokens_details")).get("reasoning_tokens")),
        requests=1,
        cost_usd=amount(fields.get("cost")),
    )


def _calls(message: Mapping[str, Any]) -> Iterator[ToolCall]:
    raw_calls = [mapping(item) for item in sequence(message.get("tool_calls"))]
    if not raw_calls and mapping(message.get("function_call")):
        raw_calls = [{"function": message["function_call"]}]
    used: set[str] = set()
    for index, raw_call in enumerate(raw_calls):
        function = mapping(raw_call.get("function")) or mapping(raw_call.get("custom"))
        identifier = text(raw_call.get("id")) or f"call_{index}"
        identifier = distinct(identifier, used, index)
        arguments, raw, problem = read_arguments(function.get("arguments", function.get("input")))
        name = text(function.get("name")) or ""
        yield ToolCall(id=identifier, name=name, arguments=arguments, raw=raw, problem=problem)


def _content_events(content: Any) -> Iterator[Message | Thinking | Unrecognised]:
    if isinstance(content, str):
        yield Message(Role.ASSISTANT, content)
    for part in sequence(content):
        fields = mapping(part)
        kind = fields.get("type")
        if kind in ("text", "output_text") and isinstance(fields.get("text"), str):
            yield Message(Role.ASSISTANT, fields["text"])
        elif kind == "thinking":
            inner = fields.get("thinking")
            pieces = [inner] if isinstance(inner, str) else [mapping(item).get("text") for item in sequence(inner)]
            yield Thinking("".join(text(piece) or "" for piece in pieces))
        else:
            yield kept(f"message.content.{kind}", part)


def _reasoning(message: Mapping[str, Any]) -> str:
    for key in ("reasoning_content", "reasoning"):
        said = text(message.get(key))
        if said:
            return said
    details = [mapping(item) for item in sequence(message.get("reasoning_details"))]
    return "".join(text(item.get("text")) or text(item.get("summary")) or "" for item in details)


def _unrecognised(
    document: Mapping[str, Any],
    choices: list[dict[str, Any]],
    choice: Mapping[str, Any],
    message: Mapping[str, Any],
) -> Iterator[Unrecognised]:
    for prefix, fields, known in (
        ("message", message, _MESSAGE_KEYS),
        ("choice", choice, _CHOICE_KEYS),
        ("response", document, _RESPONSE_KEYS),
    ):
        for key, value in fields.items():
            if key not in known and value not in (None, [], {}, ""):
                yield kept(f"{prefix}.{key}", value)
    for other in choices:
        if other is not choice:
            yield kept("choice", other)
    if message.get("annotations"):
        yield kept("message.annotations", message["annotations"])
    reason = choice.get("finish_reason")
    if reason is not None and str(reason) not in _FINISH:
        yield kept("choice.finish_reason", reason)


def _doubts(
    message: Mapping[str, Any], finish_reason: Any, usage: Usage | None, reasoning: str
) -> Iterator[tuple[Channel, CoverageEntry]]:
    if str(finish_reason) not in _FINISH:
        yield Channel.STATUS, partial(f"the provider's finish_reason is {finish_reason!r}")
    if usage is None:
        yield Channel.USAGE, partial("the provider reported no usage")
    elif usage.reasoning_tokens and not reasoning:
        yield Channel.EVENTS, partial("the provider does not show the model's reasoning")
    if any(mapping(item).get("type") == "url_citation" for item in sequence(message.get("annotations"))):
        yield Channel.ACTIONS, partial("the provider searched the web on its side and does not show the calls")


def _sent_back(answer: str | None, calls: tuple[ToolCall, ...]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer if calls else answer or ""}
    if calls:
        message["tool_calls"] = [_call_sent_back(call) for call in calls]
    return message


def _call_sent_back(call: ToolCall) -> dict[str, Any]:
    """The call as it stands in the next request: arguments are text, and always valid JSON."""
    arguments = "{}" if call.arguments is None else call.raw or "{}"
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _first_count(*values: Any) -> int | None:
    return next((number for number in map(count, values) if number is not None), None)


def _joined(texts: Iterator[str]) -> str | None:
    found = list(texts)
    return "".join(found) if found else None
