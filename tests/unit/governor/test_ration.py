"""What the governor allots: a table of situations, and what holds at every instant of any sequence of reports."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalfleet.governor.messages import AccountReport, Allotment, RateLimits, Throttle, WorkerReport
from evalfleet.governor.ration import ration
from evalfleet.governor.state import HORIZON, RELEARN, SILENT, GovernorState
from evalfleet.model.model_call import RateReading

KEY = "openai/1"


def report(state: GovernorState, now: float, who: str = "r/w", **use: Any) -> Allotment:
    run, _, worker = who.partition("/")
    each = AccountReport(account=KEY, name="openai:m", **use)
    return ration(state, WorkerReport(run=run, worker=worker, accounts=(each,)), now)[0]


def limits(calls: float | None = None, tokens: float | None = None, at_once: int | None = None) -> RateLimits:
    return RateLimits(requests_per_minute=calls, tokens_per_minute=tokens, concurrency=at_once)


HUNDRED = limits(at_once=100)


def test_without_any_limit_there_is_none() -> None:
    allotment = report(GovernorState(), 0.0, in_flight=50)
    assert (allotment.concurrency, allotment.calls, allotment.tokens, allotment.blocked) == (None, None, None, 0.0)


def test_a_configured_limit_is_shared_by_runs_and_moves_only_once_it_is_free() -> None:
    state = GovernorState()
    assert report(state, 0.0, "a/1", limits=HUNDRED, waiting=300).concurrency == 100
    # all of it is in use, so the second run gets none of its half yet
    assert report(state, 0.1, "b/1", limits=HUNDRED, waiting=300).concurrency == 0
    assert report(state, 0.2, "a/1", limits=HUNDRED, in_flight=100, waiting=200, concurrency=100).concurrency == 50
    assert report(state, 0.3, "b/1", limits=HUNDRED, waiting=300, concurrency=0).concurrency == 0
    report(state, 0.4, "a/1", limits=HUNDRED, in_flight=70, waiting=200, concurrency=50)
    assert report(state, 0.5, "b/1", limits=HUNDRED, waiting=300, concurrency=0).concurrency == 30
    report(state, 0.6, "a/1", limits=HUNDRED, in_flight=50, waiting=200, concurrency=50)
    assert report(state, 0.7, "b/1", limits=HUNDRED, waiting=300, concurrency=30).concurrency == 50


def test_an_unused_share_flows_over() -> None:
    state = GovernorState()
    report(state, 0.0, "a/1", limits=HUNDRED, waiting=10)
    assert report(state, 0.1, "b/1", limits=HUNDRED, waiting=300).concurrency == 87


def test_a_worker_that_died_frees_its_share_after_a_while() -> None:
    state = GovernorState()
    report(state, 0.0, "a/1", limits=HUNDRED, waiting=300)
    for now in (1.0, SILENT - 0.1):
        assert report(state, now, "a/2", limits=HUNDRED, waiting=300, concurrency=0).concurrency == 0
    assert report(state, SILENT + 0.1, "a/2", limits=HUNDRED, waiting=300, concurrency=0).concurrency == 100


def test_credit_comes_from_one_bucket_and_goes_to_runs_equally() -> None:
    state, rate = GovernorState(), limits(calls=600)
    assert report(state, 0.0, "a/1", limits=rate, waiting=4).calls == 4
    assert report(state, 0.0, "b/1", limits=rate, waiting=100).calls == 6
    assert report(state, 0.0, "a/1", limits=rate, waiting=100).calls == 0
    got = {"a/1": 0.0, "b/1": 0.0}
    for step in range(1, 60):
        who = "a/1" if step % 3 else "b/1"  # the one that asks twice as often gets no more
        got[who] += report(state, step / 4, who, limits=rate, waiting=100).calls or 0.0
    assert got["a/1"] == pytest.approx(got["b/1"], rel=0.1)
    assert sum(got.values()) == pytest.approx(59 / 4 * 590 / 60, rel=0.1)


def test_tokens_are_credit_too_and_what_is_given_back_goes_to_others() -> None:
    state, rate = GovernorState(), limits(tokens=60_000)
    assert report(state, 0.0, "a/1", limits=rate, waiting=1, waiting_tokens=5000).tokens == 1000
    assert report(state, 1.0, "a/1", limits=rate, waiting=1, waiting_tokens=5000, tokens=1000).tokens == pytest.approx(
        59_000 / 60
    )
    report(state, 1.0, "a/1", limits=rate, returned_tokens=900)
    assert report(state, 1.0, "b/1", limits=rate, waiting=1, waiting_tokens=5000).tokens == pytest.approx(900)


def test_the_strictest_of_two_configured_limits_counts_while_its_run_lives() -> None:
    state = GovernorState()
    report(state, 0.0, "a/1", limits=limits(at_once=10), waiting=1)
    assert report(state, 0.1, "b/1", limits=HUNDRED, waiting=300).limits.concurrency == 10
    assert report(state, SILENT + 1, "b/1", limits=HUNDRED, waiting=300).limits.concurrency == 100


@pytest.mark.parametrize(
    ("wait", "blocked", "limit"),
    [
        (None, 0.5, 85),
        (0.5, 0.5, 85),
        (90.0, 90.0, 1),
        (5000.0, HORIZON, 1),
    ],
)
def test_a_refusal(wait: float | None, blocked: float, limit: int) -> None:
    state = GovernorState()
    throttle = Throttle(calls=1, age=0.3, wait=wait)
    allotment = report(state, 0.0, in_flight=99, waiting=50, throttle=throttle)
    assert (allotment.blocked, allotment.limits.concurrency) == (blocked, limit)
    assert allotment.concurrency == (0 if blocked else limit)


def test_a_storm_holds_the_account_up_for_longer_and_longer_until_something_is_answered() -> None:
    state, blocked, now = GovernorState(), [], 0.0
    for _ in range(6):
        now += 1
        blocked.append(report(state, now, in_flight=1, throttle=Throttle(calls=1, age=0.1)).blocked)
        now += blocked[-1]
    assert blocked == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
    report(state, now + 1, in_flight=1, answered=1)
    assert report(state, now + 2, in_flight=1, throttle=Throttle(calls=1, age=0.1)).blocked == 0.0


def test_a_long_wait_on_every_call_and_recovery_climbs_back() -> None:
    """A retry-after of 90 s for a minute; the window finds back within a minute of the end of the storm."""
    state, now = GovernorState(), 0.0
    allotment = report(state, now, in_flight=100, waiting=400, throttle=Throttle(calls=1, age=1.0, wait=90.0))
    report(state, 1.0, in_flight=0, waiting=500, concurrency=0, throttle=Throttle(calls=99, age=1.2, wait=89.0))
    # what had been let through before is answered meanwhile, and is no reason to come back all at once
    report(state, 2.0, in_flight=0, waiting=500, concurrency=0, answered=60)
    now = 1.0 + 90.0
    assert report(state, now, waiting=500, concurrency=0, allotted=True).concurrency == 1
    for _ in range(60):  # a round trip of half a second
        allotment = report(state, now, waiting=500, concurrency=allotment.concurrency, allotted=True)
        assert allotment.blocked == 0.0
        flying = allotment.concurrency or 0
        now += 0.5
        allotment = report(state, now, waiting=500, answered=flying, concurrency=flying, allotted=True)
        if (allotment.concurrency or 0) >= 85:
            break
    assert now - 60.0 <= 60.0


READ = RateReading(requests_per_minute=600, requests_left=3, requests_reset=1.0)


def test_headers_say_the_limit_and_what_is_left() -> None:
    state = GovernorState()
    allotment = report(state, 0.0, waiting=50, in_flight=10, reading=READ, throttle=Throttle(calls=1, age=0.1))
    assert allotment.limits.requests_per_minute == 600
    assert allotment.calls == 3
    gone = replace(READ, requests_left=0, requests_reset=7.0)
    assert report(state, 1.0, waiting=50, reading=gone).blocked == 7.0


def test_a_configured_rate_comes_before_a_learned_one() -> None:
    allotment = report(GovernorState(), 0.0, waiting=50, limits=limits(calls=60), reading=READ)
    assert allotment.limits.requests_per_minute == 60


def test_a_new_governor_leaves_things_as_they_are_until_it_knows_who_has_what() -> None:
    state = GovernorState()
    held: dict[str, Any] = {"limits": HUNDRED, "allotted": True}
    assert report(state, 0.0, "a/1", waiting=100, in_flight=50, concurrency=50, **held).concurrency == 50
    assert report(state, 0.1, "b/1", waiting=100, in_flight=30, concurrency=30, **held).concurrency == 30
    assert report(state, 0.2, "c/1", waiting=100, limits=HUNDRED).concurrency == 0
    now = RELEARN + 0.1
    ours = report(state, now, "a/1", waiting=100, in_flight=50, concurrency=50, **held).concurrency
    assert ours in (26, 27)  # a third of 80
    report(state, now, "a/1", waiting=100, in_flight=ours, concurrency=ours, **held)
    theirs = report(state, now, "c/1", waiting=100, limits=HUNDRED, concurrency=0).concurrency
    assert theirs == 80 - 30 - ours


def test_a_new_governor_hands_out_no_credit_that_the_last_one_may_have() -> None:
    state = GovernorState()
    use: dict[str, Any] = {"limits": limits(calls=600), "waiting": 50, "allotted": True}
    assert report(state, 0.0, blocked=3.0, **use).calls == 0.0
    assert report(state, 1.0, **use).blocked == 2.0


class Fleet:
    """Workers that start calls as they are allotted and report when they are told to."""

    def __init__(self, dice: random.Random, rate: RateLimits) -> None:
        self.dice, self.rate, self.state, self.now = dice, rate, GovernorState(), 0.0
        self.flying, self.allowed, self.credit = dict[str, int](), dict[str, int](), dict[str, float]()
        self.handed_out: list[tuple[float, float]] = []
        self.heard: dict[str, float] = {}
        for run in "ab":
            for worker in range(dice.randint(1, 3)):
                self.join(f"{run}/{worker}")

    def join(self, who: str) -> None:
        self.flying[who], self.allowed[who], self.credit[who] = 0, 0, 0.0
        self.heard[who] = self.now

    def step(self, who: str) -> None:
        dice, answered = self.dice, self.dice.randint(0, self.flying[who])
        self.flying[who] -= answered
        waiting = dice.choice([0, 3, 50])
        use: dict[str, Any] = {"in_flight": self.flying[who], "waiting": waiting, "answered": answered}
        use |= {"concurrency": self.allowed[who], "calls": self.credit[who]}
        allotment = report(self.state, self.now, who, limits=self.rate, **use)
        self.heard[who] = self.now
        self.allowed[who] = allotment.concurrency or 0
        self.credit[who] += allotment.calls or 0.0
        self.handed_out.append((self.now, allotment.calls or 0.0))
        while self.flying[who] < self.allowed[who] and self.credit[who] >= 1 and dice.random() < 0.9:
            self.flying[who] += 1
            self.credit[who] -= 1
        assert sum(self.flying.values()) <= (self.rate.concurrency or 0)

    def bury(self, who: str) -> None:
        """A worker dies; another takes its place at once and the others go on."""
        del self.flying[who], self.allowed[who], self.credit[who], self.heard[who]
        self.join(f"{who}+")
        for _ in range(6):
            self.now += 1.0
            for other in list(self.flying):
                self.step(other)


@settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_the_limits_hold_at_every_instant(seed: int) -> None:
    dice = random.Random(seed)
    fleet = Fleet(dice, limits(calls=dice.choice([30, 600]), at_once=dice.choice([1, 7, 40])))
    for _ in range(100):
        fleet.now += dice.uniform(0, 0.4)
        # whoever lives is never silent for long
        due = min(fleet.heard, key=lambda who: fleet.heard[who])
        fleet.step(due if fleet.now - fleet.heard[due] > 2.0 else dice.choice(list(fleet.flying)))
        if dice.random() < 0.02:
            fleet.bury(dice.choice(list(fleet.flying)))
    per_minute = fleet.rate.requests_per_minute or 0.0
    for at, _ in fleet.handed_out:
        assert sum(calls for when, calls in fleet.handed_out if at <= when < at + 60) <= per_minute * (1 + 1e-9)
    assert sum(calls for _, calls in fleet.handed_out) > 0


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(2, 200))
def test_two_runs_with_demand_get_equal_shares(first: int, second: int, limit: int) -> None:
    state, now = GovernorState(), 0.0
    names = [f"a/{n}" for n in range(first)] + [f"b/{n}" for n in range(second)]
    got = dict.fromkeys(names, 0)
    for _ in range(8):
        for who in names:
            now += 0.01
            got[who] = (
                report(
                    state, now, who, limits=limits(at_once=limit), waiting=400, concurrency=got[who], in_flight=got[who]
                ).concurrency
                or 0
            )
    ours, theirs = (sum(n for who, n in got.items() if who.startswith(run)) for run in "ab")
    assert ours + theirs == limit
    assert abs(ours - theirs) <= 1
