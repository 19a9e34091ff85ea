"""The bytes of an agent's stream → a turn, by the arm's mapping; what breaks off fails the send and keeps what came."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any, Protocol

import httpx

from evalfleet.errors import Acceptance, FailureKind, SendFailure
from evalfleet.model.events import Event
from evalfleet.model.turn import Turn, TurnStatus
from evalfleet.ports import AdapterContext
from evalfleet_adapters.converters.sse import ServerSentEvent, SseParser
from evalfleet_adapters.converters.ui_message import AssistantMessage
from evalfleet_adapters.converters.ui_message_stream import UiMessageStream
from evalfleet_adapters.converters.untrusted import mapping
from evalfleet_adapters.http_answer import read_events, read_ui_message, session_id, session_of
from evalfleet_adapters.http_events import EventLog
from evalfleet_adapters.http_mapping import NO_EVENTS, ResponseMapping
from evalfleet_adapters.transport import broken, shown


class Heard(Protocol):
    """What a stream has told so far."""

    @property
    def finished(self) -> bool: ...
    @property
    def must_finish(self) -> bool:
        """Whether a stream that just ends has broken off."""
        ...

    def hear(self, name: str, document: Any) -> None: ...
    def so_far(self) -> list[Event]: ...
    def turn(self) -> Turn: ...
    def session(self) -> str | None: ...


class HeardEvents:
    """A stream of events of the application's own."""

    def __init__(self, mapped: ResponseMapping, started: Collection[str]) -> None:
        self._mapped = mapped
        self._log = EventLog(mapped, started)
        self.must_finish = (mapped.events or NO_EVENTS).done is not None

    @property
    def finished(self) -> bool:
        return self._log.finished

    def hear(self, name: str, document: Any) -> None:
        self._log.add(name, document)

    def so_far(self) -> list[Event]:
        return self._log.so_far()

    def turn(self) -> Turn:
        return read_events(self._log, self._mapped)

    def session(self) -> str | None:
        return session_of(self._log, self._mapped)


class HeardUiMessage:
    """A UI message stream of the AI SDK. `message` is the answer as the next request holds it."""

    must_finish = True

    def __init__(self, mapped: ResponseMapping, started: Collection[str], before: dict[str, Any] | None) -> None:
        self.message = AssistantMessage(before)
        self._mapped = mapped
        self._stream = UiMessageStream(started)

    @property
    def finished(self) -> bool:
        return self._stream.finished

    def hear(self, name: str, document: Any) -> None:
        self._stream.add(document)
        self.message.take(mapping(document))

    def so_far(self) -> list[Event]:
        return self._stream.so_far()

    def turn(self) -> Turn:
        return read_ui_message(self._stream, self._mapped)

    def session(self) -> str | None:
        return session_id(self._stream.document, self._mapped)


class EventStream:
    """Feed it chunks in order, then `end` it: it hands the events on. What it raises is a SendFailure."""

    def __init__(self, heard: Heard, log: Callable[[str], None], *, text: bool = False) -> None:
        self._heard = heard
        self._log = log
        self._text = text
        self._parser = SseParser()
        self._done = False

    def feed(self, chunk: bytes) -> None:
        """Take bytes, however the network cut them."""
        for event in self._parser.feed(chunk):
            self._take(event)

    def end(self) -> None:
        """The connection ended. Raises when the answer did not."""
        left_over = self._parser.close()
        if left_over is not None and not (self._done or self._heard.finished):
            self._take(left_over)
        if not (self._done or self._heard.finished) and self._heard.must_finish:
            raise _cut("the stream ended before the answer did")

    def rescued(self) -> Turn | None:
        """What came before it broke; None for nothing."""
        events = self._heard.so_far()
        return Turn(status=TurnStatus.FAILED, events=tuple(events)) if events else None

    def _take(self, event: ServerSentEvent) -> None:
        if event.data.strip() == "[DONE]":
            self._done = True
            return
        document: Any = event.data
        if not self._text:
            try:
                document = json.loads(event.data)
            except (ValueError, RecursionError) as error:
                if not event.terminated:
                    raise _cut(f"the stream was cut inside an event: {event.data[-100:]}") from error
                raise bad_answer(f"an event is not JSON: {shown(event.data.encode())}") from error
        elif not event.terminated:
            raise _cut(f"the stream was cut inside an event: {event.data[-100:]}")
        if not event.terminated:
            self._log(f"the stream's last event came without its end: {event.data[:200]}")
        self._heard.hear(event.name, document)


async def listen(response: httpx.Response, heard: Heard, ctx: AdapterContext, *, text: bool) -> None:
    """Hand the events of an answer on as they come. Raises SendFailure, with what came as `partial`."""
    media_type = response.headers.get("content-type", "without a content type")
    if "text/event-stream" not in media_type:
        raise bad_answer(f"{media_type} is no event stream: {shown(await response.aread())}")
    stream = EventStream(heard, ctx.log, text=text)
    try:
        async for chunk in response.aiter_bytes():
            stream.feed(chunk)
        stream.end()
    except SendFailure as failure:
        failure.partial = stream.rescued()
        raise
    except httpx.HTTPError as error:
        failure = broken(error, started=True)
        failure.partial = stream.rescued()
        raise failure from error


def _cut(said: str) -> SendFailure:
    return SendFailure(said, kind=FailureKind.PROVIDER, code="STREAM_CUT", acceptance=Acceptance.STARTED)


def bad_answer(said: str) -> SendFailure:
    """The failure of an answer that can't be read."""
    return SendFailure(said, kind=FailureKind.PROVIDER, code="BAD_RESPONSE", acceptance=Acceptance.STARTED)
