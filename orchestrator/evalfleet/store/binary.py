"""Fields of Postgres' binary COPY format: a 32-bit length, then the value in network order. PURE."""

from __future__ import annotations

import math
import re
import struct
from enum import StrEnum
from functools import cache

#: What stands before and after the tuples of one COPY.
HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"

NULL = b"\xff\xff\xff\xff"
TRUE = b"\0\0\0\1\1"
FALSE = b"\0\0\0\1\0"

_POSTGRES_EPOCH = 946_684_800  # 2000-01-01 in seconds since 1970
_LENGTH = struct.Struct(">i")
_BIG = struct.Struct(">iq")
_DOUBLE = struct.Struct(">id")
_SURROGATES = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


def raw(value: bytes | None) -> bytes:
    """A bytea field, or the bytes of any type in its own binary form."""
    return NULL if value is None else _LENGTH.pack(len(value)) + value


def plain(value: str | None) -> bytes:
    """A text or enum field whose value is known to hold neither NUL nor lone surrogates."""
    if value is None:
        return NULL
    data = value.encode()
    return _LENGTH.pack(len(data)) + data


@cache
def label(value: StrEnum | None) -> bytes:
    """An enum field. There are few labels, so each is encoded once."""
    return plain(value)


def big(value: int) -> bytes:
    return _BIG.pack(8, value)


def double(value: float) -> bytes:
    return _DOUBLE.pack(8, value)


def boolean(value: bool | None) -> bytes:
    if value is None:
        return NULL
    return TRUE if value else FALSE


def microseconds(seconds: float) -> int:
    """A timestamptz in its binary form, from seconds since 1970."""
    return round((seconds - _POSTGRES_EPOCH) * 1_000_000)


def sanitise(value: str) -> str:
    """`value` as Postgres can hold it: NUL and lone surrogates become U+FFFD."""
    return _SURROGATES.sub(_REPLACEMENT, value).replace("\0", _REPLACEMENT)


def finite(value: float) -> float | None:
    """`value` as a finite double, None when it is none."""
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def exact(value: float) -> str:
    """A number's exact text, of any size."""
    return hex(value) if isinstance(value, int) else repr(value)


class Cells:
    """The fields of one tuple whose values may not fit: says afterwards what had to be changed.

    `sanitised` is set when a text was; `marks` names numbers that no column can hold, with their exact text.
    """

    __slots__ = ("marks", "sanitised")

    def __init__(self) -> None:
        self.sanitised = False
        self.marks = ""

    def text(self, value: str | None, limit: int = 4096) -> bytes:
        """The first `limit` characters of a text, sanitised when it must be."""
        if value is None:
            return NULL
        if len(value) > limit:
            value = value[:limit]
        try:
            data = value.encode()
        except UnicodeEncodeError:
            data = b"\0"
        if b"\0" in data:
            self.sanitised = True
            data = sanitise(value).encode()
        return _LENGTH.pack(len(data)) + data

    def count(self, name: str, value: int | None) -> bytes:
        """A bigint; one that does not fit is NULL and marked with its exact digits."""
        if value is None:
            return NULL
        if -(1 << 63) <= value < 1 << 63:
            return _BIG.pack(8, value)
        return self._mark(name, exact(value))

    def number(self, name: str, value: float | None) -> bytes:
        """A double; one that is not finite is NULL and marked, so that no average is poisoned."""
        if value is None:
            return NULL
        number = finite(value)
        return self._mark(name, exact(value)) if number is None else _DOUBLE.pack(8, number)

    def marked(self) -> bytes:
        """The field `number_marks`: `name=value` pairs, NULL when every number fitted."""
        return plain(self.marks or None)

    def _mark(self, name: str, value: str) -> bytes:
        self.marks += f"{';' if self.marks else ''}{name}={value}"
        return NULL
