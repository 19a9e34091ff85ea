"""The coordinator's window on a run: open cases, workers and what waits to be committed. Pure.

The window holds open leases, retries in backoff and one page of pending cases, never the settled ones, so its
size does not depend on the run's. Only `decide` and its parts change it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from evalfleet.errors import FailureKind
from evalfleet.model.ids import attempt_id
from evalfleet.model.model_call import AccountUse, added_up
from evalfleet.model.money import BudgetPolicy
from evalfleet.model.record import (
    AttemptWrite,
    Charge,
    Claim,
    CommitBatch,
    Intent,
    LostAttempt,
    OpenIntent,
    PendingCase,
    Recording,
    SettleWithout,
)
from evalfleet.scheduling.breaker import Breaker, restored, tells
from evalfleet.scheduling.events import StopAsked
from evalfleet.scheduling.messages import Grant, TopUp, WorkerCommand
from evalfleet.scheduling.money import Purse, Reservation
from evalfleet.scheduling.pace import Pace

#: Seconds without a new call after which a worker that holds leases counts as stalled: killing it costs all that it
#: runs, so a busy machine or an author's call of some seconds that blocks the loop must not look like it.
STALL_LIMIT = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """The limits a run is scheduled under. Times are in seconds, sizes in bytes.

    `lease_ttl` and `lease_grace`: a silent worker's leases end after their sum. `kill_grace`: a worker that holds
    an attempt that long past its deadline is killed, as is one that holds leases and has not asked again for
    `stall_limit` after its poll was answered. `crash_limit` blamed deaths settle a case as errored,
    `loss_limit` bounds unblamed ones. `memory_suspicion` is the size in bytes from which a worker that ran out of
    memory counts as the cause. `buffer_limit` pauses grants while that much waits to be committed.

    `sandboxed` names the arms whose attempts have a sandbox: at most `sandboxes` of those at once, and so many
    `sandbox_starts` a second. `isolated` says that attempts run in processes of their own, which tell nothing before
    they end. A run that only waits for paused arms is limited after `outage`, and nothing is granted any more once the
    run is older than `wall`, or once its `budget` is spent. With early exit `cycle` is how many cases a repetition has:
    those of an eval that its arm has passed are not needed any more.
    """

    concurrency: int
    per_arm: Mapping[str, int] = field(default_factory=dict[str, int])
    max_attempts: int = 3
    retry_on: frozenset[FailureKind] = frozenset(
        {FailureKind.SANDBOX, FailureKind.PROVIDER, FailureKind.WORKER, FailureKind.INFRASTRUCTURE}
    )
    max_failures: int | None = None
    sandboxed: frozenset[str] = frozenset()
    sandboxes: int | None = None
    sandbox_starts: float | None = None
    isolated: bool = False
    outage: float = 1800.0
    wall: float | None = None
    budget: BudgetPolicy | None = None
    cycle: int | None = None
    attempt_timeout: float | None = None
    lease_ttl: float = 30.0
    lease_grace: float = 5.0
    hold: float = 5.0
    tick: float = 0.5
    kill_grace: float = 10.0
    stall_limit: float = STALL_LIMIT
    announce_after: float = 1.0
    backoff_base: float = 1.0
    backoff_cap: float = 60.0
    crash_limit: int = 2
    loss_limit: int = 10
    memory_suspicion: int = 4 << 30
    page_size: int = 2000
    batch_size: int = 4000
    buffer_limit: int = 64 << 20


class Adoption(StrEnum):
    """What a claim must wait for before it may grant.

    `none`: nobody of an earlier epoch can live. `roster`: the owner names the living workers and each reports.
    `lease`: workers may live that can't reach us, so one lease time passes.
    """

    NONE = "none"
    ROSTER = "roster"
    LEASE = "lease"


class Phase(StrEnum):
    """Where an open case stands in the window."""

    UNREAD = "unread"
    PENDING = "pending"
    BACKOFF = "backoff"
    ANNOUNCING = "announcing"
    LEASED = "leased"
    COMMITTING = "committing"


@dataclass(slots=True)
class Lease:
    """One worker's right to one case. `seq` is the request it answered; no older list may free it.

    `granted_at` is on the coordinator's monotonic clock, `wall` in seconds since the epoch. An `isolated` attempt
    runs in a process of its own, so it can't be what killed its worker. `recorded` says that its recording is durable,
    `begun` how many turns of its conversation are. `waited`, `waiting` and `parked` are those of its `LiveAttempt`, as
    its worker told them at `told_at`.
    """

    attempt: int
    ordinal: int
    worker: str
    seq: int
    granted_at: float
    wall: float
    announced: bool = False
    isolated: bool = False
    recorded: bool = False
    begun: int = 0
    waited: float = 0.0
    waiting: bool = False
    parked: bool = False
    told_at: float = 0.0

    def worked(self, now: float) -> float:
        """Seconds since it was granted, but for those that it waited. One that waited when last heard of still does."""
        return now - self.granted_at - self.waited - (now - self.told_at if self.waiting else 0.0)


@dataclass(slots=True)
class OpenCase:
    """An unsettled case in the window. `pending` is None until the page that holds the case was read.

    `decided` says that the case is settled while another attempt of it still runs. `external` says that it may
    write outside, so that it must never be repeated by expiry or by kind. `recorded` says that a durable recording
    of it waits to be judged, `begun` that the durable beginning of its conversation waits to be continued, `failed`
    that its last attempt did, so that others come first.
    The counts are those of `PendingCase`, plus what happened in this window.
    """

    ordinal: int
    phase: Phase
    pending: PendingCase | None = None
    lease: Lease | None = None
    due: float = 0.0
    attempts: int = 0
    crashes: int = 0
    lost: int = 0
    last_attempt: int | None = None
    external: bool = False
    decided: bool = False
    recorded: bool = False
    begun: bool = False
    failed: bool = False


@dataclass(slots=True)
class WorkerView:
    """What is known of one worker incarnation. `poll` is the seq of its open poll, None when answered.

    `epoch_seen` is the epoch of the last reply it had when it called: only a list that was made after a reply of
    this epoch is surely newer than every earlier grant. `durable` names committed attempts that its last list
    still held; `announced` names cases whose grants wait for an open poll; `acks`, `grants`, `commands`,
    `recorded` and `top_ups` wait for its next reply.
    """

    id: str
    heard_at: float
    seq: int = -1
    epoch_seen: int = 0
    poll: int | None = None
    poll_since: float = 0.0
    answered_at: float = 0.0
    want: int = 0
    lanes: int = 0
    rss: int = 0
    busy: bool = False
    draining: bool = False
    reachable: bool = True
    killed: bool = False
    gone: bool = False
    leases: dict[int, Lease] = field(default_factory=dict[int, Lease])
    durable: set[int] = field(default_factory=set[int])
    announced: list[int] = field(default_factory=list[int])
    acks: list[int] = field(default_factory=list[int])
    grants: list[Grant] = field(default_factory=list[Grant])
    commands: list[WorkerCommand] = field(default_factory=list[WorkerCommand])
    recorded: list[int] = field(default_factory=list[int])
    rates: tuple[AccountUse, ...] = ()
    top_ups: list[TopUp] = field(default_factory=list[TopUp])


@dataclass(slots=True)
class Buffer:
    """What waits for the next commit, in the order it was decided. `taken` names the last batch's attempts.

    `recordings` waits by attempt; `spent` names cases whose recording is to be forgotten.
    """

    attempts: dict[int, AttemptWrite] = field(default_factory=dict[int, AttemptWrite])
    lost: list[LostAttempt] = field(default_factory=list[LostAttempt])
    settled: list[SettleWithout] = field(default_factory=list[SettleWithout])
    intents: list[Intent] = field(default_factory=list[Intent])
    closed: list[int] = field(default_factory=list[int])
    charges: list[Charge] = field(default_factory=list[Charge])
    recordings: dict[int, Recording] = field(default_factory=dict[int, Recording])
    spent: list[int] = field(default_factory=list[int])
    taken: frozenset[int] = frozenset()
    size: int = 0

    def __bool__(self) -> bool:
        return bool(
            self.attempts
            or self.lost
            or self.settled
            or self.intents
            or self.closed
            or self.charges
            or self.recordings
            or self.spent
        )

    def take(self, limit: int) -> CommitBatch:
        """Remove and return at most `limit` sealed attempts and everything else as one batch."""
        chosen = list(self.attempts.values())[:limit]
        for write in chosen:
            del self.attempts[write.sealed.attempt]
            self.size -= write.sealed.rows.size
        batch = CommitBatch(
            attempts=tuple(chosen),
            lost=tuple(self.lost),
            settled=tuple(self.settled),
            intents=tuple(self.intents),
            closed_intents=tuple(self.closed),
            charges=tuple(charge for charge in self.charges if charge.attempt not in self.attempts),
            recordings=tuple(self.recordings.values()),
            spent_recordings=tuple(self.spent),
        )
        self.size -= sum(len(recording.body) for recording in self.recordings.values())
        self.lost, self.settled, self.intents, self.closed, self.spent = [], [], [], [], []
        self.charges = [charge for charge in self.charges if charge.attempt in self.attempts]
        self.recordings = {}
        self.taken = frozenset(write.sealed.attempt for write in chosen)
        return batch


@dataclass(slots=True)
class RunState:
    """Everything the coordinator knows of its run. Times are on its monotonic clock unless said.

    `tallies` counts settled cases by verdict, `kinds` the unscored attempts of this incarnation by failure kind.
    `solved` says of each case of a repetition whether it has passed in any, and is empty without early exit.
    `breakers` is by arm; `pace` is None where sandboxes start as they may. `began` is when the run was first claimed.
    """

    epoch: int
    policy: RunPolicy
    total: int
    settled: int
    failures: int
    adopting: bool
    adoption: Adoption
    adoption_ends: float
    confirmed_at: float
    ticked_at: float
    began: float
    wall_offset: float
    open_intents: dict[int, OpenIntent]
    pace: Pace | None
    purse: Purse | None = None
    solved: bytearray = field(default_factory=bytearray)
    breakers: dict[str, Breaker] = field(default_factory=dict[str, Breaker])
    cases: dict[int, OpenCase] = field(default_factory=dict[int, OpenCase])
    workers: dict[str, WorkerView] = field(default_factory=dict[str, WorkerView])
    roster: frozenset[str] | None = None
    ready: dict[str, deque[int]] = field(default_factory=dict[str, deque[int]])
    leased_by_arm: dict[str, int] = field(default_factory=dict[str, int])
    leased: int = 0
    parked: int = 0
    counter: int = 0
    cursor: int = -1
    loading: bool = False
    read_all: bool = False
    buffer: Buffer = field(default_factory=Buffer)
    inflight: CommitBatch | None = None
    stopping: StopAsked | None = None
    over: bool = False
    tallies: dict[str, int] = field(default_factory=dict[str, int])
    kinds: dict[str, int] = field(default_factory=dict[str, int])
    spent_usd: float = 0.0
    judge_usd: float = 0.0
    unknown_judge_cost: int = 0

    @property
    def working(self) -> int:
        """Leases that count for the run's concurrency: those that are not parked.

        Where the workers have more lanes together than the concurrency needs, nothing but the leases bounds how many of
        those that come back work at once: there all count.
        """
        living = [worker for worker in self.workers.values() if not worker.gone]
        bounded = sum(worker.lanes for worker in living) < self.policy.concurrency + len(living)
        return self.leased - self.parked if bounded else self.leased

    @property
    def leased_sandboxes(self) -> int:
        """Leases that hold a sandbox, or may: the arm of an adopted one is not known until its page is read."""
        return self.leased - sum(n for arm, n in self.leased_by_arm.items() if arm not in self.policy.sandboxed)

    @property
    def rates(self) -> tuple[AccountUse, ...]:
        """The run's use of each account whose rate is governed."""
        return added_up(use for worker in self.workers.values() if not worker.gone for use in worker.rates)

    def worker(self, worker: str, now: float) -> WorkerView:
        view = self.workers.get(worker)
        if view is None:
            view = self.workers[worker] = WorkerView(worker, heard_at=now)
        return view

    def wall(self, now: float) -> float:
        """Seconds since the epoch at the monotonic instant `now`."""
        return now + self.wall_offset


def begin(claim: Claim, policy: RunPolicy, now: float, wall: float, *, adoption: Adoption) -> RunState:
    """The state right after a claim; `wall` is `now` in seconds since the epoch.

    A restarted coordinator remembers which arms were paused; for a new one somebody says that things work again.
    """
    starts = policy.sandbox_starts
    return RunState(
        epoch=claim.epoch,
        policy=policy,
        total=claim.total,
        settled=claim.settled,
        failures=claim.failures,
        adopting=True,
        adoption=adoption,
        adoption_ends=now if adoption is Adoption.NONE else now + policy.lease_ttl,
        confirmed_at=now,
        ticked_at=now,
        began=now - claim.age,
        wall_offset=wall - now,
        open_intents={intent.attempt: intent for intent in claim.open_intents},
        purse=None if policy.budget is None else _purse(claim, policy.budget),
        pace=None if starts is None else Pace(starts, at=now, tells=not policy.isolated),
        solved=_solved(claim, policy.cycle or 0),
        breakers=_remembered(claim, policy, now) if adoption is Adoption.ROSTER else {},
        tallies=dict(claim.tallies),
        spent_usd=claim.spent_usd,
        judge_usd=claim.judge_usd,
        unknown_judge_cost=claim.unknown_judge_cost,
    )


def _solved(claim: Claim, cycle: int) -> bytearray:
    solved = bytearray(cycle)
    for place in claim.solved:
        solved[place] = True
    return solved


def _purse(claim: Claim, budget: BudgetPolicy) -> Purse:
    open_ = {intent.attempt: Reservation(intent.arm, intent.reserved) for intent in claim.open_intents}
    return Purse.restored(budget, claim.spending, open_)


def _remembered(claim: Claim, policy: RunPolicy, now: float) -> dict[str, Breaker]:
    ended: dict[str, list[str]] = {}
    for attempt in claim.recent:
        what = tells(attempt.kind, attempt.code, policy.retry_on)
        if what is not None:
            ended.setdefault(attempt.arm, []).append(what)
    return {arm: restored(recent, attempt_id(claim.epoch, 0), now) for arm, recent in ended.items()}
