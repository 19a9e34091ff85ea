"""How long a provider asks us to wait, and what it says of its limits, from the many notations of its headers.

All times are seconds from `now`.

| Headers | Limits, what is left of them, and their reset |
|---|---|
| `x-ratelimit-limit-requests`, `-remaining-requests`, `-reset-requests`; `…-tokens` | OpenAI and those that follow it |
| `anthropic-ratelimit-requests-limit`, `-remaining`, `-reset`; `…-tokens-…`, or else `…-input-tokens-…` | Anthropic |
| `x-ratelimit-limit`, `-remaining`, `-reset`; `ratelimit-limit`, … | others: requests of a window that nobody names |

A limit counts as one a minute only where the notation says so or the window is known by its reset; what is left counts
wherever it stands. A limit of 0 or below is none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from evalfleet.model.model_call import RateReading

#: Nobody is waited for longer than a day, whatever a header says.
HORIZON = 86_400.0

_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_DURATION = re.compile(r"((?:[0-9]+(?:\.[0-9]+)?)(?:ns|us|µs|ms|s|m|h|d))+")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h|d)")
_UNIT = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_EPOCH_SECONDS, _EPOCH_MILLISECONDS = 1e9, 1e12
_RESET_HEADER = re.compile(r"(?:x-)?(?:[a-z]+-)?ratelimit-(?:reset(?:-[a-z-]+)?|[a-z-]+-reset)")


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The wait asked for by `retry-after-ms` or else `retry-after`; None when neither can be read.

    `headers` has lower-case names; `now` is seconds since the epoch. A date in the past is 0; a negative number
    is not a wait.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    value = headers.get("retry-after", "").strip()
    seconds = _number(value)
    if seconds is not None:
        return _bounded(seconds)
    moment = _date(value)
    return None if moment is None else _bounded(moment - now)


def reset_in(value: str, now: float) -> float | None:
    """Seconds until the moment in a rate-limit reset header; None when it can't be read.

    Numbers up to 10⁹ are seconds to go, larger ones seconds since the epoch, from 10¹² on milliseconds.
    """
    value = value.strip()
    number = _number(value)
    if number is not None:
        if number >= _EPOCH_MILLISECONDS:
            number = number / 1000 - now
        elif number > _EPOCH_SECONDS:
            number -= now
        return _bounded(number)
    if _DURATION.fullmatch(value):
        return _bounded(sum(float(count) * _UNIT[unit] for count, unit in _PART.findall(value)))
    moment = _date(value)
    return None if moment is None else _bounded(moment - now)


def wait_asked(headers: Mapping[str, str], now: float) -> float | None:
    """How long a refused request should wait: Retry-After, else the latest reset among the exhausted limits.

    When no header says which limit is exhausted, the latest reset of all; None when nothing can be read.
    """
    asked = retry_after(headers, now)
    if asked is not None:
        return asked
    exhausted: list[float] = []
    known: list[float] = []
    for name, value in headers.items():
        seconds = reset_in(value, now) if _RESET_HEADER.fullmatch(name) else None
        if seconds is None:
            continue
        known.append(seconds)
        if _number(headers.get(name.replace("reset", "remaining"), "")) == 0:
            exhausted.append(seconds)
    return max(exhausted or known, default=None)


def rate_reading(headers: Mapping[str, str], now: float) -> RateReading | None:
    """What the headers say of the account's limits; None when they say nothing that can be read.

    `headers` finds names in lower case; `now` is seconds since the epoch.
    """
    requests = tokens = _NOTHING
    for pattern in _NOTATIONS:
        requests = requests.else_(_limit(headers, pattern, "requests", now))
        tokens = tokens.else_(_limit(headers, pattern, "tokens", now))
    tokens = tokens.else_(_limit(headers, "anthropic-ratelimit-{kind}-{what}", "input-tokens", now))
    for prefix in ("x-ratelimit-", "ratelimit-"):
        requests = requests.else_(_plain_limit(headers, prefix, now))
    if (requests.per_minute, requests.left, tokens.per_minute, tokens.left) == (None, None, None, None):
        return None
    return RateReading(
        requests_per_minute=requests.per_minute,
        requests_left=requests.left,
        requests_reset=requests.reset,
        tokens_per_minute=tokens.per_minute,
        tokens_left=tokens.left,
        tokens_reset=tokens.reset,
    )


@dataclass(frozen=True, slots=True)
class _Limit:
    per_minute: float | None = None
    left: float | None = None
    reset: float | None = None

    def else_(self, other: _Limit) -> _Limit:
        return other if self.per_minute is None and self.left is None else self


_NOTHING = _Limit()
_NOTATIONS = ("x-ratelimit-{what}-{kind}", "anthropic-ratelimit-{kind}-{what}")
#: Resets, in seconds, by which a window of a minute can be told: no longer one, and rarely a shorter one.
_MINUTE = 60.0


def _limit(headers: Mapping[str, str], pattern: str, kind: str, now: float) -> _Limit:
    """A limit a minute in one notation. One whose reset lies beyond a minute is of a longer window: only what is left
    of it counts."""
    limit, left, reset = (headers.get(pattern.format(what=what, kind=kind), "") for what in _WHATS)
    per_minute, seconds = _positive(limit), reset_in(reset, now) if reset else None
    if seconds is not None and seconds > _MINUTE + 1:
        per_minute = None
    return _Limit(per_minute, _number(left), seconds)


def _plain_limit(headers: Mapping[str, str], prefix: str, now: float) -> _Limit:
    """Requests of an unnamed window: nothing tells how long it is, but what is left of it is left until its reset."""
    limit, left, reset = (headers.get(prefix + what, "") for what in _WHATS)
    if _number(limit) is None or _number(left) is None:
        return _NOTHING
    return _Limit(None, _number(left), reset_in(reset, now) if reset else None)


_WHATS = ("limit", "remaining", "reset")


def _positive(text: str) -> float | None:
    number = _number(text)
    return number if number is not None and number > 0 else None


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if _NUMBER.fullmatch(text) else None


def _date(text: str) -> float | None:
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = parse(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            continue
    return None


def _bounded(seconds: float) -> float:
    return 0.0 if math.isnan(seconds) else min(max(seconds, 0.0), HORIZON)
