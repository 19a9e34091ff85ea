"""What may come of a stream that broke off, held against what comes of the whole one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from evalfleet.model.events import Event, Message, Thinking, Unrecognised

FIXTURES = Path(__file__).parent / "fixtures"


def recorded(name: str) -> bytes:
    """The bytes of a stream in the form that the provider sends."""
    return (FIXTURES / f"{name}.sse").read_bytes()


def invented(events: Iterable[Event], whole: Sequence[Event]) -> list[Event]:
    """Events that the whole stream does not have at their place; a text may be the beginning of what it became."""
    found = list(events)
    expected = [*whole[: len(found)], *[None] * (len(found) - len(whole))]
    return [event for event, full in zip(found, expected, strict=True) if full is None or _grown(event, full) != full]


def _grown(event: Event, full: Event) -> Event:
    """The event with its text as it became later, if it begins so."""
    if isinstance(event, (Message, Thinking)) and isinstance(full, (Message, Thinking)):
        return replace(event, text=full.text) if full.text.startswith(event.text) else event
    if isinstance(event, Unrecognised) and isinstance(full, Unrecognised) and isinstance(event.raw, str):
        return replace(event, raw=full.raw) if str(full.raw).startswith(event.raw) else event
    return event
