"""The requests of an agent to its model as evidence: what it was told, what it may use, and what came of it. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from evalfleet.model.canonical import digest
from evalfleet.model.events import MISSING, ModelRequest, ModelResponse
from evalfleet.model.model_call import CallEnd
from evalfleet.model.model_route import Dialect, ModelUpstream

_INSTRUCTING = frozenset({"system", "developer"})
#: Bytes of an answer that are kept where an arm has bodies kept.
ANSWER_LIMIT = 1 << 20


class ModelAudit:
    """The requests of one attempt, numbered in order. Instructions stand in the first request that has them."""

    def __init__(self, upstream: ModelUpstream) -> None:
        self._upstream = upstream
        self._count = 0
        self._told: set[str] = set()

    def request(self, document: Mapping[str, Any]) -> ModelRequest:
        """The event of a request that is about to be sent."""
        self._count += 1
        text = instructions_of(self._upstream.dialect, document)
        instruction_digest = digest(text) if text else None
        is_new = instruction_digest is not None and instruction_digest not in self._told
        if instruction_digest is not None:
            self._told.add(instruction_digest)
        prompt = _object(document.get("prompt"))
        return ModelRequest(
            call_id=f"model-{self._count}",
            model=_text(document.get("model")),
            instruction_digest=instruction_digest,
            instructions=text if is_new else None,
            prompt_id=_text(prompt.get("id")),
            prompt_revision=_text(prompt.get("version")),
            tools=tuple(_tools(document)),
            messages=_messages(self._upstream.dialect, document),
            body=dict(document) if self._upstream.keeps_bodies else MISSING,
        )

    def response(
        self, request: ModelRequest, end: CallEnd, status: int | None, duration: float, body: bytes
    ) -> ModelResponse:
        """The event of its end, `duration` seconds after it was sent."""
        return ModelResponse(
            call_id=request.call_id,
            outcome=end.fate.value,
            status=status,
            duration=duration,
            usage=end.usage,
            body=body[:ANSWER_LIMIT].decode("utf-8", "replace") if self._upstream.keeps_bodies else None,
        )


def instructions_of(dialect: Dialect, document: Mapping[str, Any]) -> str:
    """What the request tells its model to be, its parts joined by blank lines; empty when it says nothing."""
    if dialect is Dialect.MESSAGES:
        return "\n\n".join(_texts(document.get("system")))
    said = document.get("messages" if dialect is Dialect.CHAT else "input")
    parts = list(_texts(document.get("instructions"))) if dialect is Dialect.RESPONSES else []
    for item in _objects(said):
        if item.get("role") in _INSTRUCTING:
            parts += _texts(item.get("content"))
    return "\n\n".join(parts)


def _messages(dialect: Dialect, document: Mapping[str, Any]) -> int | None:
    said = document.get("input" if dialect is Dialect.RESPONSES else "messages")
    if isinstance(said, str):
        return 1
    return len(cast("list[Any]", said)) if isinstance(said, list) else None


def _tools(document: Mapping[str, Any]) -> Iterator[str]:
    for tool in _objects(document.get("tools")):
        name = _object(tool.get("function")).get("name") or tool.get("name") or tool.get("type")
        if isinstance(name, str):
            yield name


def _texts(content: Any) -> Iterator[str]:
    """The texts of a content: one text, or parts of which some have texts."""
    if isinstance(content, str):
        yield content
    for part in _objects(content):
        if isinstance(part.get("text"), str):
            yield part["text"]


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            if isinstance(item, dict):
                yield cast("dict[str, Any]", item)


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
