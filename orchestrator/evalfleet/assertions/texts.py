"""Matchers on text: substrings, expressions, links, headings and similarity."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import re2

from evalfleet.assertions.distance import likeness
from evalfleet.assertions.match import Evaluation, Match, Polarity, broken, decided, measured, wrong_type
from evalfleet.assertions.snapshot import snapshot
from evalfleet.errors import AuthoringError

_engine: Any = re2  # the package has no types

#: `similarity` costs time with the product of both lengths; longer texts are an evaluator error, never clipped.
MAX_SIMILARITY_TEXT = 100_000

# These two run in linear time: no alternative overlaps another.
_URL = re.compile(r"https?://[^\s<>\"'`()\[\]{}]+", re.IGNORECASE)
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+\S")


@dataclass(frozen=True, slots=True)
class Includes(Match):
    text: str
    ignore_case: bool

    def describe(self) -> Any:
        return {"match": "includes", "text": snapshot(self.text), "ignore_case": self.ignore_case}

    @property
    def is_quick(self) -> bool:
        return True

    def quick(self, value: Any) -> bool:
        return isinstance(value, str) and _holds(self.text, value, self.ignore_case)

    def judge(self, value: Any) -> Evaluation:
        if not isinstance(value, str):
            return wrong_type(value, expected=self.text)
        return decided(_holds(self.text, value, self.ignore_case), expected=self.text, actual=value)


@dataclass(frozen=True, slots=True)
class Excludes(Match):
    text: str
    ignore_case: bool

    @property
    def polarity(self) -> Polarity:
        return Polarity.NEGATIVE

    def describe(self) -> Any:
        return {"match": "excludes", "text": snapshot(self.text), "ignore_case": self.ignore_case}

    @property
    def is_quick(self) -> bool:
        return True

    def quick(self, value: Any) -> bool:
        return isinstance(value, str) and not _holds(self.text, value, self.ignore_case)

    def judge(self, value: Any) -> Evaluation:
        if not isinstance(value, str):
            return wrong_type(value, expected=self.text)
        return decided(not _holds(self.text, value, self.ignore_case), expected=self.text, actual=value)


def includes(text: str, *, ignore_case: bool = False) -> Match:
    """Matches text that contains `text` literally."""
    return Includes(_some_text(text, "includes"), ignore_case)


def excludes(text: str, *, ignore_case: bool = False) -> Match:
    """Matches text that does not contain `text`; a value that is not text does not match."""
    return Excludes(_some_text(text, "excludes"), ignore_case)


@dataclass(frozen=True, slots=True)
class Pattern(Match):
    expression: str
    compiled: Any

    def describe(self) -> Any:
        return {"match": "pattern", "expression": snapshot(self.expression)}

    @property
    def is_quick(self) -> bool:
        return True

    def quick(self, value: Any) -> bool:
        return isinstance(value, str) and searches(self.compiled, value)

    def judge(self, value: Any) -> Evaluation:
        if not isinstance(value, str):
            return wrong_type(value, expected=self.expression)
        return decided(searches(self.compiled, value), expected=self.expression, actual=value)

    def __reduce__(self) -> tuple[Any, ...]:
        return pattern, (self.expression,)


def pattern(expression: str) -> Match:
    """Matches text in which the regular expression is found anywhere; flags stand inside: `(?i)`, `(?s)`, `(?m)`.

    Runs in linear time (RE2): look-around and back-references don't exist. Raises AuthoringError for them.
    """
    return Pattern(_some_text(expression, "pattern"), compile_linear(expression, "pattern"))


def compile_linear(expression: str, place: str) -> Any:
    """A compiled RE2 expression. Raises AuthoringError naming `place`, the fault and the expression."""
    options = _engine.Options()
    options.log_errors = False
    try:
        return _engine.compile(expression, options)
    except (_engine.error, UnicodeEncodeError) as error:
        raise AuthoringError(
            f"{place}: {expression!r} is not an expression of the linear-time engine (RE2): {_fault(error)}"
        ) from error


def searches(compiled: Any, text: str) -> bool:
    """Whether a compiled expression is found in `text`; a lone surrogate reads as `?`."""
    try:
        return compiled.search(text) is not None
    except UnicodeEncodeError:
        return compiled.search(text.encode("utf-8", "replace").decode("utf-8")) is not None


@dataclass(frozen=True, slots=True)
class Similarity(Match):
    measures: ClassVar[bool] = True
    expected: str

    def describe(self) -> Any:
        return {"match": "similarity", "expected": snapshot(self.expected)}

    def judge(self, value: Any) -> Evaluation:
        if not isinstance(value, str):
            reason = wrong_type(value, expected=self.expected).reason
            return measured(0.0, expected=self.expected, actual=value, reason=reason)
        if len(value) > MAX_SIMILARITY_TEXT:
            return broken(f"text-too-long (limit {MAX_SIMILARITY_TEXT} characters)", value)
        return measured(likeness(self.expected, str(value)), expected=self.expected, actual=value)


def similarity(expected: str) -> Match:
    """Measures 1 − edit distance ÷ length of the longer text, in [0, 1]; a value that is not text measures 0."""
    if not isinstance(expected, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AuthoringError(f"similarity needs a text, not {type(expected).__name__}")
    if len(expected) > MAX_SIMILARITY_TEXT:
        raise AuthoringError(f"similarity takes at most {MAX_SIMILARITY_TEXT} characters")
    return Similarity(str(expected))


@dataclass(frozen=True, slots=True)
class IncludesUrl(Match):
    minimum: int

    def describe(self) -> Any:
        return {"match": "includes_url", "minimum": self.minimum}

    def judge(self, value: Any) -> Evaluation:
        if not isinstance(value, str):
            return wrong_type(value, expected=self.minimum)
        urls = {url for url in (found.rstrip(".,;:!?*_") for found in _URL.findall(value)) if _has_host(url)}
        return decided(len(urls) >= self.minimum, expected=self.minimum, actual=sorted(urls))


def includes_url(minimum: int = 1) -> Match:
    """Matches text with at least `minimum` distinct http or https links."""
    return IncludesUrl(_some_count(minimum, "includes_url"))


@dataclass(frozen=True, slots=True)
class HasSections(Match):
    minimum: int

    def describe(self) -> Any:
        return {"match": "has_sections", "minimum": self.minimum}

    def judge(self, value: Any) -> Evaluation:
        if not isinstance(value, str):
            return wrong_type(value, expected=self.minimum)
        headings = _headings(value)
        return decided(len(headings) >= self.minimum, expected=self.minimum, actual=headings)


def has_sections(minimum: int = 2) -> Match:
    """Matches Markdown with at least `minimum` `#` headings outside fenced code."""
    return HasSections(_some_count(minimum, "has_sections"))


def _headings(text: str) -> list[str]:
    found: list[str] = []
    fence: str | None = None
    for line in text.splitlines():
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~"):
            fence = mark if fence is None else None if mark == fence else fence
        elif fence is None and _HEADING.match(line):
            found.append(line.strip())
    return found


def _has_host(url: str) -> bool:
    return len(url.partition("://")[2]) > 0


def _holds(part: str, text: str, ignore_case: bool) -> bool:
    return part.casefold() in text.casefold() if ignore_case else part in text


def _some_text(text: Any, place: str) -> str:
    if not isinstance(text, str) or not text:
        raise AuthoringError(f"{place} needs a text that is not empty, not {text!r}")
    return str(text)


def _some_count(count: Any, place: str) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise AuthoringError(f"{place} needs a whole number of at least 1, not {count!r}")
    return count


def _fault(error: Exception) -> str:
    detail = error.args[0] if error.args else error
    return detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(error)
