"""Spans as a waterfall: in the order of their tree, with gaps, orphans and what senders get wrong."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.model.span import Span, SpanKind, SpanSource, SpanStatus
from evalfleet.reports.waterfall import WaterfallRow, waterfall
from evalfleet.telemetry.genai import SpanRole

SOURCE = SpanSource({}, "", "")


def span(name: str, start: int, end: int, parent: str | None = None, trace: str = "t") -> Span:
    kind, status = SpanKind.INTERNAL, SpanStatus.UNSET
    given = {"gen_ai.operation.name": "execute_tool"} if name.startswith("tool") else {}
    return Span(trace, name, parent, name, kind, start, end, status, "", given, SOURCE)


def told(row: WaterfallRow) -> tuple[str, int, int, int, int]:
    return row.span.name, row.depth, row.offset_ns, row.duration_ns, row.gap_ns


@pytest.mark.parametrize(
    ("spans", "rows"),
    [
        ([], []),
        ([span("a", 100, 150)], [("a", 0, 0, 50, 0)]),
        (
            [
                span("turn", 1000, 1100),
                span("model", 1010, 1040, "turn"),
                span("tool", 1050, 1080, "turn"),
                span("http", 1055, 1060, "tool"),
                span("model2", 1070, 1095, "turn"),
            ],
            [
                ("turn", 0, 0, 100, 0),
                ("model", 1, 10, 30, 10),
                ("tool", 1, 50, 30, 10),
                ("http", 2, 55, 5, 5),
                ("model2", 1, 70, 25, 0),
            ],
        ),
        # one that runs through hides the gap between two others
        (
            [span("a", 0, 100), span("long", 0, 90, "a"), span("b", 10, 20, "a"), span("c", 95, 99, "a")],
            [("a", 0, 0, 100, 0), ("long", 1, 0, 90, 0), ("b", 1, 10, 10, 0), ("c", 1, 95, 4, 5)],
        ),
        # the parent of one was never sent; that of another is in another trace
        (
            [span("a", 10, 20), span("b", 5, 8, "gone"), span("c", 12, 13, "a", "other")],
            [("b", 0, 0, 3, 0), ("a", 0, 5, 10, 0), ("c", 0, 7, 1, 0)],
        ),
        # ends before it starts; starts before its parent
        ([span("a", 10, 20), span("b", 8, 2, "a")], [("a", 0, 2, 10, 0), ("b", 1, 0, 0, 0)]),
        # its own parent; two that are each other's, and what hangs on them
        ([span("a", 1, 2, "a")], [("a", 0, 0, 1, 0)]),
        (
            [span("child", 1, 2, "a"), span("a", 4, 9, "b"), span("b", 3, 9, "a")],
            [("b", 0, 2, 6, 0), ("a", 1, 3, 5, 1), ("child", 2, 0, 1, 0)],
        ),
    ],
)
def test_rows(spans: list[Span], rows: list[tuple[str, int, int, int, int]]) -> None:
    assert [told(row) for row in waterfall(spans).rows] == rows
    assert [told(row) for row in waterfall(reversed(spans)).rows] == rows


def test_the_whole_reaches_from_the_first_start_to_the_last_end() -> None:
    whole = waterfall([span("a", 10, 20), span("b", 15, 40, "a"), span("c", 5, 1)])
    assert (whole.start_ns, whole.duration_ns) == (5, 35)


def test_orphans_and_repeats_say_so() -> None:
    rows = waterfall([span("a", 1, 2), span("b", 3, 4, "gone"), span("a", 1, 2), span("c", 2, 2, "a")]).rows
    assert [(row.span.name, row.orphan, row.repeats) for row in rows] == [
        ("a", False, 1),
        ("c", False, 0),
        ("b", True, 0),
    ]
    assert [row.orphan for row in waterfall([span("x", 1, 2, "y"), span("y", 1, 1, "x")]).rows] == [True, False]


def test_a_row_knows_what_its_span_is_about() -> None:
    assert waterfall([span("tool search", 1, 2)]).rows[0].facts.role is SpanRole.TOOL


def test_a_trace_of_a_twenty_thousand_levels_has_as_many_rows() -> None:
    chain = [span(str(number), number, 40_000, str(number - 1) if number else None) for number in range(20_000)]
    random.Random(1).shuffle(chain)
    rows = waterfall(chain).rows
    assert [row.depth for row in rows] == list(range(20_000))


NAMES = st.sampled_from("abcdef")


@given(
    st.lists(
        st.builds(
            span,
            NAMES,
            st.integers(0, 20),
            st.integers(0, 20),
            st.none() | NAMES,
            st.sampled_from("tu"),
        ),
        max_size=12,
    )
)
def test_no_span_is_left_out_and_none_stands_before_its_parent(spans: list[Span]) -> None:
    whole = waterfall(spans)
    keys = [(row.span.trace_id, row.span.span_id) for row in whole.rows]
    assert sorted(keys) == sorted({(each.trace_id, each.span_id) for each in spans})
    assert sum(row.repeats for row in whole.rows) == len(spans) - len(keys)
    places = {key: place for place, key in enumerate(keys)}
    for place, row in enumerate(whole.rows):
        assert 0 <= row.offset_ns <= row.offset_ns + row.duration_ns <= whole.duration_ns and row.gap_ns >= 0
        if row.depth:
            parent = places[row.span.trace_id, row.span.parent_id or ""]
            assert parent < place and whole.rows[parent].depth == row.depth - 1
        else:
            assert row.orphan == (row.span.parent_id is not None)
