"""The updates of one turn of an agent that speaks the Agent Client Protocol (version 1), as events. PURE.

Texts come in chunks; those of one kind that follow each other are one message. An operation is told when it begins, and
its name, input and output may come later; what is known of it at the end of the turn counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evalfleet.model.events import (
    MISSING,
    ErrorReported,
    Event,
    Message,
    OperationFinished,
    OperationStarted,
    OperationStatus,
    Role,
    Thinking,
)
from evalfleet.model.turn import TurnStatus
from evalfleet_adapters.converters.model_reply import kept
from evalfleet_adapters.converters.untrusted import mapping, recordable, sequence, text

#: Kinds of operations by our classes.
_CLASSES = {"execute": "shell", "read": "file_read", "edit": "file_edit", "fetch": "web_fetch"}
_ENDED = {"completed": OperationStatus.COMPLETED, "failed": OperationStatus.FAILED}
#: Updates that are known, and say nothing that a turn keeps.
_SILENT = frozenset({"available_commands_update", "current_mode_update", "config_option_update", "session_info_update",
                     "usage_update", "user_message_chunk"})  # fmt: skip
_STOPPED = {
    "max_turn_requests": "it stopped at its limit of model calls",
    "refusal": "it refused to go on",
    "cancelled": "the turn was cancelled",
}


@dataclass(slots=True)
class _Operation:
    name: str
    tool: str | None
    given: Any = MISSING
    output: Any = MISSING
    ended: OperationStatus | None = None


@dataclass(slots=True)
class AcpReading:
    """The updates of one turn as they come. `rejected` are the operations that were not permitted."""

    rejected: set[str] = field(default_factory=set[str])
    _events: list[Event | tuple[str, bool]] = field(default_factory=list[Event | tuple[str, bool]])
    _operations: dict[str, _Operation] = field(default_factory=dict[str, _Operation])

    def take(self, update: Mapping[str, Any]) -> None:
        """Take in the `update` of the next `session/update`. Whatever is not known is kept raw."""
        kind = text(update.get("sessionUpdate")) or ""
        if not recordable(dict(update)):
            self._events.append(kept(kind, "an update that nests too deep, or has a number too big, to keep"))
        elif kind == "agent_message_chunk":
            self._said(Role.ASSISTANT, update)
        elif kind == "agent_thought_chunk":
            self._said(None, update)
        elif kind in ("tool_call", "tool_call_update"):
            self._operation(update)
        elif kind not in _SILENT:
            self._events.append(kept(kind, dict(update)))

    def events(self) -> tuple[Event, ...]:
        """The turn as far as it was told."""
        return tuple(event if not isinstance(event, tuple) else self._told(*event) for event in self._events)

    def name_of(self, identifier: str) -> str | None:
        """The name of an operation that was told."""
        known = self._operations.get(identifier)
        return None if known is None else known.name

    def _said(self, role: Role | None, update: Mapping[str, Any]) -> None:
        content = mapping(update.get("content"))
        piece = text(content.get("text"))
        if content.get("type") != "text" or piece is None:
            self._events.append(kept(text(update.get("sessionUpdate")) or "", dict(update)))
            return
        last = self._events[-1] if self._events else None
        if role is None:
            if isinstance(last, Thinking):
                self._events[-1] = Thinking(last.text + piece)
            elif piece:
                self._events.append(Thinking(piece))
        elif isinstance(last, Message):
            self._events[-1] = Message(role, last.text + piece)
        elif piece:
            self._events.append(Message(role, piece))

    def _operation(self, update: Mapping[str, Any]) -> None:
        identifier = text(update.get("toolCallId")) or ""
        known = self._operations.get(identifier)
        if known is None:
            known = self._operations[identifier] = _Operation(_name(update), None)
            self._events.append((identifier, False))
        known.tool = _CLASSES.get(text(update.get("kind")) or "") or known.tool
        if update.get("rawInput") not in (None, {}):
            known.given = update["rawInput"]
        output = _output(update)
        known.output = known.output if output is MISSING else output
        ended = _ENDED.get(text(update.get("status")) or "")
        if ended is not None and known.ended is None:
            self._events.append((identifier, True))
        known.ended = ended or known.ended

    def _told(self, identifier: str, ended: bool) -> Event:
        known = self._operations[identifier]
        if not ended:
            return OperationStarted(identifier, known.name, known.given, tool=known.tool)
        status = OperationStatus.REJECTED if identifier in self.rejected else known.ended
        return OperationFinished(identifier, status or OperationStatus.COMPLETED, known.output)


def ended_turn(stopped: Any) -> tuple[TurnStatus, tuple[ErrorReported, ...]]:
    """What the `stopReason` of a prompt makes of its turn, and what is to be told of it."""
    reason = text(stopped)
    if reason == "end_turn":
        return TurnStatus.COMPLETED, ()
    if reason == "max_tokens":
        return TurnStatus.TRUNCATED, ()
    return TurnStatus.FAILED, (ErrorReported(_STOPPED.get(reason or "", f"it stopped: {reason!r}")),)


def _name(update: Mapping[str, Any]) -> str:
    """The agent's own name of the tool where it tells it, else the title that it begins with."""
    for told in mapping(update.get("_meta")).values():
        if name := text(mapping(told).get("toolName")):
            return name
    return text(update.get("title")) or text(update.get("kind")) or ""


def _output(update: Mapping[str, Any]) -> Any:
    """The raw output, else the content: the texts of it, joined, or all of it where it is no text."""
    if update.get("rawOutput") is not None:
        return update["rawOutput"]
    content = sequence(update.get("content"))
    if not content:
        return MISSING
    texts = [text(mapping(mapping(part).get("content")).get("text")) for part in content]
    return content if None in texts else "\n".join(piece for piece in texts if piece is not None)
