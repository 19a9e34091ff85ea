"""The usage of one turn of a program that only tells that of its whole conversation. PURE."""

from __future__ import annotations

from evalfleet.model.usage import Usage


def spent_since(before: Usage | None, now: Usage | None) -> Usage | None:
    """What was used between two accounts of one conversation; None when the later one is not known.

    A bucket that has shrunk was begun anew, and is taken as it stands.
    """
    if before is None or now is None:
        return now
    return Usage(
        input_tokens=_more(before.input_tokens, now.input_tokens),
        output_tokens=_more(before.output_tokens, now.output_tokens),
        cache_read_tokens=_more(before.cache_read_tokens, now.cache_read_tokens),
        cache_write_tokens=_more(before.cache_write_tokens, now.cache_write_tokens),
        reasoning_tokens=_more(before.reasoning_tokens, now.reasoning_tokens),
    )


def _more(before: int | None, now: int | None) -> int | None:
    if before is None or now is None:
        return now
    return now - before if now >= before else now
