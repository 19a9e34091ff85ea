"""The event stream of a large attempt in pages that can be read by range. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from evalfleet.model.events import Event
from evalfleet.store.blobs import Packer, to_json
from evalfleet.store.record_codec import encode_event

#: Events of more raw bytes than this leave the record for pages of at most `PAGE_LIMIT` raw bytes each.
INLINE_LIMIT = 64 << 10
PAGE_LIMIT = 256 << 10


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


def inline_events(encoded: Sequence[str]) -> bool:
    """Whether the turns' encoded events are small enough for the record itself."""
    return sum(map(len, encoded)) <= INLINE_LIMIT


def page_events(encoded: Sequence[str], turns: Sequence[Sequence[Event]], packer: Packer) -> list[Page]:
    """The pages of all turns in order. A page above the limit holds one single event."""
    pages: list[Page] = []
    held: list[str] = []
    size = first = upto = 0

    def close() -> None:
        nonlocal size, first
        if upto > first:
            text = f"[{','.join(held)}]"
            pages.append(Page(first, upto - 1, len(text), packer.pack(text)))
        held.clear()
        size, first = 0, upto

    for text, events in zip(encoded, turns, strict=True):
        for part, count in _parts(text, events):
            if held and size + len(part) > PAGE_LIMIT:
                close()
            held.append(part)
            size += len(part)
            upto += count
    close()
    return pages


def _parts(text: str, events: Sequence[Event]) -> Iterator[tuple[str, int]]:
    """The list `text` without its brackets, halved until each part fits a page, with its count of events."""
    if not events:
        return
    if len(text) <= PAGE_LIMIT or len(events) == 1:
        yield text[1:-1], len(events)
        return
    middle = len(events) // 2
    for half in (events[:middle], events[middle:]):
        yield from _parts(to_json([encode_event(event) for event in half]), half)
