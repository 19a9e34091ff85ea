"""What workers and the governor say to each other. `ration` is the only call between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from evalfleet.model.model_call import RateReading

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """What an account may do: calls and tokens per minute, and calls at once. None is what nobody limited."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    concurrency: int | None = None

    def __bool__(self) -> bool:
        return self != _UNLIMITED

    def stricter(self, other: RateLimits) -> RateLimits:
        """The lower of each limit."""
        return RateLimits(
            requests_per_minute=_least(self.requests_per_minute, other.requests_per_minute),
            tokens_per_minute=_least(self.tokens_per_minute, other.tokens_per_minute),
            concurrency=_least(self.concurrency, other.concurrency),
        )


_UNLIMITED = RateLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """What refusals for the rate said since the last report.

    `age` is how many seconds ago the youngest refused call was sent, `wait` the longest that was asked for, less what
    has passed of it; `calls` how many there were.
    """

    calls: int
    age: float
    wait: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountReport:
    """One account as one worker uses it now. Counts are since the last report that was answered.

    `limits` are the run's own; `allotted` says that a governor, maybe another one, has answered before. `in_flight`
    and `waiting` are calls, `waiting_tokens` an estimate of what the latter need, with what the worker owes.
    `concurrency` is what the worker was allotted last, None without a limit; `blocked` the seconds that are left of the
    last word on that. `calls` and `tokens` are credit that it holds, `returned_calls` and `returned_tokens` credit that
    it gives back. `judging` counts the answered calls of judges,
    which are among `answered`.
    """

    account: str
    name: str
    limits: RateLimits = _UNLIMITED
    allotted: bool = False
    in_flight: int = 0
    waiting: int = 0
    waiting_tokens: float = 0.0
    concurrency: int | None = None
    blocked: float = 0.0
    calls: float = 0.0
    tokens: float = 0.0
    returned_calls: float = 0.0
    returned_tokens: float = 0.0
    answered: int = 0
    judging: int = 0
    throttle: Throttle | None = None
    reading: RateReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """A worker's report on the accounts that it uses. `worker` names one incarnation of it, unique in a cluster."""

    run: str
    worker: str
    accounts: tuple[AccountReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allotment:
    """What a worker may do with one account until its next report is answered.

    `concurrency` calls at once, None without a limit; `calls` and `tokens` are credit on top of what it holds, None
    where none is needed, and `calls_per_second` and `tokens_per_second` what it may count on when no further word
    comes. Nothing may be sent for `blocked` seconds. `limits` are those of the whole account, as far as they are known.
    """

    account: str
    concurrency: int | None = None
    calls: float | None = None
    tokens: float | None = None
    calls_per_second: float = 0.0
    tokens_per_second: float = 0.0
    blocked: float = 0.0
    limits: RateLimits = _UNLIMITED


def _least(one: N | None, other: N | None) -> N | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
