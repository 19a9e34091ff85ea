"""Amounts that a run may spend: US dollars and tokens together, counted exactly. Frozen values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

#: A US dollar in the unit that is counted in.
NANOS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Money:
    """US dollars, in billionths, and tokens of input and output."""

    nanos: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, usd: float | None, tokens: int | None = None) -> Money:
        """An amount, rounded up; what is not known is nothing."""
        return cls(0 if usd is None else math.ceil(usd * NANOS), tokens or 0)

    def __add__(self, other: Money) -> Money:
        return Money(self.nanos + other.nanos, self.tokens + other.tokens)

    def __sub__(self, other: Money) -> Money:
        return Money(self.nanos - other.nanos, self.tokens - other.tokens)

    def __bool__(self) -> bool:
        return bool(self.nanos or self.tokens)

    @property
    def usd(self) -> float:
        return self.nanos / NANOS

    def covers(self, other: Money) -> bool:
        """Whether it is no less than `other`, in both."""
        return self.nanos >= other.nanos and self.tokens >= other.tokens


@dataclass(frozen=True, slots=True)
class Spending:
    """What is known to be spent, and what may have been: what was reserved for what nobody knows the cost of."""

    spent: Money = field(default_factory=Money)
    possible: Money = field(default_factory=Money)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What may be spent at most, None where nothing limits it."""

    nanos: int | None = None
    tokens: int | None = None

    @classmethod
    def of(cls, usd: float | None, tokens: int | None) -> Ceiling:
        return cls(None if usd is None else math.floor(usd * NANOS), tokens)

    def __bool__(self) -> bool:
        return self.nanos is not None or self.tokens is not None

    def allows(self, amount: Money) -> bool:
        """Whether so much may be spent."""
        return (self.nanos is None or amount.nanos <= self.nanos) and (
            self.tokens is None or amount.tokens <= self.tokens
        )

    def leaves(self, amount: Money) -> bool:
        """Whether anything is left beside `amount`."""
        return (self.nanos is None or amount.nanos < self.nanos) and (
            self.tokens is None or amount.tokens < self.tokens
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPolicy:
    """The budget of a run and those of its arms.

    A `hard` one holds at each moment: money is reserved before it is spent. Else nothing more is granted once it is
    spent. `whole` holds what an attempt of an arm is reserved at once, where its model calls can't be seen.
    """

    hard: bool
    run: Ceiling = field(default_factory=Ceiling)
    arms: Mapping[str, Ceiling] = field(default_factory=dict[str, Ceiling])
    whole: Mapping[str, Money] = field(default_factory=dict[str, Money])
