"""What an answer of a model's API says that it used, whole or as a stream. PURE.

The converters of adapters read whole turns, and the engine may not import them; the meter needs these few numbers only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from evalfleet.model.usage import Usage

#: Bytes of one event, or of a whole answer, that are read; what is larger is passed on without being metered.
READ_LIMIT = 16 << 20


class Meter:
    """Reads an answer while it is passed on. `usage` is what it said so far, None while it said nothing."""

    def __init__(self, streamed: bool) -> None:
        self._streamed = streamed
        self._rest = bytearray()
        self._given: dict[str, Any] = {}
        self._lost = False

    def take(self, piece: bytes) -> None:
        """The next piece of the answer, however it is cut."""
        if self._lost:
            return
        self._rest += piece
        if self._streamed:
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    self._document(line[5:])
        if len(self._rest) > READ_LIMIT:
            self._lost, self._rest = True, bytearray()

    @property
    def usage(self) -> Usage | None:
        """Tokens in exclusive buckets."""
        if not self._streamed and self._rest and not self._lost:
            self._document(self._rest)
        return usage_of(self._given)

    def _document(self, text: bytes | bytearray) -> None:
        try:
            document = _object(json.loads(text))
        except (ValueError, RecursionError):
            return
        for holder in (document, _object(document.get("response")), _object(document.get("message"))):
            # a stream of messages tells the input at its beginning and the output at its end
            self._given.update({key: value for key, value in _object(holder.get("usage")).items() if value is not None})


def usage_of(given: Mapping[str, Any]) -> Usage | None:
    """The `usage` of any of the APIs in our buckets, None where it says nothing."""
    anthropic = "cache_read_input_tokens" in given or "cache_creation_input_tokens" in given
    total = _count(given.get("prompt_tokens", given.get("input_tokens")))
    output = _count(given.get("completion_tokens", given.get("output_tokens")))
    if total is None and output is None:
        return None
    if anthropic:
        read, written = _count(given.get("cache_read_input_tokens")), _count(given.get("cache_creation_input_tokens"))
        return Usage(
            input_tokens=total, output_tokens=output, cache_read_tokens=read, cache_write_tokens=written, requests=1
        )
    details = _object(given.get("prompt_tokens_details", given.get("input_tokens_details")))
    spent = _object(given.get("completion_tokens_details", given.get("output_tokens_details")))
    read, written = _count(details.get("cached_tokens")), _count(details.get("cache_write_tokens"))
    return Usage(
        input_tokens=None if total is None else max(0, total - (read or 0) - (written or 0)),
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=_count(spent.get("reasoning_tokens")),
        requests=1,
    )


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
