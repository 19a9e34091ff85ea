"""The transcript of `opencode run --format json`: a part of a message a line, told when it is done.

A tool is told once, with its result. Tokens are those of each step, the reasoning's not among the output.
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
    SkillLoaded,
    Thinking,
)
from evalfleet.model.usage import Usage
from evalfleet_adapters.converters.agent_report import AgentReport, LastWord, Reading
from evalfleet_adapters.converters.model_reply import kept
from evalfleet_adapters.converters.untrusted import as_text, count, mapping, text

#: Its own tools by our classes.
_CLASSES = {
    "bash": "shell",
    "read": "file_read",
    "write": "file_write",
    "edit": "file_edit",
    "patch": "file_edit",
    "apply_patch": "file_edit",
    "glob": "glob",
    "grep": "grep",
    "list": "list_dir",
    "webfetch": "web_fetch",
    "websearch": "web_search",
}
_ENDED = {"completed": OperationStatus.COMPLETED, "error": OperationStatus.FAILED}
_GOES_ON = "tool-calls"


def is_last(document: Mapping[str, Any]) -> bool:
    """Whether nothing of the turn follows."""
    reason = text(mapping(document.get("part")).get("reason"))
    return document.get("type") == "step_finish" and reason not in (None, _GOES_ON)


def read_transcript(documents: Iterable[Mapping[str, Any]]) -> AgentReport:
    """One turn of opencode. Whatever is not known is kept raw."""
    return _Reading().read(documents)


def read_usage(value: Any) -> Usage | None:
    """The tokens of a step in our buckets, None without any."""
    tokens, cache = mapping(value), mapping(mapping(value).get("cache"))
    given, output, reasoning = (count(tokens.get(name)) for name in ("input", "output", "reasoning"))
    if given is None and output is None:
        return None
    return Usage(
        input_tokens=given,
        output_tokens=None if output is None else output + (reasoning or 0),
        cache_read_tokens=count(cache.get("read")),
        cache_write_tokens=count(cache.get("write")),
        reasoning_tokens=reasoning,
    )


class _Reading(Reading):
    def __init__(self) -> None:
        super().__init__()
        self._unknown = False

    def take(self, document: Mapping[str, Any]) -> None:
        kind, part = text(document.get("type")) or "", mapping(document.get("part"))
        self.session = text(document.get("sessionID")) or self.session
        if kind == "step_finish":
            self._step(document, part)
        elif kind == "text":
            if text(part.get("text")):
                self.events.append(Message(Role.ASSISTANT, part["text"]))
        elif kind == "reasoning":
            if text(part.get("text")):
                self.events.append(Thinking(part["text"]))
        elif kind == "tool_use":
            self._tool(part)
        elif kind == "error":
            self._failed(document.get("error"))
        elif kind != "step_start":
            self.events.append(kept(kind, dict(document)))

    def _step(self, document: Mapping[str, Any], part: dict[str, Any]) -> None:
        spent = read_usage(part.get("tokens"))
        self._unknown = self._unknown or spent is None
        if self._unknown or spent is None:
            self.usage = None  # a sum without one of its steps is none
        else:
            self.usage = spent if self.usage is None else self.usage + spent
        if is_last(document):
            self.ended, self.truncated = LastWord.COMPLETED, part.get("reason") == "length"

    def _tool(self, part: dict[str, Any]) -> None:
        state, name = mapping(part.get("state")), text(part.get("tool")) or ""
        identifier = text(part.get("callID")) or f"call_{len(self.events)}"
        given, status = state.get("input", MISSING), _ENDED.get(text(state.get("status")) or "")
        output = state.get("error", state.get("output", MISSING))
        if name == "invalid" and (wanted := text(mapping(given).get("tool"))):
            name, status = wanted, OperationStatus.FAILED  # what it makes of a call that it can't run
        if name == "skill" and status is OperationStatus.COMPLETED:
            self.events.append(SkillLoaded(text(mapping(given).get("name")) or "", identifier))
            return
        kind = OperationKind.SUBAGENT if name == "task" else OperationKind.TOOL
        called = text(mapping(given).get("subagent_type")) if kind is OperationKind.SUBAGENT else None
        self.events.append(OperationStarted(identifier, called or name, given, kind=kind, tool=_CLASSES.get(name)))
        if status is not None:
            self.events.append(OperationFinished(identifier, status, output, kind=kind))

    def _failed(self, error: Any) -> None:
        """An error that nothing follows is the end; one that a last step follows was got over."""
        reported = mapping(error)
        said = text(mapping(reported.get("data")).get("message")) or text(reported.get("name")) or as_text(error)
        self.ended, self.error = LastWord.NO_MODEL, said
        self.events.append(ErrorReported(said))
