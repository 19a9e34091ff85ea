"""The chunks of a streamed chat completion → one response object, as if it had not been streamed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from evalfleet_adapters.converters.untrusted import count, mapping, sequence, text


@dataclass(slots=True)
class _CallPieces:
    """One tool call in the making: its name and arguments may come in any order and any number of pieces."""

    index: int | None
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])

    def add(self, delta: Mapping[str, Any]) -> None:
        self.id = self.id or text(delta.get("id")) or ""
        function = mapping(delta.get("function"))
        name = text(function.get("name")) or ""
        # some servers repeat the whole name in every piece
        if name and name != self.name:
            self.name += name
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            self.arguments.append(arguments)
        elif arguments is not None:
            self.arguments.append(json.dumps(arguments))

    def whole(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id, "type": "function", "function": function}


class ChatStream:
    """Add chunks in order, then take the `response`. `finished` tells whether the model said that it stopped."""

    def __init__(self) -> None:
        self.started = False
        self._text: list[str] = []
        self._texts: dict[str, list[str]] = {}
        self._parts: list[Any] = []
        self._calls: list[_CallPieces] = []
        self._message: dict[str, Any] = {}
        self._choice: dict[str, Any] = {}
        self._document: dict[str, Any] = {}
        self._others: dict[int, list[Any]] = {}
        self._usage: Any = None
        self._content_seen = False

    @property
    def finished(self) -> bool:
        return self._choice.get("finish_reason") is not None

    def add(self, chunk: Any) -> None:
        """Take one chunk. The last usage counts: it stands alone, is repeated, or runs along with every chunk."""
        document = mapping(chunk)
        self._usage = document.get("usage") or self._usage
        _merge(self._document, {key: value for key, value in document.items() if key not in ("choices", "usage")})
        for raw_choice in sequence(document.get("choices")):
            choice = mapping(raw_choice)
            index = count(choice.get("index")) or 0
            if index > 0:
                self._others.setdefault(index, []).append(raw_choice)
                continue
            self.started = True
            _merge(self._choice, {key: value for key, value in choice.items() if key not in ("delta", "message")})
            self._delta(mapping(choice.get("delta")) or mapping(choice.get("message")))

    def response(self) -> dict[str, Any]:
        """The response object that the chunks add up to."""
        message: dict[str, Any] = {key: "".join(pieces) for key, pieces in self._texts.items()}
        message |= self._message
        message["content"] = self._content()
        if self._calls:
            message["tool_calls"] = [pieces.whole() for pieces in self._calls]
        choices: list[Any] = [{**self._choice, "index": 0, "message": message}] if self.started else []
        choices += [{"index": index, "chunks": chunks} for index, chunks in self._others.items()]
        return {**self._document, "choices": choices, "usage": self._usage}

    def _content(self) -> Any:
        if not self._parts:
            return "".join(self._text) if self._content_seen else None
        return self._parts

    def _delta(self, delta: Mapping[str, Any]) -> None:
        content = delta.get("content")
        self._content_seen = self._content_seen or content is not None
        if isinstance(content, str) and not self._parts:
            self._text.append(content)
        elif isinstance(content, str):
            self._parts.append({"type": "text", "text": content})
        elif content is not None:
            if self._text:
                self._parts.append({"type": "text", "text": "".join(self._text)})
                self._text.clear()
            self._parts.extend(sequence(content))
        for call in sequence(delta.get("tool_calls")):
            self._call(mapping(call))
        if legacy := mapping(delta.get("function_call")):
            self._call({"index": 0, "function": legacy})
        for key, value in delta.items():
            if key in ("content", "tool_calls", "function_call", "role"):
                continue
            if isinstance(value, str):
                self._texts.setdefault(key, []).append(value)
            else:
                _merge(self._message, {key: value})

    def _call(self, delta: dict[str, Any]) -> None:
        pieces = self._open_call(delta)
        if pieces is None:
            index = delta.get("index")
            pieces = _CallPieces(index if isinstance(index, int) else None)
            self._calls.append(pieces)
        pieces.add(delta)

    def _open_call(self, delta: Mapping[str, Any]) -> _CallPieces | None:
        """The call a piece belongs to: that of its index, else of its id, else the last one; None for a new call.

        A second id at the same index is another call, and so is a piece without index and id that names a
        function when the last call has its name.
        """
        identifier, index = text(delta.get("id")) or "", delta.get("index")
        for pieces in reversed(self._calls):
            if index is not None and pieces.index != index:
                continue
            if identifier and pieces.id:
                if pieces.id == identifier:
                    return pieces
                continue
            if index is None and not identifier and pieces.name and mapping(delta.get("function")).get("name"):
                return None
            return pieces
        return None


def _merge(into: dict[str, Any], news: Mapping[str, Any]) -> None:
    """Lists grow, objects merge, and of anything else the last value that is not null stays."""
    for key, value in news.items():
        known = into.get(key)
        if isinstance(known, list) and isinstance(value, list):
            sequence(known).extend(sequence(value))
        elif isinstance(known, dict) and isinstance(value, dict):
            _merge(mapping(known), mapping(value))
        elif value is not None:
            into[key] = deepcopy(value)
