"""Reading binary COPY tuples apart, as Postgres would."""

from __future__ import annotations

import struct
from collections.abc import Sequence

Fields = dict[str, bytes | None]


def parse(data: bytes, names: Sequence[str], count: int | None = None) -> Fields:
    """The fields of one tuple by name; the first `count` of them when the tuple is not finished yet."""
    found, end = _parse(data, 0, names, count)
    assert end == len(data), "bytes after the last field"
    return found


def parse_all(data: bytes, names: Sequence[str]) -> list[Fields]:
    """Every tuple of concatenated ones."""
    found: list[Fields] = []
    offset = 0
    while offset < len(data):
        fields, offset = _parse(data, offset, names, None)
        found.append(fields)
    return found


def _parse(data: bytes, offset: int, names: Sequence[str], count: int | None) -> tuple[Fields, int]:
    (declared,) = struct.unpack_from(">h", data, offset)
    assert declared == len(names)
    found: Fields = {}
    offset += 2
    for name in names[:count]:
        (length,) = struct.unpack_from(">i", data, offset)
        offset += 4
        found[name] = None if length < 0 else data[offset : offset + length]
        offset += max(length, 0)
    return found, offset
