"""The lines that a patch adds and removes, without the lines around them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

_HUNK = re.compile(rb"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_SIDES = {b"+": "added", b"-": "removed"}


def changed_text(patch: bytes) -> Iterator[tuple[str, str]]:
    """Each run of lines that stand together, as `added` or `removed` with its text. Bytes that are no UTF-8 are
    replaced.
    """
    for sign, lines in groupby(_signed(patch), key=lambda line: line[:1]):
        if sign in _SIDES:
            yield _SIDES[sign], b"".join(line[1:] for line in lines).decode("utf-8", "replace")


def _signed(patch: bytes) -> Iterator[bytes]:
    """The lines of all hunks, which are told from headers by the numbers that each hunk begins with."""
    removed = added = 0
    for line in patch.split(b"\n"):  # a carriage return is content
        if removed <= 0 and added <= 0:
            if (hunk := _HUNK.match(line)) is not None:
                removed, added = (int(count) if count else 1 for count in hunk.groups())
                yield b"@"
            continue
        sign = line[:1]
        removed -= sign in (b"-", b" ")
        added -= sign in (b"+", b" ")
        if sign != b"\\":
            yield line + b"\n"
