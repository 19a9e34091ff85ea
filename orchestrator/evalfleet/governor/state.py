"""What the governor knows of each account and of who uses it. Pure; only `ration` changes it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from evalfleet.governor.buckets import Bucket
from evalfleet.governor.messages import RateLimits
from evalfleet.governor.sharing import Sharer
from evalfleet.governor.window import Window

#: Seconds after which a worker that says nothing more is taken for gone, and its share goes to others.
SILENT = 5.0
#: Seconds for which a new governor leaves things as they are, to learn what the workers hold of the last one.
RELEARN = 2.0
#: Seconds after which an account that nobody uses is forgotten, with what was learned of it.
FORGET = 900.0
#: Nobody is held up for longer than this at a time, whatever wait a provider asks for: then one call tries again.
HORIZON = 120.0
#: A wait of more seconds than this empties the pipe, so the window has to be found anew.
LONG_WAIT = 5.0
#: The first pause, in seconds, after a refusal that names no wait when nothing was answered for `QUIET` seconds; it
#: doubles with each round of nothing but refusals. While something is answered, fewer calls at once are the answer.
FIRST_PAUSE = 0.5
QUIET = 1.0


@dataclass(slots=True)
class WorkerShare:
    """One worker's use of one account. `at` is when it reported last.

    `exposed` is how many calls it may have under way until its next report; `wants_calls` and `wants_tokens` the
    credit that it lacks; `credit_calls` and `credit_tokens` what waits for its next report.
    """

    limits: RateLimits
    at: float
    in_flight: int = 0
    waiting: int = 0
    exposed: int = 0
    wants_calls: float = 0.0
    wants_tokens: float = 0.0
    credit_calls: float = 0.0
    credit_tokens: float = 0.0

    @property
    def demand(self) -> int:
        return self.in_flight + self.waiting


@dataclass(slots=True)
class AccountState:
    """One account. `learned` is what headers said of its limits, `relearning` until when others' words are awaited.

    `rounds` counts refusals without a wait since the last answer, which came at `answered_at`.
    """

    name: str
    at: float
    relearning: float = 0.0
    learned: RateLimits = field(default_factory=RateLimits)
    window: Window = field(default_factory=Window)
    requests: Bucket | None = None
    tokens: Bucket | None = None
    blocked_until: float = 0.0
    rounds: int = 0
    answered_at: float = -math.inf
    workers: dict[Sharer, WorkerShare] = field(default_factory=dict[Sharer, WorkerShare])

    @property
    def in_use(self) -> int:
        """Calls under way in all workers."""
        return sum(share.in_flight for share in self.workers.values())

    @property
    def demand(self) -> int:
        """Calls under way and waiting in all workers."""
        return sum(share.demand for share in self.workers.values())

    @property
    def limits(self) -> RateLimits:
        """The limits that count: the strictest of those that the runs configured, else what was learned."""
        said = RateLimits()
        for share in self.workers.values():
            said = said.stricter(share.limits)
        return RateLimits(
            requests_per_minute=said.requests_per_minute or self.learned.requests_per_minute,
            tokens_per_minute=said.tokens_per_minute or self.learned.tokens_per_minute,
            concurrency=said.concurrency,
        )


@dataclass(slots=True)
class GovernorState:
    """All accounts, by key. Times are on the governor's monotonic clock."""

    accounts: dict[str, AccountState] = field(default_factory=dict[str, AccountState])
