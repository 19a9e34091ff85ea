"""The semantic events of a streamed response → one response object, as if it had not been streamed.

What an event adds is kept by the place of its item; an event that nobody knows becomes `Unrecognised` at its place
among the items. A stream that broke off gives its items up to the first that is not whole, and of that one its text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from evalfleet.model.events import Unrecognised
from evalfleet_adapters.converters.model_reply import kept
from evalfleet_adapters.converters.untrusted import count, mapping, sequence, text

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})

#: Deltas of text: the type of the item that they belong to, its list of parts, the type of a part, and the part's text.
_TEXTS = {
    "response.output_text.delta": ("message", "content", "output_text", "text"),
    "response.refusal.delta": ("message", "content", "refusal", "refusal"),
    "response.reasoning_text.delta": ("reasoning", "content", "reasoning_text", "text"),
    "response.reasoning_summary_text.delta": ("reasoning", "summary", "summary_text", "text"),
}
#: Deltas of calls: the type of the item, and its field.
_CALLS = {
    "response.function_call_arguments.delta": ("function_call", "arguments"),
    "response.custom_tool_call_input.delta": ("custom_tool_call", "input"),
}
#: Events that say nothing which their item, or the response at the end, does not say.
_REPEATING = frozenset(
    {
        "response.created", "response.in_progress", "response.queued", "response.output_text.done",
        "response.output_text.annotation.added", "response.refusal.done", "response.content_part.added",
        "response.content_part.done", "response.function_call_arguments.done", "response.custom_tool_call_input.done",
        "response.reasoning_text.done", "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.added", "response.reasoning_summary_part.done",
        "response.mcp_call_arguments.delta", "response.mcp_call_arguments.done",
        "response.code_interpreter_call_code.delta", "response.code_interpreter_call_code.done",
        "response.image_generation_call.partial_image", "keepalive",
    }
)  # fmt: skip
#: Beginnings of the names of events that tell how far a tool of the provider is.
_PROGRESS = (
    "response.web_search_call.", "response.file_search_call.", "response.code_interpreter_call.",
    "response.image_generation_call.", "response.mcp_call.", "response.mcp_list_tools.", "response.compaction.",
)  # fmt: skip


@dataclass(slots=True)
class _Slot:
    """An item in the making: what its start said, and the pieces that came for it."""

    index: int | None
    item: dict[str, Any]
    whole: bool = False
    pieces: dict[tuple[str, str, str, int], list[str]] = field(
        default_factory=dict[tuple[str, str, str, int], list[str]]
    )
    call: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def read(self) -> dict[str, Any]:
        if self.whole:
            return self.item
        parts: dict[str, list[Any]] = {}
        for (place, kind, name, _), pieces in sorted(self.pieces.items(), key=lambda entry: entry[0][3]):
            parts.setdefault(place, []).append({"type": kind, name: "".join(pieces)})
        return self.item | parts | {name: "".join(pieces) for name, pieces in self.call.items()}

    @property
    def is_text(self) -> bool:
        return self.item.get("type") in ("message", "reasoning")


class ResponsesStream:
    """Add events in order, then take the `response`. `finished` tells whether the provider said that it ended."""

    def __init__(self) -> None:
        self.finished = False
        self._slots: list[_Slot | Unrecognised] = []
        self._response: dict[str, Any] = {}

    def add(self, event: Any) -> None:
        """Take one event."""
        document = mapping(event)
        kind = text(document.get("type")) or ""
        if kind in _ENDS:
            self.finished = True
            self._response = mapping(document.get("response"))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            slot = self._slot(document, "")
            slot.item = mapping(document.get("item"))
            slot.whole = kind.endswith("done")
        elif kind in _TEXTS:
            item, place, part, name = _TEXTS[kind]
            number = count(document.get("content_index", document.get("summary_index"))) or 0
            pieces = self._slot(document, item).pieces.setdefault((place, part, name, number), [])
            pieces.append(text(document.get("delta")) or "")
        elif kind in _CALLS:
            item, name = _CALLS[kind]
            self._slot(document, item).call.setdefault(name, []).append(text(document.get("delta")) or "")
        elif kind not in _REPEATING and not kind.startswith(_PROGRESS):
            self._slots.append(kept(kind or "event", event))

    def response(self) -> dict[str, Any]:
        """The response object that the events add up to; without a status when the stream broke off."""
        if self.finished:
            return {**self._response, "output": self._ended()}
        output: list[Any] = []
        for slot in self._slots:
            if isinstance(slot, Unrecognised) or slot.whole:
                output.append(slot if isinstance(slot, Unrecognised) else slot.item)
                continue
            output += [slot.read()] if slot.is_text else []
            break
        return {"output": output}

    def _ended(self) -> list[Any]:
        """The items that the last event holds, with unknown events at their places; those that came when it is bare."""
        told = sequence(self._response.get("output"))
        if not told:
            return [slot if isinstance(slot, Unrecognised) else slot.read() for slot in self._slots]
        left = dict(enumerate(told))
        output: list[Any] = []
        for slot in self._slots:
            if isinstance(slot, Unrecognised):
                output.append(slot)
            elif slot.index in left:
                output.append(left.pop(slot.index))
        return [*output, *left.values()]

    def _slot(self, event: dict[str, Any], kind: str) -> _Slot:
        """The item that an event is about, by its place; one without a place is the last of its kind."""
        index = count(event.get("output_index"))
        items = [slot for slot in self._slots if isinstance(slot, _Slot)]
        for slot in reversed(items):
            if slot.index == index and (index is not None or (slot.item.get("type") == kind and not slot.whole)):
                return slot
        made = _Slot(index, {"type": kind})
        self._slots.append(made)
        return made
