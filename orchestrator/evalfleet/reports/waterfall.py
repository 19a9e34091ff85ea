"""The spans of an attempt as a waterfall: rows in the order of a tree, none left out. PURE.

Spans come from clocks and senders that are not ours: a parent may be missing, a span may come twice, two may be each
other's parents, and an end may lie before its start. Each of these is shown as what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from evalfleet.model.span import Span
from evalfleet.telemetry.genai import GenAiFacts, genai_facts
from evalfleet.telemetry.traces import root_span


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallRow:
    """One span: how deep it lies, and in nanoseconds its start after that of the waterfall and how long it took.

    `gap_ns` is the time before it in which its parent did nothing that a span says: since the parent began, or since
    the last of its children before this one ended. Roots have none. `orphan` says that its parent was never sent, or
    is its own descendant; the span that stands for the attempt is nobody's to send. `repeats` are the further times
    that it was sent.
    """

    span: Span
    facts: GenAiFacts
    depth: int
    offset_ns: int
    duration_ns: int
    gap_ns: int = 0
    orphan: bool = False
    repeats: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """All rows, parents before their children and these by their start. `start_ns` is since 1970.

    `duration_ns` reaches from the first start to the last end.
    """

    start_ns: int
    duration_ns: int
    rows: tuple[WaterfallRow, ...]


_Key = tuple[str, str]


def waterfall(spans: Iterable[Span]) -> Waterfall:
    """The waterfall of an attempt's spans, which may come in any order and belong to several traces."""
    known: dict[_Key, Span] = {}
    repeats: dict[_Key, int] = {}
    for span in sorted(spans, key=_order):
        key = (span.trace_id, span.span_id)
        if key in known:
            repeats[key] = repeats.get(key, 0) + 1
        else:
            known[key] = span
    if not known:
        return Waterfall(start_ns=0, duration_ns=0, rows=())
    start = min(span.start_ns for span in known.values())
    end = max(max(span.start_ns, span.end_ns) for span in known.values())
    rows = _rows(known, repeats, start)
    return Waterfall(start_ns=start, duration_ns=end - start, rows=tuple(rows))


def _rows(known: Mapping[_Key, Span], repeats: Mapping[_Key, int], start: int) -> list[WaterfallRow]:
    children: dict[_Key, list[_Key]] = {}
    tops: list[_Key] = []
    for key, span in known.items():
        parent = _parent(span)
        if parent is None or parent not in known:
            tops.append(key)
        else:
            children.setdefault(parent, []).append(key)
    tops = sorted([*tops, *_broken_rings(known, children, tops)], key=lambda key: _order(known[key]))
    rows: list[WaterfallRow] = []
    seen: set[_Key] = set()
    # a stack and no recursion: a trace may be deeper than Python's
    waiting = [(key, 0, 0) for key in reversed(tops)]
    while waiting:
        key, depth, gap = waiting.pop()
        if key in seen:  # where a ring was broken
            continue
        seen.add(key)
        span = known[key]
        rows.append(
            WaterfallRow(
                span=span,
                facts=genai_facts(span),
                depth=depth,
                offset_ns=span.start_ns - start,
                duration_ns=_end(span) - span.start_ns,
                gap_ns=gap,
                orphan=depth == 0 and span.parent_id not in (None, root_span(span.trace_id)),
                repeats=repeats.get(key, 0),
            )
        )
        below = [child for child in children.get(key, ()) if child not in seen]
        gaps = _gaps(span, [known[child] for child in below])
        waiting += [(child, depth + 1, gap) for child, gap in zip(reversed(below), reversed(gaps), strict=True)]
    return rows


def _broken_rings(
    known: Mapping[_Key, Span], children: Mapping[_Key, Sequence[_Key]], tops: Iterable[_Key]
) -> list[_Key]:
    """Of spans that are each other's ancestors, the first of each ring, which stands as a top."""
    reached: set[_Key] = set()
    _reach(children, tops, reached)
    first: list[_Key] = []
    for key in known:
        if key not in reached:
            ring = _ring(known, key)
            top = min(ring, key=lambda each: _order(known[each]))
            first.append(top)
            _reach(children, [top], reached)
    return first


def _ring(known: Mapping[_Key, Span], key: _Key) -> list[_Key]:
    """The ring that a span's ancestors end in."""
    way: dict[_Key, int] = {}
    while key not in way:
        way[key] = len(way)
        key = (key[0], known[key].parent_id or "")
    return [each for each, place in way.items() if place >= way[key]]


def _reach(children: Mapping[_Key, Sequence[_Key]], start: Iterable[_Key], reached: set[_Key]) -> None:
    waiting = list(start)
    while waiting:
        key = waiting.pop()
        if key not in reached:
            reached.add(key)
            waiting += children.get(key, ())


def _gaps(parent: Span, children: Sequence[Span]) -> list[int]:
    """Before each child, in their order, the nanoseconds in which neither it nor one before it ran."""
    gaps: list[int] = []
    busy = parent.start_ns
    for child in children:
        gaps.append(max(0, child.start_ns - busy))
        busy = max(busy, _end(child))
    return gaps


def _parent(span: Span) -> _Key | None:
    return None if span.parent_id is None else (span.trace_id, span.parent_id)


def _end(span: Span) -> int:
    """Where a span ends: one whose end lies before its start takes no time."""
    return max(span.start_ns, span.end_ns)


def _order(span: Span) -> tuple[int, int, str, str]:
    """By start; of those that start together the longest first; the rest only to be the same each time."""
    return span.start_ns, -span.end_ns, span.trace_id, span.span_id
