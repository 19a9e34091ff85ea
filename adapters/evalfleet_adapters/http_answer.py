"""A mapped HTTP response → a turn. PURE."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from evalfleet.model.coverage import Channel, CoverageEntry, partial, unavailable, worse
from evalfleet.model.events import (
    MISSING,
    ErrorReported,
    Event,
    InputOption,
    InputRequested,
    Message,
    OperationFinished,
    OperationStarted,
    OperationStatus,
    Role,
    Unrecognised,
)
from evalfleet.model.turn import Turn, TurnStatus
from evalfleet.model.usage import Usage
from evalfleet_adapters.converters.ui_message_stream import UiMessageStream
from evalfleet_adapters.converters.untrusted import amount, as_text, count, mapping, recordable, sequence
from evalfleet_adapters.http_events import EventLog
from evalfleet_adapters.http_mapping import (
    RequestsMapping,
    ResponseMapping,
    ToolsMapping,
    UsageMapping,
    known_word,
    look_up,
)


class Source(Protocol):
    """Where paths are looked up: one document, or all events of a stream."""

    def find(self, path: str) -> Any:
        """The value at the path; MISSING when it leads nowhere."""
        ...

    def items(self, path: str) -> Any:
        """The list at the path."""
        ...


class _Document:
    def __init__(self, document: Any) -> None:
        self._document = document

    def find(self, path: str) -> Any:
        return look_up(self._document, path)

    items = find


def read_answer(document: Any, mapped: ResponseMapping, started: Collection[str] = ()) -> Turn:
    """The turn in a response: tool calls, questions, the reply and errors as events, in this order.

    `started` are the ids of calls that an earlier turn left pending: they go on here and do not start again.
    """
    return _Reading(_Document(document), document, started).turn(mapped)


def read_events(log: EventLog, mapped: ResponseMapping) -> Turn:
    """The turn in a stream of events: calls and texts in the order of the stream, then questions."""
    reading = _Reading(log, log.documents, ())
    for channel, reason in log.doubts.items():
        reading.doubt(channel, reason)
    asked = [] if mapped.requests is None else reading.requests(mapped.requests)
    events = log.so_far()
    reply = None if mapped.reply is None else reading.reply(mapped)
    if not any(isinstance(event, Message) for event in events) and mapped.reply is None:
        reading.doubt(Channel.MESSAGES, "no event has a piece of the reply where events.delta says")
    return reading.ended(mapped, [*events, *asked], TurnStatus.WAITING if asked else TurnStatus.COMPLETED, reply)


def read_ui_message(stream: UiMessageStream, mapped: ResponseMapping) -> Turn:
    """The turn in a UI message stream; what is mapped beside its events stands in the stream's document."""
    reading = _Reading(_Document(stream.document), stream.document, ())
    return reading.ended(mapped, stream.whole(), stream.status, None)


def still_pending(turn: Turn, started: Collection[str]) -> frozenset[str]:
    """The ids of the calls that are pending after `turn`, of those before it and its own."""
    begun = {event.operation_id for event in turn.events if isinstance(event, OperationStarted)}
    ended = {event.operation_id for event in turn.events if isinstance(event, OperationFinished)}
    return frozenset((begun | set(started)) - ended)


def session_id(document: Any, mapped: ResponseMapping) -> str | None:
    """The session id in a response, numbers as text; None without one."""
    return session_of(_Document(document), mapped)


def session_of(source: Source, mapped: ResponseMapping) -> str | None:
    """The session id where paths are looked up in `source`."""
    value = MISSING if mapped.session is None else source.find(mapped.session)
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else None


class _Reading:
    """One response being read; notes what was promised and is not there."""

    def __init__(self, source: Source, raw: Any, started: Collection[str]) -> None:
        self._source = source
        self._raw = raw
        self._started = started
        self._doubts: dict[Channel, CoverageEntry] = {}

    def turn(self, mapped: ResponseMapping) -> Turn:
        events: list[Event] = []
        if mapped.tools is not None:
            events += self._tools(mapped.tools)
        asked = [] if mapped.requests is None else self.requests(mapped.requests)
        reply = self.reply(mapped)
        events += [*asked, *([] if reply is None else [Message(Role.ASSISTANT, reply)])]
        return self.ended(mapped, events, TurnStatus.WAITING if asked else TurnStatus.COMPLETED, reply)

    def ended(self, mapped: ResponseMapping, events: list[Event], status: TurnStatus, reply: str | None) -> Turn:
        """The turn with these events, and with all that is mapped beside them."""
        error = MISSING if mapped.error is None else self._source.find(mapped.error)
        if error is not MISSING and error is not None:
            events.append(ErrorReported(error if isinstance(error, str) else as_text(error)))
            status = TurnStatus.FAILED
        if mapped.status is not None:
            status = self._status(mapped.status, mapped.statuses, status)
        data = MISSING if mapped.data is None else self._data(mapped.data)
        usage = None if mapped.usage is None else self._usage(mapped.usage)
        if self._doubts:
            events.append(Unrecognised("response", self._raw if recordable(self._raw) else as_text(self._raw)))
        observation = None if mapped.observation is None else self._observation(mapped.observation)
        return Turn(
            status=status,
            reply=reply,
            events=tuple(events),
            data=data,
            usage=usage,
            coverage=self._doubts,
            observation=observation,
        )

    def reply(self, mapped: ResponseMapping) -> str | None:
        """The reply as it is mapped; None without one."""
        if mapped.reply is None:
            return self._raw if mapped.body == "text" else None
        value = self._promised(Channel.MESSAGES, mapped.reply)
        if value is MISSING or value is None:
            return None
        return value if isinstance(value, str) else as_text(value)

    def _status(self, path: str, words: Mapping[str, TurnStatus], otherwise: TurnStatus) -> TurnStatus:
        value = self._promised(Channel.STATUS, path)
        if value is MISSING:
            return otherwise
        known = known_word(value, words, TurnStatus)
        if known is None:
            self.doubt(Channel.STATUS, f"the endpoint's status is {as_text(value)[:80]}")
        return known or otherwise

    def _data(self, path: str) -> Any:
        value = self._promised(Channel.DATA, path)
        if value is MISSING or recordable(value):
            return value
        self.doubt(Channel.DATA, f"the value at {path!r} nests too deep to be recorded")
        return MISSING

    def _observation(self, path: str) -> Mapping[str, Any] | None:
        """The object at `path`; what stands there is nothing to check when it is none."""
        value = self._promised(Channel.DATA, path)
        if isinstance(value, dict) and recordable(value):
            return mapping(value)
        if value is not MISSING:
            self.doubt(Channel.DATA, f"the value at {path!r} is no JSON object that can be recorded")
        return {}

    def _usage(self, mapped: UsageMapping) -> Usage:
        def at(path: str | None, read: Callable[[Any], Any]) -> Any:
            return None if path is None else read(self._source.find(path))

        buckets = {name: at(getattr(mapped, name), count) for name in _COUNTS}
        usage = Usage(**buckets, cost_usd=at(mapped.cost_usd, amount))
        for name in ("input_tokens", "output_tokens"):
            path = getattr(mapped, name)
            if path is not None and buckets[name] is None:
                self.doubt(Channel.USAGE, f"the response has no count at {path!r}")
        if all(value is None for value in buckets.values()) and usage.cost_usd is None:
            self._doubts[Channel.USAGE] = unavailable("the endpoint reported no usage")
            return Usage(unknown_calls=1)
        cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
        if mapped.cached_in_input and usage.input_tokens is not None and cached <= usage.input_tokens:
            return replace(usage, input_tokens=usage.input_tokens - cached)
        return usage

    def _tools(self, mapped: ToolsMapping) -> list[Event]:
        events: list[Event] = []
        for index, item in enumerate(self._items(Channel.ACTIONS, mapped.items)):
            name = look_up(item, mapped.name)
            if not isinstance(name, str):
                self.doubt(Channel.ACTIONS, f"a tool call has no name at {mapped.name!r}")
                continue
            identifier = MISSING if mapped.id is None else look_up(item, mapped.id)
            identifier = str(index) if identifier is MISSING or identifier is None else str(identifier)
            if mapped.id is None or identifier not in self._started:
                events.append(OperationStarted(identifier, name, _value(item, mapped.input)))
            status = self._tool_status(item, mapped)
            if status is not OperationStatus.PENDING:
                events.append(OperationFinished(identifier, status, _value(item, mapped.output)))
        return events

    def _tool_status(self, item: Any, mapped: ToolsMapping) -> OperationStatus:
        """How a call ended; one whose status is missing or unknown never did, as far as is known."""
        if mapped.status is None:
            return OperationStatus.COMPLETED
        value = look_up(item, mapped.status)
        status = known_word(value, mapped.statuses, OperationStatus)
        if status is None:
            shown = "missing" if value is MISSING else as_text(value)[:80]
            self.doubt(Channel.ACTIONS, f"a tool call's status is {shown}")
        return status or OperationStatus.PENDING

    def requests(self, mapped: RequestsMapping) -> list[Event]:
        """The questions that are listed."""
        events: list[Event] = []
        for item in self._items(Channel.EVENTS, mapped.items):
            identifier = look_up(item, mapped.id)
            known = isinstance(identifier, (str, int))
            events.append(
                InputRequested(
                    request_id=str(identifier) if known else None,
                    prompt=_text(item, mapped.prompt),
                    action=_text(item, mapped.action),
                    input=_value(item, mapped.input),
                    options=tuple(_options(item, mapped)),
                )
            )
        return events

    def _items(self, channel: Channel, path: str) -> list[Any]:
        value = self._promised(channel, path, self._source.items)
        if value is not MISSING and value is not None and not isinstance(value, list):
            self.doubt(channel, f"the value at {path!r} is no array")
        return sequence(value)

    def _promised(self, channel: Channel, path: str, find: Callable[[str], Any] | None = None) -> Any:
        value = (find or self._source.find)(path)
        if value is MISSING:
            self.doubt(channel, f"the response has nothing at {path!r}")
        return value

    def doubt(self, channel: Channel, reason: str) -> None:
        """Take back that the channel is complete."""
        entry = partial(reason)
        self._doubts[channel] = worse(self._doubts.get(channel, entry), entry)


_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "requests")


def _options(item: Any, mapped: RequestsMapping) -> Iterator[InputOption]:
    listed = MISSING if mapped.options is None else look_up(item, mapped.options)
    for option in sequence(listed):
        identifier = look_up(option, mapped.option_id)
        if isinstance(identifier, (str, int)):
            yield InputOption(str(identifier), _text(option, mapped.option_label))


def _text(item: Any, path: str | None) -> str | None:
    value = MISSING if path is None else look_up(item, path)
    return value if isinstance(value, str) else None


def _value(item: Any, path: str | None) -> Any:
    value = MISSING if path is None else look_up(item, path)
    return value if value is MISSING or recordable(value) else as_text(value)
