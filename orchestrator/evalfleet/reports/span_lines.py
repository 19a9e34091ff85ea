"""The spans of an attempt as lines of a terminal and as JSON. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalfleet.model.span import SpanStatus
from evalfleet.reports.evidence_value import plain
from evalfleet.reports.visible import visible_line
from evalfleet.reports.waterfall import Waterfall, WaterfallRow
from evalfleet.telemetry.genai import GenAiFacts

_MS = 1_000_000
_NAME_WIDTH = 44


def span_lines(found: Waterfall) -> Iterator[str]:
    """One line a span: when it began after the first, how long it took, its place in the tree, and what it says."""
    if not found.rows:
        yield "no spans came of this attempt"
        return
    yield f"{len(found.rows)} spans over {_seconds(found.duration_ns)}"
    yield f"  {'start':>10}  {'took':>10}  span"
    for row in found.rows:
        name = f"{'  ' * min(row.depth, 12)}{visible_line(row.span.name)}"
        said = " · ".join(_remarks(row))
        line = f"  {_seconds(row.offset_ns):>10}  {_seconds(row.duration_ns):>10}  {name:<{_NAME_WIDTH}}  {said}"
        yield line.rstrip()


def lost_lines(late: int, dropped: Mapping[str, int], refused: Mapping[str, int]) -> Iterator[str]:
    """What of the whole run was sent and is not kept; nothing where all is. Numbers by cause."""
    if lost := _by_cause({**dropped, "after their attempt": late}):
        yield f"spans of the whole run that are not kept: {lost}"
    if bodies := _by_cause(refused):
        yield f"bodies of the whole run that were refused: {bodies}"


def _by_cause(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {cause.replace('_', ' ')}" for cause, number in numbers.items() if number)


def spans_value(found: Waterfall) -> dict[str, Any]:
    """The waterfall as JSON, whole: times in nanoseconds, attributes as they came, what they say of models as `gen_ai`.

    A value that is absent was not said.
    """
    return {
        "start_ns": found.start_ns,
        "duration_ns": found.duration_ns,
        "spans": [
            {
                **plain(row.span),
                "depth": row.depth,
                "offset_ns": row.offset_ns,
                "duration_ns": row.duration_ns,
                "gap_ns": row.gap_ns,
                "orphan": row.orphan,
                "repeats": row.repeats,
                "gen_ai": _facts(row.facts),
            }
            for row in found.rows
        ],
    }


def _facts(facts: GenAiFacts) -> dict[str, Any]:
    return {name: value for name, value in plain(facts).items() if value not in (None, [])}


def _remarks(row: WaterfallRow) -> Iterator[str]:
    facts = row.facts
    if facts.subject is not None:
        yield f"{facts.role} {visible_line(facts.subject)}"
    counted = (("in", facts.input_tokens), ("out", facts.output_tokens))
    if tokens := ", ".join(f"{number} {side}" for side, number in counted if number):
        yield f"{tokens} tokens"
    if row.span.status is SpanStatus.ERROR:
        yield visible_line(f"error {row.span.status_message or facts.error or ''}").strip()
    if row.gap_ns >= 100 * _MS:
        yield f"{_seconds(row.gap_ns)} before it without a span"
    if row.orphan:
        yield "its parent was not sent"
    if row.repeats:
        yield f"sent {row.repeats + 1} times"


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds / _MS:.1f} ms" if nanoseconds < 10_000 * _MS else f"{nanoseconds / 1e9:.1f} s"
