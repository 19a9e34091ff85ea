"""A scripted model's turn as Anthropic's Messages API says it, whole or as events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from evalfleet.testing.model_turn import ModelTurn, pieces

_STOP = {"length": "max_tokens", "filtered": "refusal"}


def message_object(turn: ModelTurn, identifier: str = "msg_1") -> dict[str, Any]:
    """The message object. Arguments that are no JSON object go out as `{}`: this API can't say them whole."""
    return {
        "id": identifier,
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [block for block, _ in _blocks(turn)],
        "stop_reason": _stop_reason(turn),
        "stop_sequence": None,
        "usage": _usage(turn),
    }


def message_events(turn: ModelTurn, identifier: str = "msg_1") -> list[dict[str, Any]]:
    """The events that stream a message: output tokens are told at its end, the others at its start."""
    usage = _usage(turn)
    begun: dict[str, Any] = {**message_object(turn, identifier), "content": [], "stop_reason": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**begun, "usage": usage and {**usage, "output_tokens": 1}}},
        {"type": "ping"},
    ]
    for index, (block, deltas) in enumerate(_blocks(turn)):
        empty: dict[str, Any] = {"text": "", "thinking": "", "signature": "", "input": {}}
        start = {key: empty.get(key, value) for key, value in block.items()}
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": _stop_reason(turn), "stop_sequence": None}
    spent = usage and {"output_tokens": usage["output_tokens"]}
    if spent and turn.usage and turn.usage.reasoning:
        spent["output_tokens_details"] = {"thinking_tokens": turn.usage.reasoning}
    events.append({"type": "message_delta", "delta": delta, "usage": spent})
    events.append({"type": "message_stop"})
    return events


def _stop_reason(turn: ModelTurn) -> str:
    return _STOP.get(turn.stop) or ("tool_use" if turn.calls else "end_turn")


def _usage(turn: ModelTurn) -> dict[str, Any] | None:
    if turn.usage is None:
        return None
    spent = turn.usage
    usage: dict[str, Any] = {
        "input_tokens": spent.input,
        "cache_creation_input_tokens": spent.cache_write,
        "cache_read_input_tokens": spent.cache_read,
        "output_tokens": spent.output,
    }
    return usage | ({"output_tokens_details": {"thinking_tokens": spent.reasoning}} if spent.reasoning else {})


def _blocks(turn: ModelTurn) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each content block, and the deltas that stream it."""
    if turn.thinking is not None:
        deltas: list[dict[str, Any]] = [{"type": "thinking_delta", "thinking": part} for part in pieces(turn.thinking)]
        deltas.append({"type": "signature_delta", "signature": "sealed"})
        yield {"type": "thinking", "thinking": turn.thinking, "signature": "sealed"}, deltas
    if turn.text is not None:
        yield {"type": "text", "text": turn.text}, [{"type": "text_delta", "text": part} for part in pieces(turn.text)]
    for call in turn.calls:
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in ("", *pieces(call.text))]
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": _object(call.arguments)}, deltas


def _object(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return {}
