"""What a scripted model says in one answer, whatever API asks for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

Stop = Literal["stop", "length", "filtered"]

_FINISH: dict[str, Stop] = {"length": "length", "content_filter": "filtered"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedUsage:
    """Tokens of one answer: `input` without the cached ones, `reasoning` a part of `output`."""

    input: int = 10
    output: int = 5
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    def __add__(self, other: ScriptedUsage) -> ScriptedUsage:
        return ScriptedUsage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            reasoning=self.reasoning + other.reasoning,
        )


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A call of a tool. Arguments that are text go out as they are, and need not be JSON.

    `namespace` is where a request of responses has the tool among others of one name; the other APIs have none.
    """

    name: str
    arguments: Any = field(default_factory=dict[str, Any])
    id: str = "call_1"
    namespace: str | None = None

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTurn:
    """One answer: thinking, then text, then calls. `usage` None is an answer that reports none."""

    text: str | None = None
    calls: tuple[ScriptedCall, ...] = ()
    thinking: str | None = None
    stop: Stop = "stop"
    usage: ScriptedUsage | None = field(default_factory=ScriptedUsage)


def of_completion(document: Mapping[str, Any]) -> ModelTurn:
    """The turn that a chat completion says, so that the other APIs can say it too."""
    choice = document["choices"][0]
    message = choice["message"]
    calls = tuple(
        ScriptedCall(call["function"]["name"], call["function"]["arguments"], call["id"])
        for call in message.get("tool_calls") or ()
    )
    return ModelTurn(
        text=message["content"],
        calls=calls,
        thinking=message.get("reasoning_content"),
        stop=_FINISH.get(choice["finish_reason"], "stop"),
        usage=usage_of_completion(document),
    )


def usage_of_completion(document: Mapping[str, Any]) -> ScriptedUsage | None:
    """What a chat completion, well-formed or not, says that it used; None when it says nothing."""
    reported = _object(document.get("usage"))
    if not reported:
        return None
    read = _count(_object(reported.get("prompt_tokens_details")).get("cached_tokens"))
    reasoning = _count(_object(reported.get("completion_tokens_details")).get("reasoning_tokens"))
    prompt, output = _count(reported.get("prompt_tokens")), _count(reported.get("completion_tokens"))
    return ScriptedUsage(input=prompt - read, output=output, cache_read=read, reasoning=reasoning)


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def last_said(body: Mapping[str, Any]) -> str:
    """The text of the last user message in a request of any of the APIs; empty without one."""
    messages = _messages(body)
    return next((text_of(message) for message in reversed(messages) if message.get("role") == "user"), "")


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, its parts joined."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def words_in(body: Mapping[str, Any]) -> int:
    """How many words a request says in its messages and its system prompt: what counts as its tokens."""
    said = [str(message.get("content", message.get("output", ""))) for message in _messages(body)]
    said += [str(body[name]) for name in ("system", "instructions") if body.get(name)]
    return sum(len(text.split()) for text in said)


def _messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = body.get("messages", body.get("input", []))
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def pieces(text: str, size: int = 16) -> list[str]:
    """A text in pieces of `size` characters, longer ones when it would make more than 256."""
    size = max(size, len(text) // 256)
    return [text[start : start + size] for start in range(0, len(text), size)]
