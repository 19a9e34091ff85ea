"""Plain columns for a terminal: as wide as their widest cell, wide characters counted as two."""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import combining, east_asian_width


def width(text: str) -> int:
    """How many columns a terminal needs for `text`."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def pad(text: str, columns: int) -> str:
    """`text` filled with spaces to `columns`."""
    return text + " " * (columns - width(text))


def columns(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Header and rows as aligned lines without trailing space."""
    lines = [headers, *rows]
    widths = [max(width(line[index]) for line in lines) for index in range(len(headers))]
    return ["  ".join(pad(cell, size) for cell, size in zip(line, widths, strict=True)).rstrip() for line in lines]
