"""CSV as it is met: quoted cells over many lines and of any size, and errors that name where a quote was opened.

The standard reader refuses cells over 128 KiB by a process-wide limit, loses line numbers, and turns an
unclosed quote into one giant cell; so records are split here. Works on bytes of any encoding in which the
delimiter, the quote and the newline are single ASCII bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

#: An open quote that runs on for longer is taken for an unclosed one.
MAX_RECORD_BYTES = 64 << 20

_IN_QUOTES = re.compile(rb'(?:[^"]++|"")*+')
_QUOTED = re.compile(r'"((?:[^"]++|"")*+)"')


@dataclass(frozen=True, slots=True)
class Span:
    """One record: its bytes with the line end, where it begins and ends, the line it begins on and the next one.

    `unclosed` is the line on which a quote was opened that nothing closes.
    """

    position: int
    line: int
    raw: bytes
    next_line: int
    unclosed: int | None = None

    @property
    def end(self) -> int:
        return self.position + len(self.raw)


class CellFault(ValueError):
    """A record can't be split into cells. `column` counts from 0, `line` is relative to the record's first."""

    def __init__(self, message: str, column: int, line: int) -> None:
        self.column = column
        self.line = line
        super().__init__(message)


def spans(stream: BinaryIO, delimiter: str, line: int) -> Iterator[Span]:
    """Every record from the stream's place on; blank lines are skipped. `line` numbers the first one."""
    separator = delimiter.encode("ascii")
    position = stream.tell()
    while raw := stream.readline():
        first, parts, size = line, [raw], len(raw)
        inside = _ends_inside(raw, separator, inside=False)
        line += 1
        while inside and size <= MAX_RECORD_BYTES and (more := stream.readline()):
            parts.append(more)
            size += len(more)
            inside = _ends_inside(more, separator, inside=True)
            line += 1
        raw = b"".join(parts)
        if inside:
            yield Span(position, first, raw, line, unclosed=_opening_line(raw, separator, first))
            return
        if raw.strip(b"\r\n"):
            yield Span(position, first, raw, line)
        position += size


def cells(text: str, delimiter: str) -> list[str]:
    """The cells of one record. Raises CellFault for text after a closing quote and for a bare carriage return."""
    text = text.removesuffix("\n").removesuffix("\r")
    result: list[str] = []
    index = 0
    while True:
        if text[index : index + 1] == '"' and (match := _QUOTED.match(text, index)):
            cell, end = match[1].replace('""', '"'), match.end()
            if end < len(text) and text[end] != delimiter:
                line = text.count("\n", 0, index)
                raise CellFault("text after the closing quote of a cell", len(result), line)
        else:
            end = text.find(delimiter, index)
            end = len(text) if end < 0 else end
            cell = text[index:end]
            if "\r" in cell:
                raise CellFault("a carriage return outside quotes; quote the cell", len(result), 0)
        result.append(cell)
        if end >= len(text):
            return result
        index = end + 1


def header_fault(names: list[str]) -> str | None:
    """What is wrong with the names of the columns, or None."""
    for index, name in enumerate(names):
        if not name.strip():
            return f"column {index + 1} has no name"
        if name in names[:index]:
            return f"columns {names.index(name) + 1} and {index + 1} are both named {name!r}"
    return None


def _ends_inside(line: bytes, separator: bytes, *, inside: bool) -> bool:
    """Whether a quoted cell is still open at the end of `line`, given whether one was open at its start."""
    index = 0
    if not inside and line.startswith(b'"'):
        inside, index = True, 1
    while True:
        if inside:
            match = _IN_QUOTES.match(line, index)
            index = match.end() if match else index
            if index >= len(line):
                return True
            index += 1
        index = line.find(separator, index) + 1
        if index == 0:
            return False
        inside = line[index : index + 1] == b'"'
        index += inside


def _opening_line(raw: bytes, separator: bytes, first: int) -> int:
    """The line of the quote that is open at the end of `raw`."""
    opened, inside = first, False
    for number, line in enumerate(raw.split(b"\n"), start=first):
        still = _ends_inside(line, separator, inside=inside)
        if still and not (inside and _IN_QUOTES.fullmatch(line)):
            opened = number
        inside = still
    return opened
