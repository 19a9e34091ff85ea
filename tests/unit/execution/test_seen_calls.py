"""Which turn has which model calls of its agent, and what it used by them."""

from __future__ import annotations

from evalfleet.execution.seen_calls import EVENTS_LIMIT, NOTHING_SEEN, Seen, SeenCalls, metered
from evalfleet.model.coverage import COMPLETE_COVERAGE, Coverage, partial
from evalfleet.model.events import ModelRequest, ModelResponse
from evalfleet.model.usage import Usage

SPENT = Usage(input_tokens=10, output_tokens=2, requests=1)
PARTLY = Coverage(
    **{name: getattr(COMPLETE_COVERAGE, name) for name in ("events", "actions", "messages", "status", "data")},
    usage=partial("sub-agents are not told"),
)


def call(calls: SeenCalls, number: int, outcome: str = "answered", usage: Usage | None = SPENT) -> None:
    begin(calls, number)
    end(calls, number, outcome, usage)


def begin(calls: SeenCalls, number: int) -> None:
    calls.observe(ModelRequest(call_id=f"c{number}"))


def end(calls: SeenCalls, number: int, outcome: str = "answered", usage: Usage | None = SPENT) -> None:
    calls.observe(ModelResponse(call_id=f"c{number}", outcome=outcome, usage=usage))


def test_a_turn_has_the_calls_that_were_made_while_it_ran() -> None:
    calls = SeenCalls(whole=True)
    calls.send_began()
    call(calls, 1)
    call(calls, 2)
    first = calls.send_ended()
    calls.send_began()
    call(calls, 3)
    second = calls.send_ended()
    assert [event.call_id for event in first.events] == ["c1", "c1", "c2", "c2"]
    assert first.usage == SPENT + SPENT
    assert [event.call_id for event in second.events] == ["c3", "c3"]
    assert second.usage == SPENT


def test_calls_that_cost_nothing_are_no_unknown_ones() -> None:
    calls = SeenCalls(whole=True)
    calls.send_began()
    call(calls, 1, "throttled", None)
    call(calls, 2, "refused", None)
    call(calls, 3, "broken", None)
    call(calls, 4)
    seen = calls.send_ended()
    assert seen.usage == SPENT + Usage(unknown_calls=1)
    assert len(seen.events) == 8


def test_a_call_that_outlives_its_turn_is_unknown_there_and_counts_in_no_other() -> None:
    calls = SeenCalls(whole=True)
    calls.send_began()
    begin(calls, 1)
    assert calls.send_ended().usage == Usage(unknown_calls=1)
    calls.send_began()
    end(calls, 1)
    assert calls.send_ended() == Seen(events=(), usage=None)


def test_of_turns_at_once_nobody_can_tell_whose_usage_it_was() -> None:
    calls = SeenCalls(whole=True)
    calls.send_began()
    calls.send_began()
    call(calls, 1)
    assert calls.send_ended().usage is None
    call(calls, 2)
    assert calls.send_ended().usage is None
    calls.send_began()
    call(calls, 3)
    assert calls.send_ended().usage == SPENT


def test_an_agent_with_another_way_to_its_model_is_not_metered() -> None:
    calls = SeenCalls(whole=False)
    calls.send_began()
    call(calls, 1)
    seen = calls.send_ended()
    assert seen.usage is None and len(seen.events) == 2


def test_events_are_bounded_and_usage_is_not() -> None:
    calls = SeenCalls(whole=True)
    calls.send_began()
    for number in range(EVENTS_LIMIT):
        call(calls, number)
    seen = calls.send_ended()
    assert len(seen.events) == EVENTS_LIMIT
    assert seen.usage is not None and seen.usage.requests == EVENTS_LIMIT


def test_what_was_metered_replaces_what_was_told() -> None:
    told = Usage(input_tokens=1, output_tokens=1, cost_usd=0.5)
    seen = Seen(events=(), usage=SPENT)
    usage, coverage = metered(seen, told, PARTLY)
    assert usage == Usage(input_tokens=10, output_tokens=2, requests=1, cost_usd=0.5)
    assert coverage == COMPLETE_COVERAGE
    assert metered(NOTHING_SEEN, told, PARTLY) == (told, PARTLY)
    assert metered(seen, None, PARTLY)[0] == SPENT


def test_calls_that_told_nothing_leave_the_word_of_an_agent_that_knows() -> None:
    told = Usage(input_tokens=30, output_tokens=3)
    seen = Seen(events=(), usage=SPENT + Usage(unknown_calls=2))
    assert metered(seen, told, COMPLETE_COVERAGE) == (told, COMPLETE_COVERAGE)
    usage, coverage = metered(seen, told, PARTLY)
    assert usage == seen.usage
    assert coverage.usage == partial("2 model calls did not tell what they used")
