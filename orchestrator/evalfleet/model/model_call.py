"""A call of a model as whoever rations calls sees it: before it is made, and how it ended. Frozen values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from evalfleet.model.usage import Usage


def rate_name(provider: str, model: str | None) -> str:
    """What an experiment's `rate` calls an account: `provider:model`, or `provider` where the model is not known."""
    return f"{provider}:{model}" if model else provider


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Whom a provider counts a call for. `provider` is the adapter's name, `key` the *name* of the secret.

    `model` is empty where an endpoint hides its model.
    """

    provider: str
    base_url: str
    key: str | None
    model: str

    @property
    def rate_name(self) -> str:
        """What an experiment's `rate` calls it."""
        return rate_name(self.provider, self.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One request that is about to be sent. Its repetition is another call.

    `input_bytes` is the size of the request's body, and so no less than its tokens; `output_limit` the tokens that
    the answer may have at most, None when nothing limits it. `judging` says that a judge is asked, not an agent.
    """

    account: Account
    input_bytes: int
    output_limit: int | None = None
    judging: bool = False


class CallFate(StrEnum):
    """How a call ended: with an answer; refused for the rate; surely refused for another reason; or nobody knows."""

    ANSWERED = "answered"
    THROTTLED = "throttled"
    REFUSED = "refused"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateReading:
    """What a provider's headers say of its limits: calls and tokens that are left, and the seconds to their reset.

    None is what no header said. `requests_per_minute` and `tokens_per_minute` are the limits themselves.
    """

    requests_per_minute: float | None = None
    requests_left: float | None = None
    requests_reset: float | None = None
    tokens_per_minute: float | None = None
    tokens_left: float | None = None
    tokens_reset: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnd:
    """How a call ended. `retry_after` is in seconds; `usage` is None when nobody reported any."""

    fate: CallFate
    retry_after: float | None = None
    usage: Usage | None = None
    reading: RateReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountUse:
    """What one worker, or one run, makes of an account whose rate is governed.

    Rates are of the last minute; those of judges' calls are among all calls. `blocked` is in seconds. `concurrency` and
    the limits are the whole account's, configured or learned, None where none is known.
    """

    account: str
    name: str
    in_flight: int = 0
    waiting: int = 0
    calls_per_minute: float = 0.0
    judge_calls_per_minute: float = 0.0
    tokens_per_minute: float = 0.0
    blocked: float = 0.0
    concurrency: int | None = None
    requests_limit: float | None = None
    tokens_limit: float | None = None


def added_up(uses: Iterable[AccountUse]) -> tuple[AccountUse, ...]:
    """One use for each account, by its key. Of the limits and the block the last word counts."""
    found: dict[str, AccountUse] = {}
    for use in uses:
        known = found.get(use.account)
        found[use.account] = use if known is None else _sum(known, use)
    return tuple(found[account] for account in sorted(found))


def _sum(one: AccountUse, other: AccountUse) -> AccountUse:
    return replace(
        other,
        in_flight=one.in_flight + other.in_flight,
        waiting=one.waiting + other.waiting,
        calls_per_minute=one.calls_per_minute + other.calls_per_minute,
        judge_calls_per_minute=one.judge_calls_per_minute + other.judge_calls_per_minute,
        tokens_per_minute=one.tokens_per_minute + other.tokens_per_minute,
        blocked=max(one.blocked, other.blocked),
    )
