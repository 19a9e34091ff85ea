"""A run event as a JSON value."""

from __future__ import annotations

from typing import Any

from evalfleet.model.run_events import RunEvent

#: Present when they are known; the names are those of cases and attempts everywhere.
_FIELDS = {
    "at": "at",
    "case": "case",
    "eval": "eval_id",
    "arm": "arm",
    "repetition": "repetition",
    "attempt": "attempt",
    "turn": "turn",
    "step": "step",
    "status": "status",
    "kind": "kind",
    "code": "code",
}


def run_event_value(event: RunEvent) -> dict[str, Any]:
    """The event without what it does not have."""
    value: dict[str, Any] = {
        "event": event.type.value,
        "sequence": event.sequence,
        "cursor": str(event.cursor),
        "run": event.run,
    }
    known = {name: getattr(event, field) for name, field in _FIELDS.items()}
    return value | {name: each for name, each in known.items() if each is not None}
