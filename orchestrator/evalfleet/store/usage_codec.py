"""Usage as a list for JSON, and back. PURE."""

from __future__ import annotations

from typing import Any

from evalfleet.model.usage import Usage


def encode_usage(usage: Usage | None) -> list[Any] | None:
    """The buckets by position; None where nobody reported any."""
    if usage is None:
        return None
    return [
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
        usage.requests,
        usage.cost_usd,
        usage.unknown_calls,
    ]


def read_usage(usage: list[Any] | None) -> Usage | None:
    """The usage of an encoded list."""
    if usage is None:
        return None
    return Usage(
        input_tokens=usage[0],
        output_tokens=usage[1],
        cache_read_tokens=usage[2],
        cache_write_tokens=usage[3],
        reasoning_tokens=usage[4],
        requests=usage[5],
        cost_usd=usage[6],
        unknown_calls=usage[7],
    )
