"""Many events and many assertions: what is decided at a glance is what a close look says, and it stays cheap."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.assertions.criteria import (
    CalledTool,
    EventOccurs,
    MaxToolCalls,
    MessageIncludes,
    NoFailedActions,
    NotCalledTool,
    NotEvent,
    ScopeCriterion,
    ToolOrder,
    evaluate,
)
from evalfleet.assertions.match import Match, evaluate_now
from evalfleet.assertions.matchers import (
    all_of,
    any_of,
    equals,
    excludes,
    includes,
    is_defined,
    is_false,
    is_true,
    json_match,
    negate,
    pattern,
    satisfies,
)
from evalfleet.assertions.tools import KEPT, event_match, tool_match
from evalfleet.model.events import MISSING, Event, Message, OperationFinished, OperationStarted, Role, Thinking
from evalfleet.store.record_codec import decode_event, encode_event
from tests.unit.assertions.traces import called, scope, turn

scalars = st.sampled_from([None, True, False, 0, 1, 1.0, 2, "", "a", "ab", "b", MISSING])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)
json_values = values.filter(lambda value: "MISSING" not in repr(value))
leaves = st.one_of(
    st.sampled_from("ab").map(includes),
    st.sampled_from("ab").map(excludes),
    st.just(pattern("^a+$")),
    json_values.filter(lambda value: not isinstance(value, (list, dict))).map(equals),
    st.just(is_defined()),
    st.just(is_true()),
    st.just(is_false()),
    json_values.map(json_match),
    st.dictionaries(st.sampled_from("ab"), st.sampled_from([includes("a"), is_true(), equals(1)])).map(json_match),
)
matches: st.SearchStrategy[Match] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        inner.map(negate),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: all_of(*parts)),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: any_of(*parts)),
    ),
    max_leaves=4,
)


@given(match=matches, value=values)
def test_a_glance_says_what_a_close_look_says(match: Match, value: Any) -> None:
    assert match.is_quick
    assert match.quick(value) is evaluate_now(match, value).holds


@pytest.mark.parametrize("match", [satisfies("x", lambda _: True), json_match({"a": satisfies("x", lambda _: True)})])
def test_what_an_author_wrote_is_never_asked_at_a_glance(match: Match) -> None:
    assert not match.is_quick


def test_a_predicate_is_asked_once_for_each_candidate() -> None:
    asked: list[Any] = []

    def says(value: Any) -> bool:
        asked.append(value)
        return False

    record = turn(*(event for n in range(40) for event in called("search", {"n": n}, id=str(n))))
    evaluate(CalledTool(tool_match("search", input=satisfies("says", says))), scope(record))
    assert asked == [{"n": n} for n in range(40)]


def test_only_a_few_candidates_are_shown_and_all_are_counted() -> None:
    record = turn(*(event for n in range(40) for event in called("search", {"n": n % 2}, id=str(n))))
    found = evaluate(CalledTool(tool_match("search", input=json_match({"n": 1}))), scope(record))
    assert found.actual["matched"] == 20
    assert [child.result.value for child in found.children] == ["matched"] * KEPT


# --- the cost -------------------------------------------------------------------------------------------------


def trace(count: int) -> list[Event]:
    """A long piece of work: calls of fifty tools, what was said and thought between them."""
    events: list[Event] = []
    for n in range(count // 4):
        events.append(OperationStarted(str(n), f"tool_{n % 50}", {"query": f"q{n}", "page": n % 7}))
        events.append(OperationFinished(str(n), output={"hits": [f"a{n}", f"b{n}"], "ok": True}))
        events.append(Message(Role.ASSISTANT, f"step {n} done"))
        events.append(Thinking(f"thought {n}"))
    return events


def hundred() -> list[ScopeCriterion]:
    found: list[ScopeCriterion] = []
    for n in range(20):
        found.append(CalledTool(tool_match(f"tool_{n}", input={"page": n % 7}).at_least(2)))
        found.append(CalledTool(tool_match(f"tool_{n}", output={"ok": True}, status="completed")))
        found.append(NotCalledTool(tool_match(f"absent_{n}")))
    for n in range(10):
        found.append(ToolOrder((tool_match(f"tool_{n}"), tool_match(f"tool_{n + 1}"))))
    for n in range(6):
        found.append(EventOccurs(event_match("message", role="assistant", text=includes(f"step {n} "))))
        found.append(MessageIncludes(f"step {n}"))
        found += [NotEvent(event_match("compaction")), MaxToolCalls(10**6), NoFailedActions()]
    return found


def cpu(work: Callable[[], Any]) -> float:
    """The least CPU seconds of a few runs."""
    spent: list[float] = []
    for _ in range(4):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return min(spent)


def cost(events: Sequence[Event], criteria: Sequence[ScopeCriterion]) -> tuple[float, float]:
    """CPU seconds of decoding the events once, and of answering all criteria from them."""
    record = turn(*events)
    stored = json.dumps([encode_event(event) for event in record.events])

    def read() -> Any:
        return [decode_event(event) for event in json.loads(stored)]

    def answer() -> Any:
        seen = scope(record)
        return [evaluate(criterion, seen) for criterion in criteria]

    return cpu(read), cpu(answer)


def test_a_hundred_assertions_cost_a_few_passes_over_ten_thousand_events() -> None:
    criteria = hundred()
    assert len(criteria) == 100
    decoding, matching = cost(trace(10_000), criteria)
    assert matching <= 5 * decoding, f"matching took {matching / decoding:.1f} times the decoding"


def test_the_cost_grows_with_the_events_and_not_faster() -> None:
    criteria = hundred()
    (_, few), (_, many) = cost(trace(5_000), criteria), cost(trace(20_000), criteria)
    assert many <= 8 * few, f"four times the events took {many / few:.1f} times as long"
