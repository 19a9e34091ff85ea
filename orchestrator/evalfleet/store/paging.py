"""The event stream of a large attempt in pages that can be read by range. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from evalfleet.model.events import Event
from evalfleet.store.blobs import Packer, to_json
from evalfleet.store.record_codec import encode_event

#: Events of more raw bytes than this leave the record for pages of at most `PAGE_LIMIT` raw bytes each.
INLINE_LIMIT = 64 << 10
PAGE_LIMIT = 256 << 10

_SLICE = 256


@dataclass(frozen=True, slots=True)
class Page:
    """Events `first` to `last` of an attempt, counted from 0 over all its turns, as one compressed body."""

    first: int
    last: int
    raw_size: int
    body: bytes

    def moved(self, body: bytes) -> Page:
        """The same page with its body elsewhere."""
        return replace(self, body=body)


@dataclass(frozen=True, slots=True)
class EncodedEvents:
    """Some consecutive events of a turn as the inside of a JSON list."""

    text: str
    count: int


def encode_events(events: Sequence[Event]) -> list[EncodedEvents]:
    """A turn's events in parts, each of which fits a page unless it is one single event."""
    return [part for start in range(0, len(events), _SLICE) for part in _fitting(events[start : start + _SLICE])]


def inline_size(turns: Iterable[Sequence[EncodedEvents]]) -> int:
    """How many bytes the events of all turns are."""
    return sum(len(part.text) for parts in turns for part in parts)


def inline_text(parts: Iterable[EncodedEvents]) -> str:
    """A turn's events as one JSON list."""
    return f"[{','.join([part.text for part in parts])}]"


def page_events(parts: Iterable[EncodedEvents], packer: Packer) -> list[Page]:
    """The pages of all turns' parts in order. A page above the limit holds one single event."""
    pages: list[Page] = []
    held: list[EncodedEvents] = []
    size = first = 0
    for part in parts:
        if held and size + len(part.text) > PAGE_LIMIT:
            pages.append(_page(first, held, packer))
            first = pages[-1].last + 1
            size = 0
            held = []
        held.append(part)
        size += len(part.text) + 1
    if held:
        pages.append(_page(first, held, packer))
    return pages


def _page(first: int, parts: Sequence[EncodedEvents], packer: Packer) -> Page:
    text = inline_text(parts)
    return Page(first, first + sum(part.count for part in parts) - 1, len(text), packer.pack(text))


def _fitting(events: Sequence[Event]) -> Iterator[EncodedEvents]:
    text = to_json([encode_event(event) for event in events])[1:-1]
    if len(text) <= PAGE_LIMIT or len(events) == 1:
        yield EncodedEvents(text, len(events))
        return
    middle = len(events) // 2
    yield from _fitting(events[:middle])
    yield from _fitting(events[middle:])
