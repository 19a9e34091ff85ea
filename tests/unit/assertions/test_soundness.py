"""Evidence is only ever lost, never invented: a definite answer on a part must be the answer on the whole."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from evalfleet.assertions.criteria import (
    CalledTool,
    EventOccurs,
    EventOrder,
    MaxTokens,
    MaxToolCalls,
    NoFailedActions,
    NotCalledTool,
    NotEvent,
    ScopeCriterion,
    ToolOrder,
    UsedNoTools,
    check_value,
    evaluate,
)
from evalfleet.assertions.evidence import covered
from evalfleet.assertions.match import Match
from evalfleet.assertions.matchers import all_of, any_of, equals, excludes, includes, json_match, negate, pattern
from evalfleet.assertions.snapshot import MAX_DEPTH, MAX_KEYS, MAX_TEXT
from evalfleet.assertions.tools import Quantified, event_match, tool_match
from evalfleet.model.assertion import Result
from evalfleet.model.coverage import COMPLETE_COVERAGE, Channel, Coverage, CoverageEntry, complete, partial, unavailable
from evalfleet.model.events import Compaction, Event, SkillLoaded
from evalfleet.model.usage import Usage
from evalfleet.store.record_codec import decode_event, encode_event
from tests.unit.assertions.traces import called, scope, turn

DEFINITE = (Result.MATCHED, Result.MISMATCHED)
LOSSY = COMPLETE_COVERAGE.downgrade({channel: partial("dropped") for channel in Channel})

statuses = st.sampled_from(["completed", "failed", "rejected", "pending"])
outputs = st.sampled_from(["x", "y", None])


@st.composite
def traces(draw: st.DrawFn) -> list[Event]:
    events: list[Event] = []
    for number in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["tool", "tool", "skill", "compaction"]))
        if kind == "tool":
            name = draw(st.sampled_from("ab"))
            events += called(name, id=str(number), status=draw(statuses), output=draw(outputs))
        else:
            events.append(SkillLoaded("sql") if kind == "skill" else Compaction())
    return events


@st.composite
def counted(draw: st.DrawFn, match: Any) -> Any:
    quantity = draw(st.sampled_from(["exactly", "at_least", "at_most", "never", None]))
    if quantity is None:
        return match
    return match.never() if quantity == "never" else getattr(match, quantity)(draw(st.integers(1, 3)))


tools = st.builds(
    lambda name, output, status: tool_match(name, output=output, status=status),
    st.sampled_from("ab"),
    st.sampled_from([None, includes("x"), excludes("x")]),
    st.none() | statuses,
)
events = st.sampled_from([event_match("compaction"), event_match("skill.loaded", skill="sql")])


def quantified(matches: st.SearchStrategy[Any]) -> st.SearchStrategy[Quantified]:
    return matches.flatmap(counted)


criteria: st.SearchStrategy[ScopeCriterion] = st.one_of(
    st.builds(CalledTool, quantified(tools)),
    st.builds(NotCalledTool, tools),
    st.builds(ToolOrder, st.tuples(tools, tools)),
    st.builds(UsedNoTools),
    st.builds(MaxToolCalls, st.integers(0, 3)),
    st.builds(NoFailedActions),
    st.builds(EventOccurs, quantified(events)),
    st.builds(NotEvent, events),
    st.builds(EventOrder, st.tuples(events, events)),
)


def answer(criterion: ScopeCriterion, trace: list[Event], coverage: Coverage) -> Result:
    return evaluate(criterion, scope(turn(*trace, coverage=coverage))).result


@settings(deadline=None)
@given(criterion=criteria, whole=traces(), data=st.data())
def test_a_definite_answer_on_lossy_evidence_is_the_answer_on_all_of_it(
    criterion: ScopeCriterion, whole: list[Event], data: st.DataObject
) -> None:
    kept = [event for event in whole if data.draw(st.booleans())]
    on_part, on_whole = answer(criterion, kept, LOSSY), answer(criterion, whole, COMPLETE_COVERAGE)
    if on_part in DEFINITE and on_whole in DEFINITE:
        assert on_part is on_whole


@settings(deadline=None)
@given(criterion=criteria, whole=traces(), data=st.data())
def test_a_counterexample_stays_one_when_evidence_is_added(
    criterion: ScopeCriterion, whole: list[Event], data: st.DataObject
) -> None:
    kept = [event for event in whole if data.draw(st.booleans())]
    if answer(criterion, kept, LOSSY) is Result.MISMATCHED:
        assert answer(criterion, whole, LOSSY) is Result.MISMATCHED
        assert answer(criterion, whole, COMPLETE_COVERAGE) is not Result.MATCHED


lost = st.dictionaries(st.sampled_from(list(Channel)), st.sampled_from([partial("dropped"), unavailable("not told")]))


@settings(deadline=None)
@given(criterion=criteria, whole=traces(), before=lost, more=lost)
def test_worse_coverage_only_ever_makes_an_answer_unavailable(
    criterion: ScopeCriterion,
    whole: list[Event],
    before: dict[Channel, CoverageEntry],
    more: dict[Channel, CoverageEntry],
) -> None:
    declared = COMPLETE_COVERAGE.downgrade(before)
    assert answer(criterion, whole, declared.downgrade(more)) in (
        answer(criterion, whole, declared),
        Result.UNAVAILABLE,
    )


@settings(deadline=None)
@given(parts=st.lists(st.integers(0, 80), max_size=4), limit=st.integers(0, 200), extra=st.integers(0, 100))
def test_more_tokens_never_bring_a_scope_back_within_its_limit(parts: list[int], limit: int, extra: int) -> None:
    def told(counts: list[int]) -> Result:
        turns = [
            turn(usage=Usage(input_tokens=count, output_tokens=0), coverage=LOSSY, index=i, sequence=i)
            for i, count in enumerate(counts)
        ]
        return evaluate(MaxTokens(limit), scope(*turns)).result

    if told(parts) is Result.MISMATCHED:
        assert told([*parts, extra]) is Result.MISMATCHED


words = st.text("ab ", max_size=6)
leaves: st.SearchStrategy[Match] = st.one_of(
    st.sampled_from("ab").map(includes),
    st.sampled_from("ab").map(excludes),
    st.sampled_from(["a+b", "(?i)B"]).map(pattern),
)
matches: st.SearchStrategy[Match] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        inner.map(negate),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: all_of(*parts)),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: any_of(*parts)),
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(match=matches, begun=words, rest=words)
async def test_text_that_was_cut_off_decides_only_what_the_whole_text_decides(
    match: Match, begun: str, rest: str
) -> None:
    on_part = await check_value(covered(begun, Channel.MESSAGES, partial("cut off")), match)
    on_whole = await check_value(covered(begun + rest, Channel.MESSAGES, complete), match)
    if on_part.result in DEFINITE:
        assert on_part.result is on_whole.result


# --- what never changes a result ------------------------------------------------------------------------------


@st.composite
def overlapping(draw: st.DrawFn) -> tuple[list[Event], list[Event]]:
    """Calls that all run at once, and the same with their finishes in another order."""
    names = draw(st.lists(st.sampled_from("ab"), min_size=1, max_size=5))
    calls = [
        called(name, {"n": number}, id=str(number), status=draw(statuses), output=draw(outputs))
        for number, name in enumerate(names)
    ]
    starts = [call[0] for call in calls]
    finishes = [call[1] for call in calls if len(call) > 1]
    return [*starts, *finishes], [*starts, *draw(st.permutations(finishes))]


@settings(deadline=None)
@given(criterion=criteria, traces=overlapping(), coverage=st.sampled_from([COMPLETE_COVERAGE, LOSSY]))
def test_the_order_in_which_overlapping_calls_finish_changes_nothing(
    criterion: ScopeCriterion, traces: tuple[list[Event], list[Event]], coverage: Coverage
) -> None:
    one, other = traces
    assert answer(criterion, one, coverage) is answer(criterion, other, coverage)


@settings(deadline=None)
@given(criterion=criteria, trace=traces(), coverage=st.sampled_from([COMPLETE_COVERAGE, LOSSY]), data=st.data())
def test_storing_and_reading_in_pages_changes_nothing(
    criterion: ScopeCriterion, trace: list[Event], coverage: Coverage, data: st.DataObject
) -> None:
    record = turn(*trace, coverage=coverage)
    before = evaluate(criterion, scope(record))
    encoded = [encode_event(event) for event in record.events]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(encoded)), max_size=3)))
    pages = [encoded[start:end] for start, end in zip([0, *cuts], [*cuts, len(encoded)], strict=True)]
    read = tuple(decode_event(event) for page in pages for event in json.loads(json.dumps(page)))
    assert evaluate(criterion, scope(replace(record, events=read))) == before


@settings(deadline=None)
@given(
    needle=st.text("ab", min_size=1, max_size=3),
    pad=st.integers(0, 2 * MAX_TEXT),
    tail=st.text("ab", max_size=4),
    depth=st.integers(0, 2 * MAX_DEPTH),
    keys=st.integers(0, 2 * MAX_KEYS),
)
async def test_what_is_cut_for_display_still_takes_part(
    needle: str, pad: int, tail: str, depth: int, keys: int
) -> None:
    text = "x" * pad + tail
    holds = needle in text
    assert (await check_value(text, includes(needle))).holds is holds
    assert (await check_value(text, excludes(needle))).holds is not holds
    value: Any = {f"k{number}": number for number in range(keys)} | {"text": text}
    pattern_: Any = {"text": includes(needle)}
    for _ in range(depth):
        value, pattern_ = {"in": value}, {"in": pattern_}
    assert (await check_value(value, json_match(pattern_))).holds is holds
    assert (await check_value(value, equals(value))).holds
