"""Token and cost usage in mutually exclusive buckets; unknown is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a turn consumed. Buckets exclude each other: `input_tokens` holds no cached tokens.

    `reasoning_tokens` is a detail of `output_tokens`. `cost_usd` is observed from the provider, never
    derived from prices. `unknown_calls` counts model calls whose usage nobody reported.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    requests: int | None = None
    cost_usd: float | None = None
    unknown_calls: int = 0

    @property
    def total_tokens(self) -> int | None:
        """Input plus output tokens, as `max_tokens` counts them; None when either is unknown."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=_add(self.input_tokens, other.input_tokens),
            output_tokens=_add(self.output_tokens, other.output_tokens),
            cache_read_tokens=_add(self.cache_read_tokens, other.cache_read_tokens),
            cache_write_tokens=_add(self.cache_write_tokens, other.cache_write_tokens),
            reasoning_tokens=_add(self.reasoning_tokens, other.reasoning_tokens),
            requests=_add(self.requests, other.requests),
            cost_usd=_add(self.cost_usd, other.cost_usd),
            unknown_calls=self.unknown_calls + other.unknown_calls,
        )


def _add(left: N | None, right: N | None) -> N | None:
    if left is None:
        return right
    return left if right is None else left + right
