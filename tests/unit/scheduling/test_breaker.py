"""When an arm is paused, probed, tried again and well: one table of an arm's attempts at a time."""

from __future__ import annotations

import pytest

from evalfleet.errors import FailureKind
from evalfleet.scheduling.breaker import (
    FIRST_PROBE,
    LAST_PROBE,
    PAUSES_AT,
    WELL_AT,
    WINDOW,
    Breaker,
    Health,
    restored,
    tells,
)
from evalfleet.scheduling.state import RunPolicy

RETRIED = RunPolicy(concurrency=1).retry_on
DOWN = "sandbox: SANDBOX_FAILED"


def told(ended: str, breaker: Breaker | None = None, *, begin: int = 0) -> Breaker:
    """A breaker after attempts that failed (x) or went well (.), each granted after the one before had ended."""
    breaker = Breaker() if breaker is None else breaker
    for attempt, how in enumerate(ended, begin):
        breaker.ended(attempt, DOWN if how == "x" else "", attempt + 1, float(attempt))
    return breaker


@pytest.mark.parametrize(
    ("ended", "health"),
    [
        ("", Health.WELL),
        ("x" * (PAUSES_AT - 1), Health.WELL),
        ("x" * PAUSES_AT, Health.PAUSED),
        ("x." * (PAUSES_AT - 1) + "..", Health.WELL),
        ("x." * (PAUSES_AT - 1) + "x", Health.PAUSED),
        ("..x" * WINDOW, Health.WELL),
        ("x" * PAUSES_AT + ".", Health.TRYING),
        ("x" * PAUSES_AT + ".x", Health.PAUSED),
        ("x" * PAUSES_AT + "xxx.", Health.TRYING),
        ("x" * PAUSES_AT + "." * (WINDOW - WELL_AT - 1), Health.TRYING),
        ("x" * PAUSES_AT + "." * (WINDOW - WELL_AT), Health.WELL),
        ("x" * PAUSES_AT + "." * (WINDOW - WELL_AT) + "x", Health.WELL),
    ],
)
def test_health_follows_the_last_attempts(ended: str, health: Health) -> None:
    assert told(ended).health is health


def test_an_attempt_from_before_the_pause_does_not_end_it_and_one_from_before_its_end_does_not_renew_it() -> None:
    breaker = told("x" * PAUSES_AT)
    breaker.ended(3, "", 11, 20.0)
    assert breaker.health is Health.PAUSED
    breaker.ended(11, "", 12, 30.0)
    breaker.ended(5, DOWN, 12, 31.0)
    assert breaker.health is Health.TRYING
    breaker.ended(12, DOWN, 13, 32.0)
    assert breaker.health is Health.PAUSED


def test_probes_come_ever_more_seldom_and_a_new_pause_begins_anew() -> None:
    breaker = told("x" * PAUSES_AT)
    now = breaker.paused_at
    gaps: list[float] = []
    for _ in range(7):
        assert not breaker.admits(breaker.probe_at - 0.01) and breaker.admits(breaker.probe_at)
        gaps.append(breaker.probe_at - now)
        now = breaker.probe_at
        breaker.granted(now)
    assert gaps == [FIRST_PROBE, 10.0, 20.0, 40.0, LAST_PROBE, LAST_PROBE, LAST_PROBE]
    told(".x", breaker, begin=100)
    assert (breaker.health, breaker.probe_at) == (Health.PAUSED, 101.0 + FIRST_PROBE)


def test_an_arm_that_is_not_paused_admits_whatever_was_granted() -> None:
    breaker = told("x" * PAUSES_AT + ".")
    for _ in range(100):
        breaker.granted(50.0)
        assert breaker.admits(50.0)


@pytest.mark.parametrize(("ended", "health"), [("x" * 9, Health.WELL), (".x" * 30, Health.PAUSED), ("", Health.WELL)])
def test_a_restart_remembers(ended: str, health: Health) -> None:
    breaker = restored([DOWN if how == "x" else "" for how in ended], 1000, 50.0)
    assert breaker.health is health
    if health is Health.PAUSED:
        assert not breaker.admits(50.0) and breaker.admits(50.0 + FIRST_PROBE)
        breaker.ended(999, "", 1001, 51.0)
        assert breaker.health is Health.PAUSED


def test_it_says_why() -> None:
    breaker = told("....xxxxxx..xxxxxxxxx")
    assert breaker.words() == f"15 of the last 20 attempts ended with {DOWN}"
    breaker.ended(100, "provider: PROVIDER_ERROR", 101, 200.0)
    assert breaker.words().endswith("with sandbox: SANDBOX_FAILED or provider: PROVIDER_ERROR")


@pytest.mark.parametrize(
    ("kind", "retried", "told"),
    [
        (None, RETRIED, ""),
        (FailureKind.AGENT, RETRIED, ""),
        (FailureKind.JUDGE, RETRIED, ""),
        (FailureKind.SANDBOX, RETRIED, "sandbox: CODE"),
        (FailureKind.PROVIDER, RETRIED, "provider: CODE"),
        (FailureKind.INFRASTRUCTURE, RETRIED, "infrastructure: CODE"),
        (FailureKind.SANDBOX, frozenset({FailureKind.PROVIDER}), None),
        (FailureKind.DEADLINE, RETRIED, None),
        (FailureKind.WORKER, RETRIED, None),
        (FailureKind.CANCELLED, RETRIED, None),
    ],
)
def test_what_the_end_of_an_attempt_tells(kind: FailureKind | None, retried: frozenset[FailureKind], told: str) -> None:
    assert tells(kind, "CODE", retried) == told
