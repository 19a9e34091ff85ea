"""What may be a part of an eval id. Pure."""

from __future__ import annotations

import unicodedata

#: A part is used in file names and artifact keys; most file systems end at 255 bytes.
MAX_BYTES = 200


def part_fault(part: str) -> str | None:
    """Why `part` can't be one path segment of an eval id, or None when it can."""
    if not part.strip():
        return "is empty"
    if part in (".", ".."):
        return "is a path of its own"
    if "/" in part or "\\" in part:
        return "holds a slash"
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in part):
        return "holds a control character or half of a surrogate pair"
    if (size := len(part.encode())) > MAX_BYTES:
        return f"is {size} bytes long, more than {MAX_BYTES}"
    return None


def shown(part: str) -> str:
    """`part` for a message: quoted, escaped, cut to a readable length."""
    return repr(part) if len(part) <= 60 else f"{part[:40]!r}… ({len(part)} characters)"
