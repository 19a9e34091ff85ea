"""What may be kept or shown as text: secrets replaced, sizes bounded. PURE.

Nothing is judged by what comes out of here: assertions and judges see what the agent said, and only what is kept of it
goes through a `Redactor`.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import quote, quote_plus

#: Characters kept of one failure message, one diagnostic line and one traceback.
MESSAGE_LIMIT = 2_000
DIAGNOSTIC_LIMIT = 16_000

#: A shorter value is no secret worth the name, and replacing it would shred every text it occurs in.
SHORTEST_SECRET = 6

REPLACEMENT = "[secret]"

#: So much of a secret's beginning before a cut, or of its end behind one, is replaced too.
_PART = 8
_CUT_BEFORE, _CUT_BEHIND = ("…", "..."), ("…", "...", "…\n")
_SHORTENED = "\n…"

Pattern: TypeAlias = re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Redactor:
    """Replaces the `forms` of secrets, the longest first, and what `patterns` find. False when it knows nothing."""

    forms: tuple[str, ...] = field(default=(), repr=False)
    patterns: tuple[Pattern, ...] = ()

    @classmethod
    def of(cls, secrets: Iterable[str], patterns: Iterable[Pattern] = ()) -> Redactor:
        """For values as they are, and as they stand in JSON, URLs, HTML, `repr` and base64 of any alignment."""
        values = {text for value in secrets for text in (value, value.strip()) if len(text) >= SHORTEST_SECRET}
        forms = {form for value in values for form in _forms(value)}
        return cls(_longest_first(forms), tuple(patterns))

    def also(self, secret: str) -> Redactor:
        """One that knows this secret too."""
        more = {*Redactor.of((secret,)).forms} - {*self.forms}
        return Redactor(_longest_first({*self.forms, *more}), self.patterns) if more else self

    def __bool__(self) -> bool:
        return bool(self.forms or self.patterns)

    def text(self, text: str) -> str:
        """`text` without them; also without the part of one that a cut has left at an end or at an elision mark."""
        for form in self.forms:
            if form[:_PART] in text:
                text = _without_cut_end(text.replace(form, REPLACEMENT), form)
            if "…" in text and form[-_PART:] in text:
                text = _without_cut_start(text, form)
        for pattern in self.patterns:
            text = pattern.sub(REPLACEMENT, text)
        return text

    def data(self, data: bytes) -> bytes:
        """The same for bytes, which need not be text: no cuts, no patterns unless it is text."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            for form in self.forms:
                data = data.replace(form.encode("utf-8", "surrogatepass"), REPLACEMENT.encode())
            return data
        kept = self.text(text)
        return data if kept == text else kept.encode()

    def safe(self, text: str, limit: int = MESSAGE_LIMIT) -> str:
        """`text` fit to be shown: redacted first, so that no cut leaves half a secret, then shortened."""
        return shorten(self.text(text), limit)


def shorten(text: str, limit: int) -> str:
    """`text` in at most about `limit` characters: its head and its tail, saying how much lies between."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    head = limit - tail
    return f"{text[:head]}\n… {len(text) - limit} characters left out …\n{text[-tail:]}"


def _longest_first(forms: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def _without_cut_end(text: str, form: str) -> str:
    """Without a beginning of the form at the end of the text, or right before an elision mark."""
    if len(form) < 2 * _PART:
        return text
    at = text.find(form[:_PART])
    while at >= 0:
        end = at + _common(form, text[at : at + len(form)])
        if end == len(text) or text.startswith((*_CUT_BEFORE, _SHORTENED), end):
            text = f"{text[:at]}{REPLACEMENT}{text[end:]}"
        at = text.find(form[:_PART], at + 1)
    return text


def _without_cut_start(text: str, form: str) -> str:
    """Without an end of the form right behind an elision mark."""
    if len(form) < 2 * _PART:
        return text
    at = text.find(form[-_PART:])
    while at >= 0:
        end = at + _PART
        start = end - _common(form[::-1], text[max(0, end - len(form)) : end][::-1])
        if text[:start].endswith(_CUT_BEHIND):
            text = f"{text[:start]}{REPLACEMENT}{text[end:]}"
            end = start + len(REPLACEMENT)  # it may hold what is looked for
        at = text.find(form[-_PART:], end)
    return text


def _common(one: str, other: str) -> int:
    return next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(other))


def _forms(value: str) -> Iterator[str]:
    lines = value.splitlines()
    for text in (value, *(lines if len(lines) > 1 else ())):  # a key of many lines is shown line by line
        if len(text) < SHORTEST_SECRET:
            continue
        yield from (text, *(quote(text, safe=safe, errors="replace") for safe in ("", "/")))
        yield quote_plus(text, errors="replace")
        yield from (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1])
        yield html.escape(text)
    yield from _in_base64(value.encode("utf-8", "surrogatepass"))


def _in_base64(value: bytes) -> Iterator[str]:
    """What every base64 of something that holds the value holds too, at each of the three places it may begin."""
    for before in range(3):
        text = base64.b64encode(bytes(before) + value).decode()
        end = (before + len(value)) * 8 // 6  # a character further on holds bits of what follows
        held = text[(0, 2, 3)[before] : end]
        if len(held) >= 2 * _PART:
            yield from (held, held.replace("+", "-").replace("/", "_"))
