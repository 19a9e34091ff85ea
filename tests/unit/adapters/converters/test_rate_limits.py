"""How long to wait: RL-01 and RL-02 row by row."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalfleet.model.model_call import RateReading
from evalfleet_adapters.converters.rate_limits import HORIZON, rate_reading, reset_in, retry_after, wait_asked

RL_01 = datetime(2026, 1, 15, 10, 30, tzinfo=UTC).timestamp()
RL_02 = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("6m0s", 360),
        ("1h2m3.5s", 3723.5),
        ("520ms", 0.52),
        ("1s", 1),
        ("60", 60),
        ("2026-01-15T10:31:00Z", 60),
        ("1768473060", 60),
        ("1768473060000", 60),
        ("", None),
        ("later", None),
        ("-5", None),
        ("nan", None),
        ("1e3", None),
        ("6m0", None),
        ("٦", None),
        ("1d", 86_400),
        ("12µs", 12e-6),
        ("2026-01-15T10:29:00Z", 0),
        ("2026-01-15T10:31:00", 60),
        ("Thu, 15 Jan 2026 10:31:00 GMT", 60),
        ("9" * 400, HORIZON),
        ("9999-12-31T23:59:59Z", HORIZON),
    ],
)
def test_rl_01_reset_in_many_notations(value: str, seconds: float | None) -> None:
    assert reset_in(value, RL_01) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "120"}, 120),
        ({"retry-after": "Thu, 01 Jan 2026 00:02:00 GMT"}, 120),
        ({"retry-after": "Wed, 31 Dec 2025 23:59:00 GMT"}, 0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "1500", "retry-after": "60"}, 1.5),
        ({"retry-after-ms": "-1", "retry-after": "60"}, 60),
        ({"retry-after": "999999999"}, HORIZON),
        ({"retry-after": ""}, None),
        ({"retry-after": "Thu, 99 Jan 2026 00:02:00 GMT"}, None),
        ({}, None),
    ],
)
def test_rl_02_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, RL_02) == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        (
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "8.64s",
                "x-ratelimit-remaining-tokens": "1000",
                "x-ratelimit-reset-tokens": "6m0s",
            },
            8.64,
        ),
        ({"x-ratelimit-reset-requests": "2s", "x-ratelimit-reset-tokens": "3s"}, 3),
        ({"anthropic-ratelimit-tokens-reset": "2026-01-01T00:00:07Z"}, 7),
        ({"ratelimit-reset": "4", "ratelimit-remaining": "0"}, 4),
        ({"retry-after": "1", "x-ratelimit-reset-tokens": "6m0s"}, 1),
        ({"x-ratelimit-reset-tokens": "later"}, None),
        ({"x-preset": "4"}, None),
    ],
)
def test_the_wait_asked_prefers_retry_after_and_then_what_is_exhausted(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert wait_asked(headers, RL_02) == seconds


OPENAI = {
    "x-ratelimit-limit-requests": "3000",
    "x-ratelimit-remaining-requests": "2999",
    "x-ratelimit-reset-requests": "20ms",
    "x-ratelimit-limit-tokens": "2000000",
    "x-ratelimit-remaining-tokens": "1999000",
    "x-ratelimit-reset-tokens": "30ms",
}
ANTHROPIC = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "0",
    "anthropic-ratelimit-requests-reset": "2026-01-01T00:00:07Z",
    "anthropic-ratelimit-input-tokens-limit": "40000",
    "anthropic-ratelimit-input-tokens-remaining": "39000",
    "anthropic-ratelimit-input-tokens-reset": "2026-01-01T00:00:02Z",
}


@pytest.mark.parametrize(
    ("headers", "requests", "tokens"),
    [
        (OPENAI, (3000.0, 2999.0, 0.02), (2_000_000.0, 1_999_000.0, 0.03)),
        (ANTHROPIC, (50.0, 0.0, 7.0), (40_000.0, 39_000.0, 2.0)),
        # of a day, as its reset shows: only what is left counts
        ({**OPENAI, "x-ratelimit-reset-requests": "8h"}, (None, 2999.0, 28_800.0), (2_000_000.0, 1_999_000.0, 0.03)),
        # of a window that nobody names
        ({"x-ratelimit-limit": "100", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "9"}, (None, 0.0, 9.0), None),
        ({"ratelimit-limit": "100", "ratelimit-remaining": "3"}, (None, 3.0, None), None),
        ({"x-ratelimit-limit-requests": "0", "x-ratelimit-remaining-requests": "5"}, (None, 5.0, None), None),
        ({"x-ratelimit-limit-requests": "many", "x-ratelimit-remaining-requests": "-1"}, None, None),
        ({"x-ratelimit-reset-requests": "1s"}, None, None),
        ({}, None, None),
    ],
)
def test_what_headers_say_of_the_limits(
    headers: dict[str, str], requests: tuple[float | None, ...] | None, tokens: tuple[float | None, ...] | None
) -> None:
    names = ("per_minute", "left", "reset")
    said = {f"requests_{name}": value for name, value in zip(names, requests or (), strict=False)}
    said |= {f"tokens_{name}": value for name, value in zip(names, tokens or (), strict=False)}
    assert rate_reading(headers, RL_02) == (RateReading(**said) if said else None)


@given(st.dictionaries(st.sampled_from(sorted({*OPENAI, *ANTHROPIC, "ratelimit-limit"})), st.text()))
def test_no_headers_of_a_rate_raise(headers: dict[str, str]) -> None:
    reading = rate_reading(headers, RL_02)
    assert reading is None or (reading.requests_reset or 0.0) >= 0


@given(st.text(), st.floats(0, 4e9))
def test_no_header_raises_or_asks_for_a_negative_wait(value: str, now: float) -> None:
    for seconds in (reset_in(value, now), retry_after({"retry-after": value, "retry-after-ms": value}, now)):
        assert seconds is None or 0 <= seconds <= HORIZON
