"""An incremental parser of server-sent events over bytes, however the network splits them.

Lines end in LF, CRLF or a lone CR; comments are dropped; the bytes of a line are decoded together, so a character
may be split between chunks. Source: the WHATWG rules, with one difference. An event that the connection's end left
without its blank line is handed out by `close` with `terminated=False` instead of being dropped: the caller decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event. `name` is `message` unless the server named it; `data` joins its data lines by newlines."""

    data: str
    name: str = "message"
    id: str = ""
    terminated: bool = True


class SseParser:
    """Feed it chunks in order; each call returns the events that the chunk completed."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._after_cr = False
        self._at_start = True
        self._name = ""
        self._id = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events completed by `chunk`, in order."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        *whole, rest = _LINE_END.split(chunk)
        events: list[ServerSentEvent] = []
        for end in whole:
            event = self._line(b"".join((*self._pending, end)))
            self._pending.clear()
            if event is not None:
                events.append(event)
        if rest:
            self._pending.append(rest)
        return events

    def close(self) -> ServerSentEvent | None:
        """The event that the end of the connection cut off, `terminated=False`; None when nothing is left over."""
        if self._pending:
            self._line(b"".join(self._pending))
            self._pending.clear()
        return self._dispatch(terminated=False)

    def _line(self, raw: bytes) -> ServerSentEvent | None:
        if self._at_start:
            self._at_start = False
            raw = raw.removeprefix(_BOM)
        if not raw:
            return self._dispatch(terminated=True)
        field, _, value = raw.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        elif field == "id" and "\0" not in value:
            self._id = value
        return None

    def _dispatch(self, *, terminated: bool) -> ServerSentEvent | None:
        name, self._name = self._name, ""
        if not self._data:
            return None
        event = ServerSentEvent("\n".join(self._data), name or "message", self._id, terminated)
        self._data.clear()
        return event
