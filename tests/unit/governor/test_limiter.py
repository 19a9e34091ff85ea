"""One account as a worker uses it: when a call may start, what its end tells, and what the governor is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from evalfleet.governor.accounts import account_key
from evalfleet.governor.limiter import LocalAccount
from evalfleet.governor.messages import Allotment, RateLimits, Throttle
from evalfleet.governor.meter import Meter
from evalfleet.model.model_call import Account, CallEnd, CallFate, ModelCall, RateReading
from evalfleet.model.usage import Usage

OPENAI = Account(provider="openai", base_url="https://api.example.test/v1", key="KEY", model="m")
CALL = ModelCall(account=OPENAI, input_bytes=400, output_limit=400)
ANSWERED = CallEnd(fate=CallFate.ANSWERED)
THROTTLED = CallEnd(fate=CallFate.THROTTLED)


def unlimited() -> LocalAccount:
    return LocalAccount("key", "openai:m", RateLimits())


def allotted(now: float = 0.0, **allotment: Any) -> LocalAccount:
    account = LocalAccount("key", "openai:m", RateLimits(concurrency=100))
    account.report(0, 0.0, now)
    account.take_in(Allotment(account="key", **allotment), now)
    return account


def start(account: LocalAccount, now: float, times: int = 1) -> list[Any]:
    return [account.start(CALL, account.estimate(CALL), now) for _ in range(times)]


@pytest.mark.parametrize(
    ("account", "started", "may"),
    [
        (unlimited(), 500, True),
        (LocalAccount("key", "openai:m", RateLimits(concurrency=100)), 0, False),  # the governor has yet to say
        (allotted(concurrency=3), 2, True),
        (allotted(concurrency=3), 3, False),
        (allotted(calls=2.5), 1, True),
        (allotted(calls=2.5), 2, False),
        (allotted(tokens=400.0), 1, True),  # each is taken to use 200
        (allotted(tokens=399.0), 1, False),
        (allotted(blocked=5.0), 0, False),
    ],
)
def test_a_call_may_start(account: LocalAccount, started: int, may: bool) -> None:
    start(account, 0.0, started)
    assert account.may_start(account.estimate(CALL), 0.0) is may


def test_a_block_ends_by_itself() -> None:
    account = allotted(blocked=5.0)
    assert not account.may_start(1.0, 4.9)
    assert account.may_start(1.0, 5.0)


def test_the_size_of_a_call_is_learned_and_what_was_set_aside_is_settled() -> None:
    account = allotted(tokens=1000.0)
    assert account.estimate(CALL) == 200.0  # a quarter of its bytes, and of its limit
    (one,) = start(account, 0.0)
    account.end(one, CallEnd(fate=CallFate.ANSWERED, usage=Usage(input_tokens=90, output_tokens=510)), 1.0)
    assert (account.tokens, account.estimate(CALL)) == (400.0, 600.0)
    (two,) = start(account, 1.0)
    assert account.tokens == -200.0
    account.end(two, CallEnd(fate=CallFate.REFUSED), 1.0)
    assert account.tokens == 400.0
    (three,) = start(account, 1.0)
    account.end(three, ANSWERED, 1.0)  # nobody said what it used: what was set aside is what it was
    assert account.tokens == -200.0
    assert account.report(1, 600.0, 1.0).tokens == -200.0


def test_a_first_refusal_makes_an_account_one_that_is_governed() -> None:
    account = unlimited()
    calls = start(account, 10.0, 11)
    assert not account.end(calls[0], ANSWERED, 11.0)
    assert account.end(calls[1], THROTTLED, 12.0)
    assert (account.active, account.concurrency) == (True, 7)
    assert not account.may_start(1.0, 12.0)
    report = account.report(5, 1000.0, 12.5)
    assert report.throttle == Throttle(calls=1, age=2.5, wait=None)
    assert (report.allotted, report.concurrency, report.in_flight, report.answered) == (False, None, 9, 1)
    account.take_in(Allotment(account="key", concurrency=12), 12.6)
    assert account.may_start(1.0, 12.6)


def test_of_several_refusals_the_youngest_and_the_longest_wait_are_told() -> None:
    account = allotted(concurrency=50)
    first, second, third = start(account, 0.0) + start(account, 1.0) + start(account, 2.0)
    account.end(second, CallEnd(fate=CallFate.THROTTLED, retry_after=30.0), 3.0)
    account.end(third, CallEnd(fate=CallFate.THROTTLED, retry_after=5.0), 4.0)
    account.end(first, THROTTLED, 5.0)
    assert account.blocked_until == 33.0
    assert account.report(0, 0.0, 6.0).throttle == Throttle(calls=3, age=4.0, wait=27.0)


def test_what_was_not_heard_is_told_again_and_the_worker_goes_on_with_what_it_has() -> None:
    account = allotted(concurrency=5, calls=3.0, calls_per_second=2.0)
    (one,) = start(account, 0.0)
    account.end(one, ANSWERED, 0.5)
    for now in (1.0, 2.0, 4.0):
        account.untold(account.report(0, 0.0, now), now)
    assert account.concurrency == 5
    assert account.calls == pytest.approx(2.0 + 3 * 2.0)  # after a second without a word, what it may count on
    assert account.report(0, 0.0, 5.0).answered == 1


def test_a_refusal_that_nobody_heard_of_pauses_here() -> None:
    account = allotted(concurrency=5)
    (one,) = start(account, 0.0)
    account.end(one, THROTTLED, 1.0)
    account.untold(account.report(0, 0.0, 1.0), 1.1)
    assert not account.may_start(1.0, 1.5)
    assert account.may_start(1.0, 1.7)
    assert account.report(0, 0.0, 2.0).throttle == Throttle(calls=1, age=pytest.approx(1.9), wait=None)


def test_credit_that_nobody_waits_for_is_given_back() -> None:
    account = allotted(calls=5.0, tokens=900.0)
    assert account.report(2, 400.0, 1.0).calls == 5.0
    report = account.report(0, 0.0, 1.0)
    assert (report.returned_calls, report.returned_tokens, report.calls, account.calls) == (5.0, 900.0, 0.0, 0.0)


def test_a_header_that_says_that_nothing_is_left_stops_calls_before_they_are_refused() -> None:
    account = unlimited()
    (one, two) = start(account, 0.0, 2)
    some = RateReading(requests_per_minute=60, requests_left=5, requests_reset=4.0)
    none = RateReading(requests_per_minute=60, requests_left=0, requests_reset=4.0)
    assert not account.end(one, CallEnd(fate=CallFate.ANSWERED, reading=some), 1.0)
    assert not account.active
    assert account.end(two, CallEnd(fate=CallFate.ANSWERED, reading=none), 1.0)
    assert account.active
    assert not account.may_start(1.0, 4.9)
    assert account.report(0, 0.0, 1.0).reading == none


def test_its_use_is_of_the_last_minute() -> None:
    account = allotted(concurrency=5, limits=RateLimits(concurrency=80, requests_per_minute=600.0))
    judged = ModelCall(account=OPENAI, input_bytes=400, judging=True)
    used = CallEnd(fate=CallFate.ANSWERED, usage=Usage(input_tokens=70, output_tokens=30))
    for call in (CALL, CALL, judged):
        account.end(account.start(call, 1.0, 0.0), used, 1.0)
    use = account.use(7, 2.0)
    assert (use.calls_per_minute, use.judge_calls_per_minute, use.tokens_per_minute) == (3.0, 1.0, 300.0)
    assert (use.waiting, use.concurrency, use.requests_limit) == (7, 80, 600.0)


def test_a_meter_takes_the_minute_before_for_even() -> None:
    meter = Meter()
    meter.add(60.0, 10.0)
    assert [meter.per_minute(at) for at in (59.0, 75.0, 119.0, 130.0)] == pytest.approx([60.0, 45.0, 1.0, 0.0])


@pytest.mark.parametrize(
    ("base_url", "secret", "same"),
    [
        ("https://api.example.test/v1", "s3cret", True),
        ("https://API.example.test/other", "s3cret\n", True),
        ("https://user@api.example.test/v1", "s3cret", True),
        ("https://api.example.test/v1", "another", False),
        ("https://other.example.test/v1", "s3cret", False),
        ("https://api.example.test/v1", None, False),
    ],
)
def test_an_account_is_a_host_a_key_and_a_model(base_url: str, secret: str | None, same: bool) -> None:
    account = Account(provider="openai", base_url=base_url, key="OTHER_NAME", model="m")
    ours = account_key(OPENAI, "s3cret")
    assert (account_key(account, secret) == ours) is same
    assert "s3cret" not in ours
    assert account_key(Account(provider="x", base_url=base_url, key="K", model="n"), secret) != ours
