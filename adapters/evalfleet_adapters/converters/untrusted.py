"""Reading JSON that somebody else made: each function gives the value in the asked shape, or nothing."""

from __future__ import annotations

import json
import sys
from typing import Any, cast


def mapping(value: Any) -> dict[str, Any]:
    """`value` when it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """`value` when it is an array, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def text(value: Any) -> str | None:
    """`value` when it is a string."""
    return value if isinstance(value, str) else None


def count(value: Any) -> int | None:
    """`value` as a count: a whole number that is not negative; True is not 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if value >= 0 and value == value // 1 and value != float("inf") else None


def amount(value: Any) -> float | None:
    """`value` as a finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= sys.float_info.max:
        return None
    return float(value)


#: What a record can hold of somebody else's JSON: levels of nesting, and bits of an integer.
_DEPTH, _BITS = 100, 1024


def recordable(value: Any) -> bool:
    """Whether a JSON value is one that a record can hold: not nested without end, no integer of hundreds of digits."""
    level = [value]
    for _ in range(_DEPTH):
        if any(isinstance(item, int) and item.bit_length() > _BITS for item in level):
            return False
        level = [inner for item in level for inner in (*mapping(item).values(), *sequence(item))]
        if not level:
            return True
    return False


def as_text(value: Any) -> str:
    """The JSON text of a parsed value, however deep it nests."""
    try:
        return json.dumps(value)
    except RecursionError:
        return f"a JSON {type(value).__name__} that nests too deep to show"
