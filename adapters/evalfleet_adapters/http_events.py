"""The events of a mapped stream → pieces of a turn, one event at a time. PURE.

A path is looked up in every event; the last one that has something there counts. Texts and thoughts grow by what their
path brings, and calls of tools begin and end where they are told, so that everything keeps its order. An event in
which no path finds anything is kept as `Unrecognised`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from evalfleet.model.coverage import Channel
from evalfleet.model.events import (
    MISSING,
    Event,
    Message,
    OperationFinished,
    OperationStarted,
    OperationStatus,
    Role,
    Thinking,
)
from evalfleet_adapters.converters.model_reply import kept, recorded
from evalfleet_adapters.converters.untrusted import as_text, sequence
from evalfleet_adapters.http_mapping import (
    NO_EVENTS,
    EventsMapping,
    ResponseMapping,
    ToolsMapping,
    known_word,
    look_up,
)


class EventLog:
    """Add events in order. `started` are calls of earlier turns that may end in this one, `doubts` what was amiss."""

    def __init__(self, mapped: ResponseMapping, started: Collection[str] = ()) -> None:
        self.finished = False
        self.documents: list[Any] = []
        self.doubts: dict[Channel, str] = {}
        self._mapped = mapped
        self._events: EventsMapping = mapped.events or NO_EVENTS
        self._slots: list[Event] = []
        self._said: list[str] = []
        self._thinks = False
        self._running = set(started)
        self._calls = 0
        self._paths = [path for path in _single(mapped) if path is not None]

    def add(self, name: str, document: Any) -> None:
        """Take one event; `name` is the one that the server gave it, or `message`."""
        kind = self._kind(name, document)
        self.documents.append(document)
        known = kind in self._events.ignore
        if self._events.done is not None and self._events.done in (kind, document):
            self.finished = known = True
        for path, thinks in ((self._events.delta, False), (self._events.thinking, True)):
            piece = look_up(document, path) if (path := _path_of(path, kind)) is not None else MISSING
            if isinstance(piece, str):
                known = True
                self._say(piece, thinks)
        if self._mapped.tools is not None:
            known = self._tools(self._mapped.tools, document) or known
        if not known and all(look_up(document, path) is MISSING for path in self._paths):
            self._add(kept(kind, document))

    def so_far(self) -> list[Event]:
        """The events of what came."""
        return [*self._slots, *self._text()]

    def find(self, path: str) -> Any:
        """What the last event that has something at the path has there; MISSING when none has."""
        found = (look_up(document, path) for document in reversed(self.documents))
        return next((value for value in found if value is not MISSING), MISSING)

    def items(self, path: str) -> Any:
        """What stands at the path in all events together; none has to have anything."""
        found = [look_up(document, path) for document in self.documents]
        return [item for value in found if value not in (MISSING, None) for item in _listed(value)]

    def _kind(self, name: str, document: Any) -> str:
        if self._events.kind is None:
            return name
        found = look_up(document, self._events.kind)
        return found if isinstance(found, str) else name

    def _say(self, piece: str, thinks: bool) -> None:
        if thinks is not self._thinks:
            self._flush()
            self._thinks = thinks
        self._said.append(piece)

    def _text(self) -> list[Event]:
        said = "".join(self._said)
        if not said:
            return []
        return [Thinking(said) if self._thinks else Message(Role.ASSISTANT, said)]

    def _flush(self) -> None:
        self._slots += self._text()
        self._said.clear()

    def _add(self, event: Event) -> None:
        self._flush()
        self._slots.append(event)

    def _tools(self, mapped: ToolsMapping, document: Any) -> bool:
        """Begin and end the calls that an event tells of; whether it tells of any."""
        value = look_up(document, mapped.items)
        calls = [] if value in (MISSING, None) else _listed(value)
        told = [self._call(mapped, item) for item in calls]
        return any(told)

    def _call(self, mapped: ToolsMapping, item: Any) -> bool:
        given = MISSING if mapped.id is None else look_up(item, mapped.id)
        identifier = str(self._calls) if given is MISSING or given is None else str(given)
        name, output = look_up(item, mapped.name), _value(item, mapped.output)
        if identifier not in self._running:
            if not isinstance(name, str):
                if mapped.items != ".":
                    self.doubts[Channel.ACTIONS] = f"a tool call has no name at {mapped.name!r}"
                return False
            self._calls += 1
            self._running.add(identifier)
            self._add(OperationStarted(identifier, name, _value(item, mapped.input)))
        status = self._status(mapped, item, output)
        if status is not OperationStatus.PENDING:
            self._running.discard(identifier)
            self._add(OperationFinished(identifier, status, output))
        return True

    def _status(self, mapped: ToolsMapping, item: Any, output: Any) -> OperationStatus:
        """How a call ended; without a word for it, it did when there is an output, or when none is mapped."""
        if mapped.status is None:
            open_ = mapped.output is not None and output is MISSING
            return OperationStatus.PENDING if open_ else OperationStatus.COMPLETED
        value = look_up(item, mapped.status)
        status = known_word(value, mapped.statuses, OperationStatus)
        if status is None and value is not MISSING:
            self.doubts[Channel.ACTIONS] = f"a tool call's status is {as_text(value)[:80]}"
        return status or OperationStatus.PENDING


def _single(mapped: ResponseMapping) -> list[str | None]:
    """The paths that say something of a turn as a whole."""
    usage = [] if mapped.usage is None else [getattr(mapped.usage, name) for name in type(mapped.usage).model_fields]
    requests = None if mapped.requests is None else mapped.requests.items
    paths = [mapped.reply, mapped.data, mapped.observation, mapped.session, mapped.status, mapped.error, requests]
    return [*paths, *(path for path in usage if isinstance(path, str))]


def _path_of(path: str | Mapping[str, str] | None, kind: str) -> str | None:
    return path if path is None or isinstance(path, str) else path.get(kind)


def _listed(value: Any) -> list[Any]:
    return sequence(value) if isinstance(value, list) else [value]


def _value(item: Any, path: str | None) -> Any:
    return MISSING if path is None else recorded(look_up(item, path))
