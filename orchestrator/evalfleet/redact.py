"""What may leave an attempt as text: secrets replaced, sizes bounded. Never applied to evidence. PURE."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

#: Characters kept of one failure message, one diagnostic line and one traceback.
MESSAGE_LIMIT = 2_000
DIAGNOSTIC_LIMIT = 16_000

#: A shorter value is no secret worth the name, and replacing it would shred every text it occurs in.
SHORTEST_SECRET = 4

REPLACEMENT = "[secret]"


def redact(text: str, secrets: Iterable[str]) -> str:
    """`text` without the values of `secrets`, as they are and as they stand in a URL."""
    forms = {form for value in secrets if len(value) >= SHORTEST_SECRET for form in _forms(value)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, REPLACEMENT)
    return text


def shorten(text: str, limit: int) -> str:
    """`text` in at most about `limit` characters: its head and its tail, saying how much lies between."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    head = limit - tail
    return f"{text[:head]}\n… {len(text) - limit} characters left out …\n{text[-tail:]}"


def safe(text: str, secrets: Iterable[str], limit: int = MESSAGE_LIMIT) -> str:
    """`text` fit to be shown: redacted first, so that no cut leaves half a secret, then shortened."""
    return shorten(redact(text, secrets), limit)


def _forms(value: str) -> tuple[str, ...]:
    return (value, quote(value, safe="", errors="replace"))
