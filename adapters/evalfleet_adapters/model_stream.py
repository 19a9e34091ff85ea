"""The bytes of a streamed answer → the answer, with whatever breaks off as a failure that keeps what came."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from evalfleet.errors import Acceptance, FailureKind, SendFailure
from evalfleet.model.turn import Turn, TurnStatus
from evalfleet_adapters.converters.model_reply import ModelReply, UnusableResponse
from evalfleet_adapters.converters.sse import ServerSentEvent, SseParser
from evalfleet_adapters.transport import shown
from evalfleet_adapters.wire import Wire

#: What providers call it, in an answer that began well, when they have too much to do.
_RATE = frozenset({"429", "rate_limit_exceeded", "rate_limit_error"})
#: How the codes of requests begin that would fail again however often they were sent.
_REFUSED = ("invalid_", "image_", "unsupported_", "empty_image", "bio_policy", "misalignment_policy")
_OVERLOAD = frozenset({"529", "overloaded_error", "server_is_overloaded", "slow_down"})


class AnswerStream:
    """Feed it chunks in order, then take the document at the `end`. What it raises is a SendFailure."""

    def __init__(self, wire: Wire, log: Callable[[str], None]) -> None:
        self._wire = wire
        self._log = log
        self._parser = SseParser()
        self._stream = wire.stream()
        self._done = False

    def feed(self, chunk: bytes) -> None:
        """Take bytes, however the network cut them. Raises what the provider reports."""
        for event in self._parser.feed(chunk):
            self._take(event)

    def end(self) -> dict[str, Any]:
        """The document that the events add up to. Raises when the stream ended before the answer did."""
        left_over = self._parser.close()
        if left_over is not None and not self._done:
            self._take_left_over(left_over)
        if not self._done and not self._stream.finished:
            raise provider_failure("STREAM_CUT", "the stream ended before the answer did")
        return self._stream.response()

    def rescued(self) -> Turn | None:
        """What a stream brought before it broke; None for nothing."""
        try:
            turn = as_failed(self._wire.read(self._stream.response()))
        except UnusableResponse:
            return None
        return turn if turn.events or turn.usage else None

    def _take_left_over(self, event: ServerSentEvent) -> None:
        """An event without its blank line is read as it stands; cut inside, it fails an answer that is not finished."""
        if event.data.strip() != "[DONE]":
            self._log(f"the stream's last event came without its end: {event.data[:200]}")
        try:
            self._take(event)
        except SendFailure:
            if not self._stream.finished:
                raise

    def _take(self, event: ServerSentEvent) -> None:
        if event.data.strip() == "[DONE]":
            self._done = True
            return
        try:
            chunk = json.loads(event.data)
        except (ValueError, RecursionError) as error:
            if not event.terminated:
                said = f"the stream was cut inside an event: {event.data[-100:]}"
                raise provider_failure("STREAM_CUT", said) from error
            raise provider_failure("BAD_RESPONSE", f"a chunk is not JSON: {shown(event.data.encode())}") from error
        self._stream.add(chunk)
        raise_reported(self._wire, chunk)


def raise_reported(wire: Wire, document: Any) -> None:
    """Raise the error that an answer, or an event of one, reports, with the usage that it was charged for."""
    reported = wire.error(document)
    if reported is None:
        return
    code = "RATE_LIMITED" if reported.code in _RATE else "PROVIDER_ERROR"
    code = "PROVIDER_UNAVAILABLE" if reported.code in _OVERLOAD else code
    usage = wire.usage(document)
    charged = Turn(status=TurnStatus.FAILED, usage=usage) if usage else None
    failure = provider_failure(code, f"{reported.message} ({reported.code})", charged)
    if reported.code.startswith(_REFUSED):
        failure.kind, failure.code = FailureKind.ADAPTER, "REQUEST_REFUSED"
    raise failure


def as_failed(reply: ModelReply) -> Turn:
    """What a reply brought, as the turn of a send that failed."""
    return Turn(status=TurnStatus.FAILED, events=reply.events, usage=reply.usage)


def provider_failure(code: str, message: str, partial: Turn | None = None) -> SendFailure:
    """The failure of an answer that had begun."""
    return SendFailure(message, kind=FailureKind.PROVIDER, code=code, acceptance=Acceptance.STARTED, partial=partial)
