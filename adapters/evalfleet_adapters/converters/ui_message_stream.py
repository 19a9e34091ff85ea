"""The UI message stream of the AI SDK → pieces of a turn, one chunk at a time.

Chunks are those of `ai` 5, with the approvals of `ai` 6. What the protocol has and we have no event for (sources,
files, data) is kept as `Unrecognised` like what nobody knows. `document` holds what is no event, for paths of a
mapping: `messageId`, `metadata`, `data` by name, and `finishReason`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

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
    Thinking,
)
from evalfleet.model.turn import TurnStatus
from evalfleet_adapters.converters.model_reply import kept, recorded
from evalfleet_adapters.converters.ui_message import APPROVE, DENY
from evalfleet_adapters.converters.untrusted import mapping, text

_OPTIONS = (InputOption(APPROVE, "Run it"), InputOption(DENY, "Don't run it"))
_STATUS = {"length": TurnStatus.TRUNCATED, "content-filter": TurnStatus.FAILED, "error": TurnStatus.FAILED}
_NOTHING_NEW = frozenset({"start-step", "finish-step"})


@dataclass(slots=True)
class _Text:
    """A text or a thought in the making."""

    thought: bool
    pieces: list[str] = field(default_factory=list[str])

    def event(self) -> list[Event]:
        said = "".join(self.pieces)
        if not said:
            return []
        return [Thinking(said) if self.thought else Message(Role.ASSISTANT, said)]


class UiMessageStream:
    """Add chunks in order. `begun` are calls of earlier turns that may end in this one."""

    def __init__(self, begun: Collection[str] = ()) -> None:
        self.finished = False
        self.status = TurnStatus.COMPLETED
        self.document: dict[str, Any] = {"metadata": {}, "data": {}}
        self._slots: list[_Text | Event] = []
        self._texts: dict[tuple[str, str], _Text] = {}
        self._running = set(begun)
        self._names: dict[str, tuple[str, Any]] = {}
        self._inputs: dict[str, list[str]] = {}
        self._unreadable: set[str] = set()

    def add(self, chunk: Any) -> None:
        """Take one chunk."""
        fields = mapping(chunk)
        kind = text(fields.get("type")) or ""
        family, _, step = kind.partition("-")
        if family in ("text", "reasoning"):
            self._text(family, step, fields)
        elif family == "tool":
            self._tool(kind, fields, chunk)
        elif kind in ("start", "message-metadata", "finish"):
            self._about(kind, fields)
        elif kind in ("error", "abort"):
            said = text(fields.get("errorText")) or text(fields.get("reason"))
            self._slots.append(ErrorReported(said or f"the application ended the stream: {kind}"))
            self.status = TurnStatus.FAILED
            self.finished = self.finished or kind == "abort"
        elif kind not in _NOTHING_NEW:
            if family == "data" and step:
                self.document["data"][step] = fields.get("data")
            self._slots.append(kept(kind or "chunk", chunk))

    def so_far(self) -> list[Event]:
        """The events of the chunks that came."""
        events: list[Event] = []
        for slot in self._slots:
            events += slot.event() if isinstance(slot, _Text) else [slot]
        return events

    def whole(self) -> list[Event]:
        """The events of a stream that is over: a call whose input never became whole is one, too."""
        cut = [
            OperationStarted(identifier, self._names[identifier][0], MISSING, raw_input="".join(pieces))
            for identifier, pieces in self._inputs.items()
        ]
        return [*self.so_far(), *cut]

    def _text(self, family: str, step: str, fields: dict[str, Any]) -> None:
        key = (family, text(fields.get("id")) or "")
        if step == "end":
            self._texts.pop(key, None)
            return
        if key not in self._texts:
            self._texts[key] = _Text(thought=family == "reasoning")
            self._slots.append(self._texts[key])
        self._texts[key].pieces.append(text(fields.get("delta")) or "")

    def _about(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "start":
            self.document["messageId"] = fields.get("messageId")
        _merge(self.document["metadata"], mapping(fields.get("messageMetadata")))
        if kind == "finish":
            self.finished = True
            reason = text(fields.get("finishReason"))
            self.document["finishReason"] = reason
            if self.status is not TurnStatus.FAILED:
                self.status = _STATUS.get(reason or "", self.status)
            if reason in ("content-filter", "error"):
                self._slots.append(ErrorReported(f"the application finished with the reason {reason}"))

    def _tool(self, kind: str, fields: dict[str, Any], chunk: Any) -> None:
        identifier = text(fields.get("toolCallId")) or ""
        if kind == "tool-input-start":
            self._names[identifier] = (text(fields.get("toolName")) or "", MISSING)
            self._inputs[identifier] = []
        elif kind == "tool-input-delta":
            self._inputs.setdefault(identifier, []).append(text(fields.get("inputTextDelta")) or "")
            self._names.setdefault(identifier, ("", MISSING))
        elif kind in ("tool-input-available", "tool-input-error"):
            self._begin(identifier, fields, failed=kind == "tool-input-error")
        elif kind == "tool-approval-request" and identifier in self._running:
            name, given = self._names.get(identifier, ("", MISSING))
            asked = text(fields.get("approvalId")) or identifier
            self._slots.append(InputRequested(asked, f"May {name} run?", name, given, _OPTIONS))
            self.status = TurnStatus.WAITING if self.status is TurnStatus.COMPLETED else self.status
        elif kind == "tool-output-available" and fields.get("preliminary"):
            return  # another one follows
        elif kind == "tool-output-error" and identifier in self._unreadable:
            self._unreadable.discard(identifier)  # `ai` 5 says twice that an input could not be read
        elif kind in _ENDS and identifier in self._running:
            status, key = _ENDS[kind]
            self._end(identifier, status, fields.get(key, MISSING) if key else MISSING)
        else:
            self._slots.append(kept(kind, chunk))

    def _begin(self, identifier: str, fields: dict[str, Any], *, failed: bool) -> None:
        self._inputs.pop(identifier, None)
        name, given = text(fields.get("toolName")) or "", recorded(fields.get("input", MISSING))
        self._names[identifier] = (name, given)
        if identifier not in self._running:
            raw = given if failed and isinstance(given, str) else None
            self._slots.append(OperationStarted(identifier, name, MISSING if raw else given, raw_input=raw))
            self._running.add(identifier)
        self._unreadable.discard(identifier)
        if failed:
            self._unreadable.add(identifier)
            self._end(identifier, OperationStatus.FAILED, fields.get("errorText", MISSING))

    def _end(self, identifier: str, status: OperationStatus, output: Any) -> None:
        self._running.discard(identifier)
        self._slots.append(OperationFinished(identifier, status, recorded(output)))


_ENDS: dict[str, tuple[OperationStatus, str | None]] = {
    "tool-output-available": (OperationStatus.COMPLETED, "output"),
    "tool-output-error": (OperationStatus.FAILED, "errorText"),
    "tool-output-denied": (OperationStatus.REJECTED, None),
}


def _merge(into: dict[str, Any], news: dict[str, Any]) -> None:
    """Objects merge, and of anything else the last value stays."""
    for key, value in news.items():
        known = into.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            _merge(mapping(known), mapping(value))
        else:
            into[key] = value
