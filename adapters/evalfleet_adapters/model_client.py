"""One call of a model, whatever API it is spoken to by: request, transport, and the reply in the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from evalfleet.errors import SendFailure
from evalfleet.model.model_call import ModelCall
from evalfleet.ports import AdapterContext
from evalfleet_adapters.converters.model_reply import Finish, ModelReply, UnusableResponse
from evalfleet_adapters.model_options import ModelOptions
from evalfleet_adapters.model_stream import AnswerStream, as_failed, provider_failure, raise_reported
from evalfleet_adapters.transport import Outgoing, Reader, Transport, read_json
from evalfleet_adapters.wire import Wire

#: How the APIs call the most tokens of an answer.
_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")


class ModelClient:
    """A model behind one API."""

    def __init__(self, wire: Wire, options: ModelOptions) -> None:
        self.wire = wire
        self._options = options
        self._transport = Transport(options.patience())

    async def ask(
        self, conversation: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None, ctx: AdapterContext
    ) -> ModelReply:
        """The model's answer to a conversation. Raises SendFailure, with what came of a broken stream as `partial`."""
        body = self.wire.body(conversation, schema, ctx)
        headers = {"content-type": "application/json", **self.wire.headers(ctx)}
        outgoing = Outgoing(url=self.wire.endpoint, body=json.dumps(body).encode("ascii"), headers=headers)
        limit = next((body[name] for name in _LIMITS if name in body), None)
        call = ModelCall(account=self.wire.account, input_bytes=len(outgoing.body), output_limit=limit)
        stream = AnswerStream(self.wire, ctx.log)
        try:
            reader = Reader(call, lambda answer: _document(answer, stream), self.wire.usage)
            return self._reply(await self._transport.exchange(outgoing, ctx, reader))
        except SendFailure as failure:
            failure.partial = stream.rescued() or failure.partial
            raise

    async def close(self) -> None:
        await self._transport.close()

    def _reply(self, document: Any) -> ModelReply:
        raise_reported(self.wire, document)
        try:
            reply = self.wire.read(document)
        except UnusableResponse as error:
            raise provider_failure("BAD_RESPONSE", str(error)) from error
        if reply.finish is Finish.ERROR:
            raise provider_failure("PROVIDER_ERROR", "the provider ended its answer with an error", as_failed(reply))
        if reply.is_empty and self._options.empty_reply == "error":
            raise provider_failure("EMPTY_RESPONSE", "the provider's answer is wholly empty", as_failed(reply))
        return reply


async def _document(response: httpx.Response, stream: AnswerStream) -> Any:
    """The response object, whether the server streamed it or, asked to stream or not, sent it whole."""
    if "text/event-stream" not in response.headers.get("content-type", ""):
        return await read_json(response)
    async for chunk in response.aiter_bytes():
        stream.feed(chunk)
    return stream.end()
