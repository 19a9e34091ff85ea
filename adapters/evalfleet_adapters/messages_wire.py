"""Anthropic's Messages API: what is sent to `/v1/messages`, and how its answer is read.

The model's blocks go back as they came, thinking with its signature among them. What a user says and what came of calls
are messages of one role: neighbours are sent as one, which is how the API wants the results of one answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalfleet.model.events import OperationStatus
from evalfleet.model.model_call import Account
from evalfleet.model.tool import Tool
from evalfleet.model.turn import InputFile, TurnInput
from evalfleet.model.usage import Usage
from evalfleet.ports import AdapterContext
from evalfleet_adapters.anthropic_options import AnthropicOptions
from evalfleet_adapters.chat_wire import bearer
from evalfleet_adapters.converters.anthropic_messages import read_message, read_usage
from evalfleet_adapters.converters.anthropic_stream import MessageStream
from evalfleet_adapters.converters.model_reply import ModelReply, ProviderError, ToolCall
from evalfleet_adapters.converters.openai_chat import reported_error
from evalfleet_adapters.converters.untrusted import mapping, sequence
from evalfleet_adapters.files import encoded, plain_text, refused

#: The tool that a model answers by when `structured: tool`.
OUTPUT_TOOL = "give_output"

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


class MessagesWire:
    """A model behind `/v1/messages`."""

    def __init__(self, model: str, options: AnthropicOptions, tools: Sequence[Tool]) -> None:
        self.endpoint = options.endpoint
        self.account = Account(provider="anthropic", base_url=options.base_url, key=options.api_key_env, model=model)
        self._options = options
        self._fixed = _fixed_fields(model, options, tools)

    def opening(self) -> list[dict[str, Any]]:
        return []

    def said(self, turn: TurnInput) -> dict[str, Any]:
        text = [{"type": "text", "text": turn.text}] if turn.text else []
        return {"role": "user", "content": [*map(_file_block, turn.files), *text]}

    def answered(self, call: ToolCall, text: str, status: OperationStatus) -> dict[str, Any]:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.id, "content": text}
        if status is not OperationStatus.COMPLETED:
            block["is_error"] = True
        return {"role": "user", "content": [block]}

    def headers(self, ctx: AdapterContext) -> dict[str, str]:
        headers = {"anthropic-version": self._options.version}
        if self._options.betas:
            headers["anthropic-beta"] = ",".join(self._options.betas)
        key = self._options.api_key_env
        if key is not None and self._options.key_header == "x-api-key":
            return headers | {"x-api-key": ctx.secrets.resolve(key).strip()}
        return headers | bearer(key, ctx)

    def body(
        self, conversation: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None, ctx: AdapterContext
    ) -> dict[str, Any]:
        fields: dict[str, Any] = {**self._fixed, "messages": joined(conversation)}
        if ctx.tools:
            fields["tools"] = [*fields.get("tools", ()), *map(_offered, ctx.tools)]
        if schema is None:
            return fields
        if self._options.structured == "format":
            form = {"type": "json_schema", "schema": dict(schema)}
            return fields | {"output_config": {**mapping(fields.get("output_config")), "format": form}}
        others = sequence(fields.get("tools"))
        output = {"name": OUTPUT_TOOL, "description": "Give your final answer.", "input_schema": dict(schema)}
        choice = {"type": "any"} if others else {"type": "tool", "name": OUTPUT_TOOL}
        return fields | {"tools": [*others, output], "tool_choice": choice}

    def stream(self) -> MessageStream:
        return MessageStream()

    def read(self, document: Any) -> ModelReply:
        return read_message(document, output_tool=OUTPUT_TOOL, reasoning_as_reply=self._options.reasoning_as_reply)

    def usage(self, document: Any) -> Usage | None:
        return read_usage(mapping(document).get("usage"))

    def error(self, document: Any) -> ProviderError | None:
        return reported_error(document)


def joined(conversation: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A conversation in which neighbours of one role are one message: results of calls first, as the API wants."""
    messages: list[dict[str, Any]] = []
    for message in conversation:
        if messages and messages[-1]["role"] == message["role"]:
            messages[-1]["content"] = [*messages[-1]["content"], *message["content"]]
        else:
            messages.append(dict(message))
    for message in messages:
        if message["role"] == "user":
            message["content"] = sorted(message["content"], key=lambda block: block["type"] != "tool_result")
    return messages


def _file_block(file: InputFile) -> dict[str, Any]:
    if file.media_type in _IMAGES:
        return {"type": "image", "source": {"type": "base64", "media_type": file.media_type, "data": encoded(file)}}
    if file.media_type == "application/pdf":
        source = {"type": "base64", "media_type": file.media_type, "data": encoded(file)}
        return {"type": "document", "title": file.name, "source": source}
    if file.media_type.startswith("text/"):
        source = {"type": "text", "media_type": "text/plain", "data": plain_text(file)}
        return {"type": "document", "title": file.name, "source": source}
    raise refused(file, "text, PDF and images (JPEG, PNG, GIF, WebP)")


def _fixed_fields(model: str, options: AnthropicOptions, tools: Sequence[Tool]) -> dict[str, Any]:
    fields: dict[str, Any] = {"model": model, "max_tokens": options.max_tokens, **options.sampling()}
    if options.system is not None:
        fields["system"] = options.system
    if options.stream:
        fields["stream"] = True
    if options.cache is not None:
        fields["cache_control"] = {"type": "ephemeral", "ttl": options.cache}
    fields |= options.params
    if tools:
        fields["tools"] = [*options.params.get("tools", []), *map(_offered, tools)]
    return fields


def _offered(tool: Tool) -> dict[str, Any]:
    """A tool as a model is told of it."""
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
