"""One call of a chat model: request body, transport, and reading the answer whether it is streamed or not."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from evalfleet.errors import Acceptance, FailureKind, SendFailure
from evalfleet.model.model_call import Account, ModelCall
from evalfleet.model.tool import Tool
from evalfleet.model.turn import InputFile, Turn, TurnInput, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet.ports import AdapterContext
from evalfleet_adapters.converters.openai_chat import (
    Finish,
    ModelReply,
    UnusableResponse,
    read_response,
    read_usage,
    reported_error,
)
from evalfleet_adapters.converters.openai_stream import ChatStream
from evalfleet_adapters.converters.sse import ServerSentEvent, SseParser
from evalfleet_adapters.converters.untrusted import mapping
from evalfleet_adapters.openai_options import OpenAIOptions
from evalfleet_adapters.transport import Outgoing, Patience, Reader, Transport, read_json, shown

_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class ChatModel:
    """A model behind `/chat/completions`."""

    def __init__(self, model: str, options: OpenAIOptions, tools: Sequence[Tool]) -> None:
        self._options = options
        self._fixed = _fixed_fields(model, options, tools)
        self._account = Account(provider="openai", base_url=options.base_url, key=options.api_key_env, model=model)
        self._transport = Transport(
            Patience(
                max_retries=options.max_retries,
                longest_wait=options.longest_wait,
                timeout=options.timeout,
                connect_timeout=options.connect_timeout,
                idempotent=options.idempotent,
            )
        )

    async def ask(
        self, messages: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None, ctx: AdapterContext
    ) -> ModelReply:
        """The model's answer to a conversation. Raises SendFailure, with what came of a broken stream as `partial`."""
        headers = {"content-type": "application/json"}
        if self._options.api_key_env is not None:
            # keys read from files end in a newline, which no header may hold
            headers["authorization"] = f"Bearer {ctx.secrets.resolve(self._options.api_key_env).strip()}"
        body = {**self._fixed, "messages": messages, **self._per_call(schema, ctx)}
        outgoing = Outgoing(url=self._options.endpoint, body=json.dumps(body).encode("ascii"), headers=headers)
        stream = ChatStream()
        try:
            reader = Reader(self._call(outgoing), lambda answer: _document(answer, stream, ctx), _usage)
            document = await self._transport.exchange(outgoing, ctx, reader)
            return self._read(document)
        except SendFailure as failure:
            failure.partial = _rescued(stream) or failure.partial
            raise

    async def close(self) -> None:
        await self._transport.close()

    def _call(self, outgoing: Outgoing) -> ModelCall:
        fields = self._fixed
        limit = fields.get("max_completion_tokens", fields.get("max_tokens"))
        return ModelCall(account=self._account, input_bytes=len(outgoing.body), output_limit=limit)

    def _per_call(self, schema: Mapping[str, Any] | None, ctx: AdapterContext) -> dict[str, Any]:
        fields: dict[str, Any] = {}
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

    def _read(self, document: Any) -> ModelReply:
        _raise_reported(document)
        try:
            reply = read_response(document, reasoning_as_reply=self._options.reasoning_as_reply)
        except UnusableResponse as error:
            raise _provider_failure("BAD_RESPONSE", str(error)) from error
        if reply.finish is Finish.ERROR:
            raise _provider_failure("PROVIDER_ERROR", "the provider ended its answer with an error", _as_turn(reply))
        if reply.is_empty and self._options.empty_reply == "error":
            raise _provider_failure("EMPTY_RESPONSE", "the provider's answer is wholly empty", _as_turn(reply))
        return reply


def user_message(turn: TurnInput) -> dict[str, Any]:
    """A turn's input as a message; files become content parts, with images, audio and documents as data URLs."""
    if not turn.files:
        return {"role": "user", "content": turn.text}
    parts: list[dict[str, Any]] = [{"type": "text", "text": turn.text}] if turn.text else []
    return {"role": "user", "content": [*parts, *(_file_part(file) for file in turn.files)]}


def _file_part(file: InputFile) -> dict[str, Any]:
    encoded = base64.b64encode(file.data).decode("ascii")
    url = f"data:{file.media_type};base64,{encoded}"
    if file.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if file.media_type in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": encoded, "format": _AUDIO[file.media_type]}}
    if file.media_type.startswith("text/"):
        return {"type": "text", "text": f"{file.name}:\n{file.data.decode('utf-8', 'replace')}"}
    return {"type": "file", "file": {"filename": file.name, "file_data": url}}


def _fixed_fields(model: str, options: OpenAIOptions, tools: Sequence[Tool]) -> dict[str, Any]:
    fields: dict[str, Any] = {"model": model}
    for name in ("temperature", "top_p", "max_tokens"):
        value = getattr(options, name)
        if value is not None:
            fields[name] = value
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


async def _document(response: httpx.Response, stream: ChatStream, ctx: AdapterContext) -> Any:
    """The response object, whether the server streamed it or, asked to stream or not, sent it whole."""
    if "text/event-stream" not in response.headers.get("content-type", ""):
        return await read_json(response)
    parser, done = SseParser(), False
    async for chunk in response.aiter_bytes():
        for event in parser.feed(chunk):
            done = _take(event, stream) or done
    left_over = parser.close()
    if left_over is not None and not done:
        done = _take_left_over(left_over, stream, ctx)
    if not done and not stream.finished:
        raise _provider_failure("STREAM_CUT", "the stream ended before the answer did")
    return stream.response()


def _take_left_over(event: ServerSentEvent, stream: ChatStream, ctx: AdapterContext) -> bool:
    """An event without its blank line is read as it stands; cut inside, it fails an answer that is not finished."""
    if event.data.strip() != "[DONE]":
        ctx.log(f"the stream's last event came without its end: {event.data[:200]}")
    try:
        return _take(event, stream)
    except SendFailure:
        if not stream.finished:
            raise
        return True


def _take(event: ServerSentEvent, stream: ChatStream) -> bool:
    """Add one event to the stream; True when it says that the stream is done."""
    if event.data.strip() == "[DONE]":
        return True
    try:
        chunk = json.loads(event.data)
    except (ValueError, RecursionError) as error:
        if not event.terminated:
            raise _provider_failure("STREAM_CUT", f"the stream was cut inside an event: {event.data[-100:]}") from error
        raise _provider_failure("BAD_RESPONSE", f"a chunk is not JSON: {shown(event.data.encode())}") from error
    stream.add(chunk)
    _raise_reported(chunk)
    return False


def _usage(document: Any) -> Usage | None:
    return read_usage(mapping(document).get("usage"))


def _raise_reported(document: Any) -> None:
    reported = reported_error(document)
    if reported is not None:
        code = "RATE_LIMITED" if reported.code in ("429", "rate_limit_exceeded") else "PROVIDER_ERROR"
        usage = read_usage(mapping(document).get("usage"))
        charged = Turn(status=TurnStatus.FAILED, usage=usage) if usage else None
        raise _provider_failure(code, f"{reported.message} ({reported.code})", charged)


def _rescued(stream: ChatStream) -> Turn | None:
    """What a stream brought before it broke."""
    try:
        return _as_turn(read_response(stream.response()))
    except UnusableResponse:
        return None


def _as_turn(reply: ModelReply) -> Turn:
    return Turn(status=TurnStatus.FAILED, events=reply.events, usage=reply.usage)


def _provider_failure(code: str, message: str, partial: Turn | None = None) -> SendFailure:
    return SendFailure(message, kind=FailureKind.PROVIDER, code=code, acceptance=Acceptance.STARTED, partial=partial)
