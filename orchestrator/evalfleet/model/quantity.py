"""Durations and sizes as people write them: `20m`, `1h30m`, `5s`, `1GiB`."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

_DURATION_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION_PATTERN = "".join(rf"(?:([0-9]+(?:\.[0-9]+)?){unit})?" for unit in _DURATION_UNITS)
_DURATION = re.compile(_DURATION_PATTERN)
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]i?B|B)")
_SIZE_UNITS = {"B": 1} | {
    f"{letter}{infix}B": base ** (power + 1)
    for power, letter in enumerate("KMGT")
    for infix, base in (("", 1000), ("i", 1024))
}


def parse_duration(value: Any) -> float:
    """Seconds from a number of seconds or a text like `1h30m`. Raises ValueError unless positive and finite."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = _finite(value)
    elif isinstance(value, str) and value and (match := _DURATION.fullmatch(value)):
        parts = zip(match.groups(), _DURATION_UNITS.values(), strict=True)
        seconds = sum(float(number) * unit for number, unit in parts if number is not None)
    else:
        raise ValueError("is not a duration: write seconds or a text like 20m, 5s, 1h30m")
    if not math.isfinite(seconds):
        raise ValueError("must be a finite number of seconds")
    if seconds <= 0:
        raise ValueError("must be longer than nothing")
    return seconds


def parse_size(value: Any) -> int:
    """Bytes from a whole number of bytes or a text like `1GiB` or `500MB`. Raises ValueError unless positive."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        size = _bytes(match[1], match[2])
    else:
        raise ValueError("is not a size: write bytes or a text like 1GiB, 500MB")
    if size <= 0:
        raise ValueError("must be more than 0 bytes")
    return size


def _bytes(number: str, unit: str) -> int:
    exact = float(number) * _SIZE_UNITS[unit]
    if not math.isfinite(exact):
        raise ValueError("must be a finite number of bytes")
    return int(exact)


def _finite(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


#: Seconds; a number or a text like `20m`.
Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": f"^(?=.){_DURATION_PATTERN}$"},
            ],
            "description": "Seconds, or a text like 20m, 5s, 1h30m.",
        }
    ),
]

#: Bytes; a whole number or a text like `1GiB`.
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?([KMGT]i?B|B)$"},
            ],
            "description": "Bytes, or a text like 1GiB, 500MB.",
        }
    ),
]
