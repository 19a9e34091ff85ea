"""Run events as lines of JSON on stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from evalfleet.model.run_events import RunEvent
from evalfleet.reports.json_text import to_json
from evalfleet.reports.run_event_json import run_event_value


class EventLines:
    """Writes events as they come. Raises OSError when stdout is closed.

    Past the buffer of Python, whose lock a reader that no longer reads would hold for ever.
    """

    def __init__(self) -> None:
        self._stream: Any = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)

    def __call__(self, events: Iterable[RunEvent]) -> None:
        left = memoryview("".join(f"{to_json(run_event_value(event))}\n" for event in events).encode("ascii"))
        while left:
            left = left[self._stream.write(left) :]
