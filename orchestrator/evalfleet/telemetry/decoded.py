"""What a body of spans is found to hold, and what of it is refused, in either encoding. PURE."""

from __future__ import annotations

from dataclasses import dataclass

from evalfleet.model.span import SpanKind, SpanStatus

#: Attributes, events and links in one body: those of two bytes each would grow to a hundred times the body.
MOST_VALUES = 200_000
#: How deep a value may lie in others, as with protobuf's own readers.
DEEPEST = 50

KINDS = (
    SpanKind.UNSPECIFIED,
    SpanKind.INTERNAL,
    SpanKind.SERVER,
    SpanKind.CLIENT,
    SpanKind.PRODUCER,
    SpanKind.CONSUMER,
)
STATUSES = (SpanStatus.UNSET, SpanStatus.OK, SpanStatus.ERROR)


class BadBody(ValueError):
    """A body that can't be read as spans. The message says where and what."""


@dataclass(slots=True)
class Tally:
    """How many spans a body holds: those that can be kept, and those that can't with why of the first of them."""

    accepted: int = 0
    rejected: int = 0
    why: str = ""
    values: int = 0

    def add(self, problem: str | None) -> bool:
        """Count a span; whether it can be kept."""
        if problem is None:
            self.accepted += 1
            return True
        self.rejected += 1
        self.why = self.why or problem
        return False

    def count(self, values: int) -> None:
        """Count what hangs on spans. Raises BadBody when that is too much."""
        self.values += values
        if self.values > MOST_VALUES:
            raise BadBody(f"more than {MOST_VALUES} attributes, events and links in one body: send smaller batches")


def span_problem(trace_id: str, span_id: str, start_ns: int, end_ns: int) -> str | None:
    """Why a span can't be kept: ids in hexadecimal, times in nanoseconds since 1970. None when it can."""
    if len(trace_id) != 32 or trace_id == "0" * 32:
        return f"a span has the trace id {trace_id[:64]!r}: 32 hexadecimal digits that are not all 0 were expected"
    if len(span_id) != 16 or span_id == "0" * 16:
        return f"a span has the id {span_id[:64]!r}: 16 hexadecimal digits that are not all 0 were expected"
    if (start_ns | end_ns) >> 63:  # the store's numbers are signed
        return f"a span lies outside of 1970 to 2262: {start_ns} to {end_ns} ns"
    return None
