"""How figures are written for people: an unknown is a dash, never 0, and nothing depends on a locale."""

from __future__ import annotations

from datetime import UTC, datetime

UNKNOWN = "–"


def percent(share: float | None) -> str:
    """A share as a percentage with one decimal; never rounded to 100 % or 0 % that it is not."""
    if share is None:
        return UNKNOWN
    text = f"{share * 100:.1f}"
    if text == "100.0" and share < 1:
        return "99.9 %"
    if text == "0.0" and share > 0:
        return "0.1 %"
    return f"{text} %"


def money(usd: float | None, unknown: int = 0) -> str:
    """US dollars; `unknown` attempts without a figure make it a lower bound, or a dash when nothing is known."""
    if usd is None or (unknown and not usd):
        return UNKNOWN
    text = f"${usd:.2f}" if usd >= 1 or not usd else f"${usd:.4f}"
    return f"≥ {text}" if unknown else text


def count(number: int) -> str:
    """A count with thin groups of three digits."""
    return f"{number:,}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun: `1 case`, `2 cases`."""
    return f"{count(number)} {noun if number == 1 else plural or noun + 's'}"


def part_of(part: int, whole: int, noun: str) -> str:
    """A part with the whole it is of: `1 of 3 cases`."""
    return f"{count(part)} of {counted(whole, noun)}"


def seconds(value: float | None) -> str:
    """A duration in the two largest units that matter."""
    if value is None:
        return UNKNOWN
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m"


def instant(at: float) -> str:
    """A moment, given in seconds since the epoch, in UTC as ISO 8601 without a zone."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
