"""Semantics §2: counts over M known matches, U undecidable candidates and an incomplete scope; and order checks."""

from __future__ import annotations

import pytest

from evalfleet.assertions.criteria import CalledTool, EventOccurs, EventOrder, NotCalledTool, ToolOrder, evaluate
from evalfleet.assertions.matchers import includes, satisfies
from evalfleet.assertions.tools import MATCH, EventMatch, ToolMatch, event_match, ordered, subagent_match, tool_match
from evalfleet.errors import AuthoringError
from evalfleet.model.assertion import Result
from evalfleet.model.coverage import Channel
from evalfleet.model.events import Event, InputOption, InputRequested, OperationFinished
from tests.unit.assertions.traces import asked, called, covering, said, scope, turn

WANTED = tool_match("search", output=includes("x"))


def trace(matched: int, undecided: int) -> list[Event]:
    """Calls whose output matches, calls whose output nobody reported, and one of another tool."""
    events: list[Event] = [*called("fetch", id="other")]
    for number in range(matched):
        events += called("search", id=f"m{number}", output="x")
    for number in range(undecided):
        events += called("search", id=f"u{number}")
    return events


def result(match: ToolMatch, matched: int, undecided: int, state: str) -> str:
    record = turn(*trace(matched, undecided), coverage=covering(Channel.ACTIONS, state))
    return evaluate(CalledTool(match), scope(record)).result.value


@pytest.mark.parametrize(
    ("match", "m", "u", "state", "expected"),
    [
        # at least n: M ≥ n matched; else I → unavailable, else mismatched
        (WANTED, 1, 0, "complete", "matched"),
        (WANTED, 1, 5, "partial", "matched"),
        (WANTED, 0, 0, "complete", "mismatched"),
        (WANTED, 0, 1, "complete", "unavailable"),
        (WANTED, 0, 0, "partial", "unavailable"),
        (WANTED.at_least(2), 2, 0, "partial", "matched"),
        (WANTED.at_least(2), 1, 0, "complete", "mismatched"),
        (WANTED.at_least(2), 1, 1, "complete", "unavailable"),
        # exactly n: M > n mismatched; M = n and not I matched; M < n and not I mismatched; else unavailable
        (WANTED.exactly(1), 2, 0, "complete", "mismatched"),
        (WANTED.exactly(1), 2, 1, "partial", "mismatched"),
        (WANTED.exactly(1), 1, 0, "complete", "matched"),
        (WANTED.exactly(1), 1, 0, "partial", "unavailable"),
        (WANTED.exactly(1), 1, 1, "complete", "unavailable"),
        (WANTED.exactly(2), 1, 0, "complete", "mismatched"),
        (WANTED.exactly(2), 1, 0, "partial", "unavailable"),
        # at most n: M > n mismatched; not I matched; else unavailable
        (WANTED.at_most(1), 2, 0, "partial", "mismatched"),
        (WANTED.at_most(1), 1, 0, "complete", "matched"),
        (WANTED.at_most(1), 0, 0, "complete", "matched"),
        (WANTED.at_most(1), 1, 1, "complete", "unavailable"),
        (WANTED.at_most(1), 0, 0, "unavailable", "unavailable"),
        # never: M ≥ 1 mismatched; not I matched; else unavailable
        (WANTED.never(), 1, 0, "partial", "mismatched"),
        (WANTED.never(), 0, 0, "complete", "matched"),
        (WANTED.never(), 0, 1, "complete", "unavailable"),
        (WANTED.never(), 0, 0, "partial", "unavailable"),
    ],
)
def test_counts(match: ToolMatch, m: int, u: int, state: str, expected: str) -> None:
    assert result(match, m, u, state) == expected


def test_an_orphan_finish_makes_the_scope_incomplete() -> None:
    found = evaluate(NotCalledTool(tool_match("rm")), scope(turn(OperationFinished("lost"))))
    assert (found.result, found.reason) == (Result.UNAVAILABLE, "evidence:orphan-finishes=1")


def test_the_undecided_output_is_the_reason() -> None:
    found = evaluate(CalledTool(WANTED), scope(turn(*called("search"))))
    assert (found.result, found.reason) == (Result.UNAVAILABLE, "evidence:operation-output-missing")


@pytest.mark.parametrize(
    ("wanted", "events", "state", "expected"),
    [
        # subsequence by definite matches → matched
        ("ab", "ab", "complete", "matched"),
        ("ab", "xaxbx", "complete", "matched"),
        ("ab", "bab", "partial", "matched"),
        ("aa", "aa", "complete", "matched"),
        # possible with undecidables or incomplete → unavailable
        ("ab", "b", "partial", "unavailable"),
        ("ab", "ba", "unavailable", "unavailable"),
        ("aB", "ab", "complete", "unavailable"),
        # else mismatched
        ("ab", "ba", "complete", "mismatched"),
        ("aa", "a", "complete", "mismatched"),
        ("Ba", "ab", "complete", "mismatched"),
    ],
)
def test_tool_order(wanted: str, events: str, state: str, expected: str) -> None:
    """Letters are tools; a capital letter asks for an output that nobody reported."""
    matches = tuple(
        tool_match(letter) if letter.islower() else tool_match(letter.lower(), output=includes("x"))
        for letter in wanted
    )
    trace = [event for at, name in enumerate(events) for event in called(name, id=str(at))]
    record = turn(*trace, coverage=covering(Channel.ACTIONS, state))
    assert evaluate(ToolOrder(matches), scope(record)).result.value == expected


def test_order_uses_each_candidate_once() -> None:
    row = [(0, MATCH), (1, MATCH)]
    assert ordered([row, row], frozenset({Result.MATCHED}))
    assert not ordered([row, row, row], frozenset({Result.MATCHED}))


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (tool_match("write", status="pending"), "matched"),
        (tool_match("write", output=includes("x")), "unavailable"),
        (tool_match("write", status="completed"), "mismatched"),
        (tool_match("write").exactly(1), "matched"),
    ],
)
def test_a_tool_awaiting_approval(match: ToolMatch, expected: str) -> None:
    parked = turn(*called("write", status="pending"), asked(), status="waiting")
    assert evaluate(CalledTool(match), scope(parked)).result.value == expected


def test_a_pending_status_is_not_known_when_finishes_may_be_lost() -> None:
    record = turn(*called("write", status="pending"), coverage=covering(Channel.ACTIONS, "partial"))
    for status in ("pending", "completed"):
        found = evaluate(CalledTool(tool_match("write", status=status)), scope(record))
        assert found.result is Result.UNAVAILABLE


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (tool_match("mcp__bash"), "matched"),
        (tool_match("shell"), "matched"),
        (tool_match("bash"), "mismatched"),
        (tool_match(includes("bash")), "matched"),
        (tool_match(input={"command": "ls"}), "matched"),
        (tool_match("shell", input={"command": "rm"}), "mismatched"),
        (subagent_match("mcp__bash"), "mismatched"),
    ],
)
def test_the_name_is_the_raw_one_or_the_canonical_class(match: ToolMatch, expected: str) -> None:
    record = turn(*called("mcp__bash", {"command": "ls", "cwd": "/"}, tool="shell"))
    assert evaluate(CalledTool(match), scope(record)).result.value == expected


def test_conditions_hold_on_one_and_the_same_call() -> None:
    record = turn(
        *called("get", {"city": "A"}, id="1", output="rain"), *called("get", {"city": "B"}, id="2", output="sun")
    )
    split = tool_match("get", input={"city": "A"}, output=includes("sun"))
    whole = tool_match("get", input={"city": "B"}, output=includes("sun"))
    assert evaluate(CalledTool(split), scope(record)).result is Result.MISMATCHED
    assert evaluate(CalledTool(whole), scope(record)).result is Result.MATCHED


def test_a_predicate_is_asked_about_its_own_tool_only() -> None:
    record = turn(*called("other", None), *called("get", {"n": 5}, id="2"))
    match = tool_match("get", input=satisfies("n is 5", lambda given: given["n"] == 5))
    assert evaluate(CalledTool(match), scope(record)).result is Result.MATCHED


def test_a_broken_predicate_errors_the_assertion_even_when_another_call_matches() -> None:
    record = turn(*called("get", {"n": 5}), *called("get", {}, id="2"))
    match = tool_match("get", input=satisfies("n is 5", lambda given: given["n"] == 5))
    found = evaluate(CalledTool(match), scope(record))
    assert (found.result, found.reason) == (Result.ERRORED, "evaluator-error:KeyError")


def test_events_count_messages_of_both_roles() -> None:
    record = turn(said("one"), said("two"))
    both, agent = event_match("message"), event_match("message", role="assistant")
    assert evaluate(EventOccurs(both.exactly(3)), scope(record)).result is Result.MATCHED
    assert evaluate(EventOccurs(agent.exactly(2)), scope(record)).result is Result.MATCHED


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (event_match("input.requested", options=[{"id": "y", "label": "Yes"}]), "matched"),
        (event_match("input.requested", input={"path": "x"}), "unavailable"),
        (event_match("input.requested", prompt=includes("sure")), "mismatched"),
    ],
)
def test_event_fields(match: EventMatch, expected: str) -> None:
    event = InputRequested("q", prompt="Go on?", options=(InputOption("y", "Yes"),))
    assert evaluate(EventOccurs(match), scope(turn(event, status="waiting"))).result.value == expected


def test_the_record_shows_what_was_seen() -> None:
    found = evaluate(CalledTool(tool_match("a")), scope(turn(*called("b"), *called("c", id="2"))))
    assert found.expected == {"at_least": 1}
    assert found.actual == {"matched": 0, "undecided": 0, "seen": ["b", "c"]}


@pytest.mark.parametrize("n", [0, -1, 1.0, True, "2", None])
@pytest.mark.parametrize("count", ["exactly", "at_least", "at_most"])
def test_a_count_is_a_whole_number_above_zero(count: str, n: object) -> None:
    for match in (tool_match("a"), event_match("message")):
        with pytest.raises(AuthoringError, match="at least 1"):
            getattr(match, count)(n)


def test_a_count_is_told_once() -> None:
    with pytest.raises(AuthoringError, match="already set"):
        tool_match("a").exactly(1).never()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: tool_match(), "at least one condition"),
        (lambda: tool_match(""), "not empty"),
        (lambda: tool_match(7), "not empty"),
        (lambda: tool_match("a", status="done"), "pending, completed, failed, rejected"),
        (lambda: event_match("mesage"), "no event type 'mesage'"),
        (lambda: event_match("message", rolle="user"), "no field 'rolle'"),
        (lambda: NotCalledTool(tool_match("a").exactly(1)), "takes no count"),
        (lambda: ToolOrder((tool_match("a"),)), "at least two"),
        (lambda: ToolOrder((tool_match("a"), tool_match("b").never())), "takes no count"),
        (lambda: EventOrder((event_match("message"), tool_match("b"))), "event_match"),
        (lambda: CalledTool("a"), "tool_match"),
    ],
)
def test_misuse_is_an_authoring_error(build: object, message: str) -> None:
    with pytest.raises(AuthoringError, match=message):
        build()  # type: ignore[operator]
