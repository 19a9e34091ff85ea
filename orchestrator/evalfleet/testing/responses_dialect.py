"""A scripted model's turn as OpenAI's Responses API says it, whole or as semantic events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from evalfleet.testing.http_endpoint import Reply
from evalfleet.testing.model_turn import ModelTurn, ScriptedCall, pieces

_INCOMPLETE = {"length": "max_output_tokens", "filtered": "content_filter"}


def response_object(turn: ModelTurn, identifier: str = "resp_1") -> dict[str, Any]:
    """The response object. Identifiers of its items begin with the response's own."""
    reason = _INCOMPLETE.get(turn.stop)
    return {
        "id": identifier,
        "object": "response",
        "created_at": 0,
        "model": "scripted",
        "status": "completed" if reason is None else "incomplete",
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "instructions": None,
        "metadata": {},
        "output": list(_items(turn, identifier)),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": _usage(turn),
    }


def response_events(response: dict[str, Any]) -> list[dict[str, Any]]:
    """The events that stream a response object, numbered; the last one holds it whole."""
    begun: dict[str, Any] = {
        **response,
        "status": "in_progress",
        "output": [],
        "usage": None,
        "incomplete_details": None,
    }
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(response["output"]):
        events += [{**event, "output_index": index} for event in _item_events(item)]
    events.append({"type": f"response.{response['status']}", "response": response})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def named_events(events: list[dict[str, Any]]) -> Reply:
    """Events as a stream, each named by its type."""
    body = tuple(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)
    return Reply(headers={"content-type": "text/event-stream"}, body=body)


def _usage(turn: ModelTurn) -> dict[str, Any] | None:
    if turn.usage is None:
        return None
    spent = turn.usage
    whole = spent.input + spent.cache_read + spent.cache_write
    return {
        "input_tokens": whole,
        "input_tokens_details": {"cached_tokens": spent.cache_read, "cache_write_tokens": spent.cache_write},
        "output_tokens": spent.output,
        "output_tokens_details": {"reasoning_tokens": spent.reasoning},
        "total_tokens": whole + spent.output,
    }


def _items(turn: ModelTurn, identifier: str) -> Iterator[dict[str, Any]]:
    status = "completed" if turn.stop == "stop" else "incomplete"
    if turn.thinking is not None:
        summary = [{"type": "summary_text", "text": turn.thinking}]
        sealed = f"sealed-{identifier}"
        yield {"id": f"{identifier}_rs", "type": "reasoning", "summary": summary, "encrypted_content": sealed}
    if turn.text is not None:
        content: list[dict[str, Any]] = [{"type": "output_text", "text": turn.text, "annotations": []}]
        yield {
            "id": f"{identifier}_msg", "type": "message", "role": "assistant", "status": status, "content": content,
        }  # fmt: skip
    for number, call in enumerate(turn.calls):
        yield {"id": f"{identifier}_fc{number}", **_call(call), "status": status}


def _call(call: ScriptedCall) -> dict[str, Any]:
    within = {} if call.namespace is None else {"namespace": call.namespace}
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.text, **within}


def _item_events(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = {"item_id": item["id"]}
    if item["type"] == "message":
        yield {"type": "response.output_item.added", "item": {**item, "status": "in_progress", "content": []}}
        for index, part in enumerate(item["content"]):
            place["content_index"] = index
            yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
            for piece in pieces(part["text"]):
                yield {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
            yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
            yield {"type": "response.content_part.done", **place, "part": part}
    elif item["type"] == "reasoning":
        yield {"type": "response.output_item.added", "item": {**item, "summary": [], "encrypted_content": ""}}
        for index, part in enumerate(item["summary"]):
            place["summary_index"] = index
            yield {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}}
            for piece in pieces(part["text"]):
                yield {"type": "response.reasoning_summary_text.delta", **place, "delta": piece}
            yield {"type": "response.reasoning_summary_text.done", **place, "text": part["text"]}
            yield {"type": "response.reasoning_summary_part.done", **place, "part": part}
    else:
        yield {"type": "response.output_item.added", "item": {**item, "status": "in_progress", "arguments": ""}}
        for piece in pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        yield {
            "type": "response.function_call_arguments.done", **place,
            "name": item["name"], "arguments": item["arguments"],
        }  # fmt: skip
    yield {"type": "response.output_item.done", "item": item}
