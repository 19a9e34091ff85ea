"""How long a provider asks us to wait, from the many notations of its headers. All results are seconds from `now`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

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
