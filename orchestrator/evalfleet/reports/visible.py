"""Text that others wrote, made safe to show: control characters become visible escapes, big texts are cut."""

from __future__ import annotations

import json
import re
from typing import Any

from evalfleet.model.events import MISSING
from evalfleet.reports.figures import count

# C0 and C1 controls, DEL, zero-width and bidi formatting, line and paragraph separators, surrogates, noncharacters:
# what could drive a terminal, reorder a line, or is illegal in XML 1.0
_UNSAFE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(1, 17))
    + "\U000e0000-\U000e007f"
)
_UNSAFE_KEEPING_LINES = re.compile(f"[{_UNSAFE}]")
_UNSAFE_IN_LINE = re.compile(f"[\t\n{_UNSAFE}]")
_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def visible(text: str) -> str:
    """`text` with tabs and line breaks kept and every other control or invisible character shown as an escape."""
    return _UNSAFE_KEEPING_LINES.sub(_escape, text.replace("\r\n", "\n"))


def visible_line(text: str) -> str:
    """`text` on one line: as `visible`, with tabs and line breaks shown as escapes too."""
    return _UNSAFE_IN_LINE.sub(_escape, text)


def cut(text: str, limit: int | None) -> str:
    """The first `limit` characters with a note of how many more there are; everything when `limit` is None.

    A note that would be as long as what it stands for is not worth it: then everything stays, too.
    """
    if limit is None:
        return text
    note = f"… [{count(len(text) - limit)} more characters]"
    return text if len(text) <= limit + len(note) else text[:limit] + note


def shown(value: Any, limit: int | None = None) -> str:
    """A JSON value on one line, cut for display; text stays readable, nothing unsafe stays raw."""
    if value is MISSING:
        return "(nothing)"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return visible_line(cut(text, limit))


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if character in _NAMED:
        return _NAMED[character]
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
