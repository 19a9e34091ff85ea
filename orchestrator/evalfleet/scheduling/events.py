"""Inputs and outputs of `decide`: events happen, decisions are carried out in one place."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from evalfleet.model.record import CommitBatch, Committed, PendingCase
from evalfleet.model.verdict import RunStatus
from evalfleet.scheduling.messages import ExchangeReply, ExchangeRequest


class Departure(StrEnum):
    """How a worker ended. Only a dead *process* frees its leases at once; a lost node may still run it."""

    CRASHED = "crashed"
    OUT_OF_MEMORY = "out_of_memory"
    KILLED = "killed"
    DRAINED = "drained"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Exchanged:
    request: ExchangeRequest


@dataclass(frozen=True, slots=True)
class WorkerGone:
    worker: str
    how: Departure


@dataclass(frozen=True, slots=True)
class Roster:
    """The workers that exist, as their owner says; ends the adoption phase when each has reported."""

    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PageRead:
    """A page of unsettled cases; `last` says that no case lies beyond it."""

    cases: tuple[PendingCase, ...]
    last: bool


@dataclass(frozen=True, slots=True)
class CommitDone:
    """A commit took effect. `asked_at` is when it was sent, on the coordinator's monotonic clock."""

    result: Committed
    asked_at: float


@dataclass(frozen=True, slots=True)
class EpochConfirmed:
    """The store said that the epoch is ours. `asked_at` is when it was asked: the answer may lie long in a queue."""

    asked_at: float


@dataclass(frozen=True, slots=True)
class FencedOff:
    """A newer coordinator holds the run."""


@dataclass(frozen=True, slots=True)
class Tick:
    pass


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Grant nothing more. `cancel` also cancels what is in flight; `status` is how the run will end."""

    status: RunStatus
    reason: str
    cancel: bool = False


Event: TypeAlias = (
    Exchanged | WorkerGone | Roster | PageRead | CommitDone | EpochConfirmed | FencedOff | Tick | StopAsked
)


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the poll that `worker` has open under `seq`."""

    worker: str
    seq: int
    reply: ExchangeReply


@dataclass(frozen=True, slots=True)
class Write:
    """Commit this batch; the only one in flight."""

    batch: CommitBatch


@dataclass(frozen=True, slots=True)
class LoadPage:
    after: int
    limit: int


@dataclass(frozen=True, slots=True)
class KillWorker:
    """End a worker that no longer answers; its death then arrives as `WorkerGone`."""

    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    status: RunStatus
    reason: str | None


@dataclass(frozen=True, slots=True)
class Leave:
    """Write and grant nothing more: a newer coordinator holds the run."""


Decision: TypeAlias = Reply | Write | LoadPage | KillWorker | Finish | Leave
