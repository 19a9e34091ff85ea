"""The events of a streamed message → one message object, as if it had not been streamed.

A stream that broke off gives its blocks up to the first that is not whole, and of that one its text or thinking; an
event that nobody knows becomes `Unrecognised` at its place among the blocks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from evalfleet.model.events import Unrecognised
from evalfleet_adapters.converters.model_reply import kept
from evalfleet_adapters.converters.untrusted import count, mapping, sequence, text

#: Deltas of text: the field of the delta, which is the field of the block.
_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


@dataclass(slots=True)
class _Block:
    """A block in the making: what its start said, and the pieces that came for it."""

    index: int | None
    block: dict[str, Any]
    whole: bool = False
    pieces: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    arguments: list[str] = field(default_factory=list[str])
    citations: list[Any] = field(default_factory=list[Any])

    def read(self) -> dict[str, Any]:
        block = dict(self.block)
        for name, pieces in self.pieces.items():
            block[name] = (text(block.get(name)) or "") + "".join(pieces)
        if "".join(self.arguments).strip():
            block["input"] = _parsed("".join(self.arguments))
        if self.citations:
            block["citations"] = [*sequence(block.get("citations")), *self.citations]
        return block

    @property
    def is_text(self) -> bool:
        return self.block.get("type") in ("text", "thinking")


class MessageStream:
    """Add events in order, then take the `message`. `finished` tells whether the model said that it stopped."""

    def __init__(self) -> None:
        self._blocks: list[_Block | Unrecognised] = []
        self._message: dict[str, Any] = {}
        self._stopped = False

    @property
    def finished(self) -> bool:
        return self._stopped or self._message.get("stop_reason") is not None

    def add(self, event: Any) -> None:
        """Take one event. Counts of tokens are running totals: the last of each stays."""
        document = mapping(event)
        kind = text(document.get("type")) or ""
        if kind == "message_start":
            self._message = {key: value for key, value in mapping(document.get("message")).items() if key != "content"}
        elif kind == "message_delta":
            delta = {key: value for key, value in mapping(document.get("delta")).items() if value is not None}
            self._message |= delta
            usage = {key: value for key, value in mapping(document.get("usage")).items() if value is not None}
            if usage:
                self._message["usage"] = mapping(self._message.get("usage")) | usage
        elif kind == "content_block_start":
            self._blocks.append(_Block(count(document.get("index")), mapping(document.get("content_block"))))
        elif kind == "content_block_delta":
            self._delta(event, document)
        elif kind == "content_block_stop":
            block = self._block(document)
            if block is not None:
                block.whole = True
        elif kind == "message_stop":
            self._stopped = True
        elif kind != "ping":
            self._blocks.append(kept(kind or "event", event))

    def response(self) -> dict[str, Any]:
        """The message object that the events add up to."""
        content: list[Any] = []
        for block in self._blocks:
            if isinstance(block, Unrecognised):
                content.append(block)
            elif block.whole or self.finished or block.is_text:
                content.append(block.read())
            if isinstance(block, _Block) and not (block.whole or self.finished):
                break
        return {**self._message, "content": content}

    def _delta(self, event: Any, document: dict[str, Any]) -> None:
        delta, block = mapping(document.get("delta")), self._block(document)
        kind = text(delta.get("type")) or ""
        if block is None or kind not in (*_TEXTS, "input_json_delta", "citations_delta"):
            self._blocks.append(kept(f"content_block_delta.{kind}", event))
        elif kind in _TEXTS:
            block.pieces.setdefault(_TEXTS[kind], []).append(text(delta.get(_TEXTS[kind])) or "")
        elif kind == "citations_delta":
            block.citations.append(delta.get("citation"))
        else:
            block.arguments.append(text(delta.get("partial_json")) or "")

    def _block(self, event: dict[str, Any]) -> _Block | None:
        index = count(event.get("index"))
        blocks = [block for block in self._blocks if isinstance(block, _Block)]
        return next((block for block in reversed(blocks) if block.index == index), None)


def _parsed(arguments: str) -> Any:
    """Arguments as JSON; the text itself when it is none, for the reader to say what is wrong with it."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
