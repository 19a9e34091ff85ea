"""The transcript of `claude -p --output-format stream-json --verbose`: messages as the API has them, and a result.

A message comes in pieces of one block each, under one id, with a usage that is not final: what counts is the result's,
by model, in which the calls of sub-agents stand too. Its cost is an estimate by claude's own prices and not taken over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evalfleet.model.events import (
    MISSING,
    Compaction,
    ContextInjected,
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
from evalfleet_adapters.converters.agent_report import AgentReport, LastWord, Reading, says_or_does
from evalfleet_adapters.converters.model_reply import kept
from evalfleet_adapters.converters.untrusted import as_text, count, mapping, sequence, text

#: Its own tools by our classes.
_CLASSES = {
    "Bash": "shell",
    "Read": "file_read",
    "Write": "file_write",
    "Edit": "file_edit",
    "NotebookEdit": "file_edit",
    "Glob": "glob",
    "Grep": "grep",
    "WebFetch": "web_fetch",
    "WebSearch": "web_search",
}
_SUBAGENTS = frozenset({"Task", "Agent"})
#: Events that are known, and say nothing that a turn keeps.
_SILENT = frozenset({"init", "thinking_tokens", "api_retry", "status", "task_started", "task_updated",
                     "task_notification", "task_progress", "hook_started", "hook_response"})  # fmt: skip
_LIMITS = frozenset({"error_max_turns", "error_max_budget_usd", "error_max_structured_output_retries"})


def is_last(document: Mapping[str, Any]) -> bool:
    """Whether nothing of the turn follows."""
    return document.get("type") == "result"


def read_transcript(documents: Iterable[Mapping[str, Any]]) -> AgentReport:
    """One turn of claude. Whatever is not known is kept raw."""
    return _Reading().read(documents)


def read_usage(result: Mapping[str, Any]) -> Usage | None:
    """The usage of a result in our buckets, None without any."""
    total: Usage | None = None
    for spent in mapping(result.get("modelUsage")).values():
        one = _buckets(spent, "inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
        total = one if total is None or one is None else total + one
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return total or _buckets(result.get("usage"), *names)


def _buckets(value: Any, given: str, output: str, read: str, written: str) -> Usage | None:
    counts = mapping(value)
    if count(counts.get(given)) is None and count(counts.get(output)) is None:
        return None
    return Usage(
        input_tokens=count(counts.get(given)),
        output_tokens=count(counts.get(output)),
        cache_read_tokens=count(counts.get(read)),
        cache_write_tokens=count(counts.get(written)),
    )


class _Reading(Reading):
    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[str, OperationKind] = {}
        self._skills: dict[str, str] = {}

    def take(self, document: Mapping[str, Any]) -> None:
        kind = text(document.get("type")) or ""
        self.session = text(document.get("session_id")) or self.session
        if kind == "system":
            self._system(document)
        elif kind in ("assistant", "user"):
            self._message(kind, document)
        elif kind == "result":
            self._result(document)
        elif kind != "rate_limit_event":
            self.events.append(kept(kind, dict(document)))

    def _system(self, document: Mapping[str, Any]) -> None:
        subtype = text(document.get("subtype")) or ""
        if subtype == "compact_boundary":
            self.events.append(Compaction(text(mapping(document.get("compact_metadata")).get("trigger"))))
        elif subtype not in _SILENT:
            self.events.append(kept(f"system.{subtype}", dict(document)))

    def _message(self, kind: str, document: Mapping[str, Any]) -> None:
        message = mapping(document.get("message"))
        within = text(document.get("parent_tool_use_id"))
        if message.get("model") == "<synthetic>":
            said = "".join(text(mapping(block).get("text")) or "" for block in sequence(message.get("content")))
            self.error = said or self.error
            self.events.append(ErrorReported(said))
            return
        content = message.get("content")
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else sequence(content):
            self._block(kind, mapping(block), within)

    def _block(self, kind: str, block: dict[str, Any], within: str | None) -> None:
        what = text(block.get("type")) or ""
        if what == "text":
            self._text(kind, text(block.get("text")) or "", within)
        elif what == "thinking" and kind == "assistant":
            if within is None and text(block.get("thinking")):
                self.events.append(Thinking(block["thinking"]))
        elif what in ("tool_use", "server_tool_use"):
            self._started(block)
        elif what == "tool_result" or what.endswith("_tool_result"):
            self._finished(block)
        elif what != "redacted_thinking":
            self.events.append(kept(f"{kind}.{what}", block))

    def _text(self, kind: str, said: str, within: str | None) -> None:
        """What the agent says is a message; what its sub-agents say, and what it tells itself, is not."""
        if not said or (kind == "user" and within is not None):
            return  # the prompt of a sub-agent: the input of its operation
        if kind == "assistant" and within is None:
            self.events.append(Message(Role.ASSISTANT, said))
        else:
            self.events.append(ContextInjected(said, None if within is None else f"subagent {within}"))

    def _started(self, block: dict[str, Any]) -> None:
        name, identifier = text(block.get("name")) or "", text(block.get("id")) or f"call_{len(self.events)}"
        given = block.get("input", MISSING)
        if name == "Skill":
            self._skills[identifier] = text(mapping(given).get("skill")) or text(mapping(given).get("command")) or ""
            return
        kind = OperationKind.SUBAGENT if name in _SUBAGENTS else OperationKind.TOOL
        self._kinds[identifier] = kind
        if kind is OperationKind.SUBAGENT:
            name = text(mapping(given).get("subagent_type")) or name
        own = name.split("__", 2)[2] if name.startswith("mcp__") and name.count("__") >= 2 else name
        self.events.append(OperationStarted(identifier, own, given, kind=kind, tool=_CLASSES.get(name)))

    def _finished(self, block: dict[str, Any]) -> None:
        identifier, failed = text(block.get("tool_use_id")) or "", block.get("is_error") is True
        output = _texts(block.get("content", MISSING))
        if identifier in self._skills:
            skill = self._skills.pop(identifier)
            said = ErrorReported(f"skill {skill}: {output}") if failed else SkillLoaded(skill, identifier)
            self.events.append(said)
            return
        status = OperationStatus.FAILED if failed else OperationStatus.COMPLETED
        kind = self._kinds.get(identifier, OperationKind.TOOL)
        self.events.append(OperationFinished(identifier, status, output, kind=kind))

    def _result(self, document: Mapping[str, Any]) -> None:
        subtype, failed = text(document.get("subtype")) or "", document.get("is_error") is True
        self.usage = read_usage(document)
        self.truncated = document.get("stop_reason") == "max_tokens"
        self._deny(document)
        if subtype in _LIMITS:
            self.ended = LastWord.LIMITED
        elif subtype != "success":
            self.ended = LastWord.BROKEN
        else:
            self.ended = LastWord.NO_MODEL if failed else LastWord.COMPLETED
        said = text(document.get("result"))
        if self.ended is LastWord.COMPLETED:
            if said and not says_or_does(self.events):
                self.events.append(Message(Role.ASSISTANT, said))
            return
        problems = "; ".join(as_text(each) if text(each) is None else each for each in sequence(document.get("errors")))
        self.error = problems or said or self.error or subtype

    def _deny(self, document: Mapping[str, Any]) -> None:
        """Calls that were refused by a permission came back as failed ones; the result says which."""
        denied = {text(mapping(each).get("tool_use_id")) for each in sequence(document.get("permission_denials"))}
        self.events = [
            OperationFinished(event.operation_id, OperationStatus.REJECTED, event.output, kind=event.kind)
            if isinstance(event, OperationFinished) and event.operation_id in denied
            else event
            for event in self.events
        ]


def _texts(content: Any) -> Any:
    """The result of a tool: a text where it is nothing else."""
    parts = sequence(content)
    if parts and all(mapping(part).get("type") == "text" for part in parts):
        return "\n".join(text(mapping(part).get("text")) or "" for part in parts)
    return content
