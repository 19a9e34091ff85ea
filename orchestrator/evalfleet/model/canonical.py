"""Canonical JSON: one byte string per value, whatever the key order or the platform.

Object keys are sorted by code point, there is no white space, text is ASCII with `\\uXXXX` escapes (so lone
surrogates and NUL survive), integers are exact at any size, floats print as Python's shortest repr, and the
non-finite ones as NaN, Infinity and -Infinity. Test vectors: `tests/data/canonical_json.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

from evalfleet.model.ids import sha256

_TEXT = frozenset({str})
_SCALARS = frozenset({str, int, float, bool, type(None)})
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def canonical_bytes(value: Any) -> bytes:
    """The canonical JSON of `value` as ASCII bytes.

    Raises TypeError for a value that is not JSON, or an object whose keys are not strings.
    """
    _check_keys(value)
    return _ENCODER.encode(value).encode("ascii")


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON of `value`, in hexadecimal."""
    return sha256(canonical_bytes(value))


def parse_exact(data: bytes | str) -> Any:
    """Read JSON back exactly: big integers stay integers, NaN and Infinity are numbers."""
    return json.loads(data)


def _check_keys(value: Any) -> None:
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            items = cast("dict[Any, Any]", item)
            if not _TEXT.issuperset(map(type, items)):
                _check_text(items)
            stack.extend([inner for inner in items.values() if type(inner) not in _SCALARS])
        elif isinstance(item, (list, tuple)):
            stack.extend([inner for inner in cast("list[Any]", item) if type(inner) not in _SCALARS])


def _check_text(keys: Iterable[Any]) -> None:
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"object key {key!r} is {type(key).__name__}, not a string")
