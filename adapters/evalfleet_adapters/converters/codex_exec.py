"""The transcript of `codex exec --json`: a JSON document a line, `item.started` and `item.completed` for all it does.

Its usage is that of the whole conversation. A call of a tool that codex does not have is not shown at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evalfleet.model.events import (
    MISSING,
    ErrorReported,
    Message,
    OperationFinished,
    OperationKind,
    OperationStarted,
    OperationStatus,
    Role,
    Thinking,
)
from evalfleet.model.usage import Usage
from evalfleet_adapters.converters.agent_report import AgentReport, LastWord, Reading
from evalfleet_adapters.converters.model_reply import kept
from evalfleet_adapters.converters.untrusted import as_text, count, mapping, text

_ENDED = {
    "completed": OperationStatus.COMPLETED,
    "failed": OperationStatus.FAILED,
    "declined": OperationStatus.REJECTED,
    "in_progress": OperationStatus.PENDING,
}
#: Items that are operations: our class of tool, and the fields of an item that are its input and its output.
_OPERATIONS: dict[str, tuple[str | None, tuple[str, ...], tuple[str, ...]]] = {
    "command_execution": ("shell", ("command",), ("aggregated_output", "exit_code")),
    "file_change": ("file_edit", ("changes",), ()),
    "mcp_tool_call": (None, (), ()),
    "collab_tool_call": (None, ("prompt", "receiver_thread_ids"), ("agents_states",)),
    "web_search": ("web_search", ("query", "action"), ()),
    "todo_list": (None, ("items",), ()),
}
_LAST = ("turn.completed", "turn.failed")


def is_last(document: Mapping[str, Any]) -> bool:
    """Whether nothing of the turn follows."""
    return document.get("type") in _LAST


def read_transcript(documents: Iterable[Mapping[str, Any]]) -> AgentReport:
    """One turn of codex. Whatever is not known is kept raw."""
    return _Reading().read(documents)


def read_usage(value: Any) -> Usage | None:
    """Usage in our buckets, None without any: codex counts what was cached among the input."""
    reported = mapping(value)
    read = count(reported.get("cached_input_tokens"))
    written = count(reported.get("cache_write_input_tokens"))
    given, output = count(reported.get("input_tokens")), count(reported.get("output_tokens"))
    if given is None and output is None:
        return None
    return Usage(
        input_tokens=None if given is None else max(0, given - (read or 0) - (written or 0)),
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=count(reported.get("reasoning_output_tokens")),
    )


class _Reading(Reading):
    def __init__(self) -> None:
        super().__init__()
        self._open: set[str] = set()

    def take(self, document: Mapping[str, Any]) -> None:
        kind = text(document.get("type")) or ""
        if kind == "thread.started":
            self.session = text(document.get("thread_id")) or self.session
        elif kind == "turn.completed":
            self.ended, self.usage = LastWord.COMPLETED, read_usage(document.get("usage"))
        elif kind == "turn.failed":
            self.ended = LastWord.NO_MODEL
            self.error = text(mapping(document.get("error")).get("message")) or as_text(document.get("error"))
        elif kind == "error":
            self.error = text(document.get("message")) or as_text(dict(document))
            self.events.append(ErrorReported(self.error))
        elif kind in ("item.started", "item.updated", "item.completed"):
            self._item(kind, mapping(document.get("item")))
        elif kind != "turn.started":
            self.events.append(kept(kind, dict(document)))

    def _item(self, when: str, item: dict[str, Any]) -> None:
        kind = text(item.get("type")) or ""
        if kind in _OPERATIONS:
            self._operation(when, kind, item)
        elif when != "item.completed" and kind in ("agent_message", "reasoning", "error"):
            return
        elif kind == "agent_message" and text(item.get("text")):
            self.events.append(Message(Role.ASSISTANT, item["text"]))
        elif kind == "reasoning" and text(item.get("text")):
            self.events.append(Thinking(item["text"]))
        elif kind == "error":
            self.events.append(ErrorReported(text(item.get("message")) or as_text(item)))
        else:
            self.events.append(kept(f"item.{kind}", item))

    def _operation(self, when: str, kind: str, item: dict[str, Any]) -> None:
        identifier = text(item.get("id")) or f"item_{len(self.events)}"
        what = OperationKind.SUBAGENT if kind == "collab_tool_call" else OperationKind.TOOL
        if identifier not in self._open:
            tool, given, _ = _OPERATIONS[kind]
            name = text(item.get("tool")) or kind
            asked = item.get("arguments", MISSING) if kind == "mcp_tool_call" else _fields(item, given)
            self._open.add(identifier)
            self.events.append(OperationStarted(identifier, name, asked, kind=what, tool=tool))
        if when != "item.completed":
            return
        self._open.discard(identifier)
        status = _ENDED.get(text(item.get("status")) or "", OperationStatus.COMPLETED)
        if status is not OperationStatus.PENDING:
            self.events.append(OperationFinished(identifier, status, _output(kind, item), kind=what))


def _output(kind: str, item: dict[str, Any]) -> Any:
    if kind != "mcp_tool_call":
        return _fields(item, _OPERATIONS[kind][2])
    error = item.get("error")
    return item.get("result", MISSING) if error is None else error


def _fields(item: dict[str, Any], names: tuple[str, ...]) -> Any:
    found = {name: item[name] for name in names if name in item}
    return found or MISSING
