"""The chat completions API: what is sent to `/chat/completions`, and how its answer is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalfleet.model.events import OperationStatus
from evalfleet.model.model_call import Account
from evalfleet.model.tool import Tool
from evalfleet.model.turn import InputFile, TurnInput
from evalfleet.model.usage import Usage
from evalfleet.ports import AdapterContext
from evalfleet_adapters.converters.model_reply import ModelReply, ProviderError, ToolCall
from evalfleet_adapters.converters.openai_chat import read_response, read_usage, reported_error
from evalfleet_adapters.converters.openai_stream import ChatStream
from evalfleet_adapters.converters.untrusted import mapping
from evalfleet_adapters.files import data_url, encoded, plain_text
from evalfleet_adapters.openai_options import OpenAIOptions

_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class ChatWire:
    """A model behind `/chat/completions`."""

    def __init__(self, model: str, options: OpenAIOptions, tools: Sequence[Tool]) -> None:
        self.endpoint = options.endpoint
        self.account = Account(provider="openai", base_url=options.base_url, key=options.api_key_env, model=model)
        self._options = options
        self._fixed = _fixed_fields(model, options, tools)

    def opening(self) -> list[dict[str, Any]]:
        return [] if self._options.system is None else [{"role": "system", "content": self._options.system}]

    def said(self, turn: TurnInput) -> dict[str, Any]:
        return user_message(turn)

    def answered(self, call: ToolCall, text: str, status: OperationStatus) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": call.id, "content": text}

    def headers(self, ctx: AdapterContext) -> dict[str, str]:
        return bearer(self._options.api_key_env, ctx)

    def body(
        self, conversation: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None, ctx: AdapterContext
    ) -> dict[str, Any]:
        fields: dict[str, Any] = {**self._fixed, "messages": conversation}
        if self._options.seed is not None:
            fields["seed"] = ctx.seed if self._options.seed == "case" else self._options.seed
        if ctx.tools:
            fields["tools"] = [*self._fixed.get("tools", ()), *map(_offered, ctx.tools)]
        if schema is not None:
            asked: dict[str, Any] = {"name": "output", "schema": dict(schema)}
            if self._options.strict_schema:
                asked["strict"] = True
            fields["response_format"] = {"type": "json_schema", "json_schema": asked}
        return fields

    def stream(self) -> ChatStream:
        return ChatStream()

    def read(self, document: Any) -> ModelReply:
        return read_response(document, reasoning_as_reply=self._options.reasoning_as_reply)

    def usage(self, document: Any) -> Usage | None:
        return read_usage(mapping(document).get("usage"))

    def error(self, document: Any) -> ProviderError | None:
        return reported_error(document)


def bearer(key: str | None, ctx: AdapterContext) -> dict[str, str]:
    """The header with the key of this name, without the newline that keys read from files end in."""
    return {} if key is None else {"authorization": f"Bearer {ctx.secrets.resolve(key).strip()}"}


def user_message(turn: TurnInput) -> dict[str, Any]:
    """A turn's input as a message; files become content parts, with images, audio and documents as data URLs."""
    if not turn.files:
        return {"role": "user", "content": turn.text}
    parts: list[dict[str, Any]] = [{"type": "text", "text": turn.text}] if turn.text else []
    return {"role": "user", "content": [*parts, *(_file_part(file) for file in turn.files)]}


def _file_part(file: InputFile) -> dict[str, Any]:
    if file.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": data_url(file)}}
    if file.media_type in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": encoded(file), "format": _AUDIO[file.media_type]}}
    if file.media_type.startswith("text/"):
        return {"type": "text", "text": f"{file.name}:\n{plain_text(file)}"}
    return {"type": "file", "file": {"filename": file.name, "file_data": data_url(file)}}


def _fixed_fields(model: str, options: OpenAIOptions, tools: Sequence[Tool]) -> dict[str, Any]:
    fields: dict[str, Any] = {"model": model, **options.sampling()}
    if options.max_tokens is not None:
        fields["max_tokens"] = options.max_tokens
    if options.stream:
        fields["stream"] = True
        if options.stream_usage:
            fields["stream_options"] = {"include_usage": True}
    fields |= options.params
    if tools:
        fields["tools"] = [*options.params.get("tools", []), *map(_offered, tools)]
    return fields


def _offered(tool: Tool) -> dict[str, Any]:
    """A tool as a model is told of it."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}
