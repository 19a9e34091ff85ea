"""What coordinator and workers say to each other. `exchange` is the only call between them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from evalfleet.model.case import Case
from evalfleet.model.model_call import AccountUse
from evalfleet.model.money import Money
from evalfleet.model.record import Recording, SealedAttempt


@dataclass(frozen=True, slots=True)
class LiveAttempt:
    """An attempt that a worker holds: running, or sealed but not carried by this call.

    It has waited `waited` seconds to be allowed model calls, or for a lane, and is `waiting` now; that is no time of
    its own. A `parked` one holds no lane meanwhile. `asks` is what it must be allowed to spend in all before it can go
    on, None when it has what it needs.
    """

    attempt: int
    case: int
    waited: float = 0.0
    waiting: bool = False
    parked: bool = False
    asks: Money | None = None


@dataclass(frozen=True, slots=True)
class MadeSandbox:
    """The sandbox of an attempt is there; it took so many seconds."""

    attempt: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ExchangeRequest:
    """A worker's whole present state. `seq` rises by one a call; an older list never undoes a newer one.

    `want` is the number of free lanes, of `lanes` in all; one is taken until its attempt is acknowledged, or parked.
    `rss` is the worker's memory in bytes, 0 when unknown. `recorded` holds recordings that are not known to be
    durable yet, `made` the sandboxes that have come to be since the last call that was answered. `rates` is the
    worker's use of accounts whose rate is governed.
    """

    worker: str
    seq: int
    epoch_seen: int
    sealed: tuple[SealedAttempt, ...]
    live: tuple[LiveAttempt, ...]
    want: int
    lanes: int = 1
    rss: int = 0
    draining: bool = False
    recorded: tuple[Recording, ...] = ()
    made: tuple[MadeSandbox, ...] = ()
    rates: tuple[AccountUse, ...] = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """The right to run one case. `isolated` runs it alone in its own process, since its worker died before;
    `recorded` judges the recording that the store has of it, without the agent; `begun` goes on where the recorded
    beginning of its conversation ended. `allowance` is what the attempt may spend, None without a hard budget.
    """

    attempt: int
    case: Case
    isolated: bool = False
    recorded: bool = False
    begun: bool = False
    allowance: Money | None = None


@dataclass(frozen=True, slots=True)
class TopUp:
    """An attempt may spend so much in all."""

    attempt: int
    total: Money


class CommandKind(StrEnum):
    CANCEL = "cancel"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class WorkerCommand:
    """Cancel one attempt (its seal is still wanted), or stop for good: the run is over or fenced."""

    kind: CommandKind
    attempt: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ExchangeReply:
    """The coordinator's answer; a worker drops a sealed attempt only when it is named in `acks`, and judges a
    recorded one only when it is named in `recorded`.
    """

    epoch: int
    acks: tuple[int, ...] = ()
    grants: tuple[Grant, ...] = ()
    commands: tuple[WorkerCommand, ...] = ()
    recorded: tuple[int, ...] = ()
    top_ups: tuple[TopUp, ...] = ()
