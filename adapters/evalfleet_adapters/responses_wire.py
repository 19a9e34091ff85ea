"""OpenAI's Responses API: what is sent to `/responses`, and how its answer is read.

Nothing is stored at the provider (`store: false`): every request has the whole conversation, with the model's own items
as they came. Its reasoning goes back sealed; a request of an arm that asks to reason asks for the seal.
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
from evalfleet_adapters.chat_wire import bearer
from evalfleet_adapters.converters.model_reply import ModelReply, ProviderError, ToolCall
from evalfleet_adapters.converters.openai_responses import read_response, read_usage, reported_error
from evalfleet_adapters.converters.openai_responses_stream import ResponsesStream
from evalfleet_adapters.converters.untrusted import mapping, sequence
from evalfleet_adapters.files import data_url, plain_text, refused
from evalfleet_adapters.openai_options import OpenAIOptions

_SEALED_REASONING = "reasoning.encrypted_content"


class ResponsesWire:
    """A model behind `/responses`."""

    def __init__(self, model: str, options: OpenAIOptions, tools: Sequence[Tool]) -> None:
        self.endpoint = options.endpoint
        self.account = Account(provider="openai", base_url=options.base_url, key=options.api_key_env, model=model)
        self._options = options
        self._fixed = _fixed_fields(model, options, tools)

    def opening(self) -> list[dict[str, Any]]:
        return []

    def said(self, turn: TurnInput) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [{"type": "input_text", "text": turn.text}] if turn.text else []
        content = [*parts, *(_file_part(file) for file in turn.files)] if turn.files else turn.text
        return {"type": "message", "role": "user", "content": content}

    def answered(self, call: ToolCall, text: str, status: OperationStatus) -> dict[str, Any]:
        if call.remote:
            allowed = status is OperationStatus.COMPLETED
            answer = {"type": "mcp_approval_response", "approval_request_id": call.id, "approve": allowed}
            return answer if allowed else {**answer, "reason": text}
        kind = "custom_tool_call_output" if call.custom else "function_call_output"
        return {"type": kind, "call_id": call.id, "output": text}

    def headers(self, ctx: AdapterContext) -> dict[str, str]:
        return bearer(self._options.api_key_env, ctx)

    def body(
        self, conversation: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None, ctx: AdapterContext
    ) -> dict[str, Any]:
        fields: dict[str, Any] = {**self._fixed, "input": conversation}
        if ctx.tools:
            fields["tools"] = [*self._fixed.get("tools", ()), *map(_offered, ctx.tools)]
        if schema is not None:
            strict = self._options.strict_schema
            form = {"type": "json_schema", "name": "output", "schema": dict(schema), "strict": strict}
            fields["text"] = {**mapping(self._fixed.get("text")), "format": form}
        return fields

    def stream(self) -> ResponsesStream:
        return ResponsesStream()

    def read(self, document: Any) -> ModelReply:
        return read_response(document, reasoning_as_reply=self._options.reasoning_as_reply)

    def usage(self, document: Any) -> Usage | None:
        return read_usage(document)

    def error(self, document: Any) -> ProviderError | None:
        return reported_error(document)


def _file_part(file: InputFile) -> dict[str, Any]:
    if file.media_type.startswith("image/"):
        return {"type": "input_image", "image_url": data_url(file), "detail": "auto"}
    if file.media_type.startswith("text/"):
        return {"type": "input_text", "text": f"{file.name}:\n{plain_text(file)}"}
    if file.media_type.startswith(("audio/", "video/")):
        raise refused(file, "text, images and documents")
    return {"type": "input_file", "filename": file.name, "file_data": data_url(file)}


def _fixed_fields(model: str, options: OpenAIOptions, tools: Sequence[Tool]) -> dict[str, Any]:
    fields: dict[str, Any] = {"model": model, "store": False, **options.sampling()}
    if options.system is not None:
        fields["instructions"] = options.system
    if options.max_tokens is not None:
        fields["max_output_tokens"] = options.max_tokens
    if options.stream:
        fields["stream"] = True
    fields |= options.params
    included = sequence(fields.get("include"))
    if fields.get("reasoning") and _SEALED_REASONING not in included:
        fields["include"] = [*included, _SEALED_REASONING]
    if tools:
        fields["tools"] = [*options.params.get("tools", []), *map(_offered, tools)]
    return fields


def _offered(tool: Tool) -> dict[str, Any]:
    """A tool as a model is told of it; this API takes schemas for strict ones unless it is told otherwise."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }
