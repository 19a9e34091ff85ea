"""A worker's side of the exchange, as a pure machine: what it holds, says and does about replies."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from evalfleet.model.money import Money
from evalfleet.model.record import Recording, SealedAttempt
from evalfleet.scheduling.messages import (
    CommandKind,
    ExchangeReply,
    ExchangeRequest,
    Grant,
    LiveAttempt,
    MadeSandbox,
    TopUp,
    WorkerCommand,
)


class Contact(StrEnum):
    """How long ago the coordinator answered: fresh, stale (start nothing new), or lost (cancel everything)."""

    FRESH = "fresh"
    STALE = "stale"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Received:
    """What a reply asks for: grants to start, commands to carry out, recordings that may be judged now, and
    what attempts may spend.
    """

    grants: tuple[Grant, ...] = ()
    commands: tuple[WorkerCommand, ...] = ()
    durable: tuple[int, ...] = ()
    top_ups: tuple[TopUp, ...] = ()


@dataclass(slots=True)
class Wait:
    """What an attempt has waited in all, in seconds, and since when it waits now."""

    total: float = 0.0
    since: float | None = None

    def seconds(self, now: float) -> float:
        return self.total if self.since is None else self.total + now - self.since


@dataclass(slots=True)
class WorkerState:
    """What one worker incarnation holds. Times are on its own monotonic clock.

    `sent_at` is when the newest call was made, `answered_at` when the last answered one was: the coordinator
    counts a lease from no earlier instant, so a worker that counts from it never outlives its lease.

    A lane is taken until its attempt is acknowledged, so that a death never costs more attempts than lanes; of those
    that wait as many again may be `parked`, without a lane. `waits` holds the attempts that wait or have waited.
    `live` maps running attempts to their case ordinal; `sealed` keeps every attempt until it is acknowledged.
    `recorded` keeps the recordings of running attempts until they are known to be durable. `body_limit` bounds the
    bytes of sealed and recorded attempts in one call; the other sealed ones are listed as live. `made` is news that no
    answered call has carried, the first `told` of it in the newest one. `asks` holds what attempts must be allowed to
    spend in all before they can go on.
    """

    id: str
    lanes: int
    lease_ttl: float
    answered_at: float
    body_limit: int = 1 << 20
    seq: int = 0
    sent_at: float = 0.0
    epoch: int = 0
    stopped: bool = False
    draining: bool = False
    live: dict[int, int] = field(default_factory=dict[int, int])
    sealed: dict[int, SealedAttempt] = field(default_factory=dict[int, SealedAttempt])
    recorded: dict[int, Recording] = field(default_factory=dict[int, Recording])
    made: list[MadeSandbox] = field(default_factory=list[MadeSandbox])
    waits: dict[int, Wait] = field(default_factory=dict[int, Wait])
    parked: set[int] = field(default_factory=set[int])
    asks: dict[int, Money] = field(default_factory=dict[int, Money])
    told: int = 0

    @property
    def free_lanes(self) -> int:
        """Lanes that neither run an attempt nor hold one that is not acknowledged."""
        return max(0, self.lanes - len(self.live) + len(self.parked) - len(self.sealed))

    def begin_wait(self, attempt: int, now: float) -> None:
        """A running attempt waits, through no doing of its own."""
        if attempt in self.live:
            self.waits.setdefault(attempt, Wait()).since = now

    def end_wait(self, attempt: int, now: float) -> None:
        wait = self.waits.get(attempt)
        if wait is not None:
            wait.total, wait.since = wait.seconds(now), None

    def park(self, attempt: int) -> bool:
        """Let a waiting attempt give up its lane; False when as many have as there are lanes.

        One that waits for money always may: who has some may need just this lane, to give it back.
        """
        many = attempt not in self.asks and len(self.parked - self.asks.keys()) >= self.lanes
        if attempt not in self.live or many:
            return False
        self.parked.add(attempt)
        return True

    def unpark(self, attempt: int) -> bool:
        """Give an attempt its lane back; False when none is free."""
        if attempt in self.parked:
            if not self.free_lanes:
                return False
            self.parked.discard(attempt)
        return True

    def ask(self, attempt: int, total: Money | None) -> None:
        """A running attempt must be allowed to spend so much in all; None when it asks for nothing any more."""
        if total is None:
            self.asks.pop(attempt, None)
        elif attempt in self.live:
            self.asks[attempt] = total
            self.waits.setdefault(attempt, Wait())

    def request(self, now: float, rss: int = 0) -> ExchangeRequest:
        """The next call: the whole present state under a higher number. `rss` is in bytes."""
        self.seq += 1
        self.sent_at = now
        self.told = len(self.made)
        carried: list[SealedAttempt] = []
        held = [LiveAttempt(attempt, case) for attempt, case in self.live.items() if attempt not in self.waits]
        held += [self._waiting(attempt, self.live[attempt], now) for attempt in self.waits]
        size = 0
        for seal in self.sealed.values():
            size += seal.rows.size
            if size > self.body_limit and carried:
                held.append(LiveAttempt(seal.attempt, seal.case))
            else:
                carried.append(seal)
        return ExchangeRequest(
            self.id,
            self.seq,
            self.epoch,
            tuple(carried),
            tuple(held),
            0 if self.draining else self.free_lanes,
            self.lanes,
            rss,
            self.draining,
            self._carried_recordings(size),
            tuple(self.made),
        )

    def _waiting(self, attempt: int, case: int, now: float) -> LiveAttempt:
        wait = self.waits[attempt]
        parked, asks = attempt in self.parked, self.asks.get(attempt)
        return LiveAttempt(attempt, case, wait.seconds(now), wait.since is not None, parked, asks)

    def _carried_recordings(self, size: int) -> tuple[Recording, ...]:
        """The recordings for which a call of `size` bytes has room: at least one when it carries nothing else."""
        carried: list[Recording] = []
        for recording in self.recorded.values():
            size += len(recording.body)
            if size > self.body_limit and (carried or size > len(recording.body)):
                break
            carried.append(recording)
        return tuple(carried)

    def receive(self, seq: int, reply: ExchangeReply, now: float) -> Received:
        """Take in a reply; one to an older call, of an older epoch or read too late is ignored."""
        too_late = now - self.sent_at >= self.lease_ttl / 2
        if seq != self.seq or reply.epoch < self.epoch or too_late:
            return Received()
        self.epoch = reply.epoch
        self.answered_at = self.sent_at
        del self.made[: self.told]
        for attempt in reply.acks:
            self.sealed.pop(attempt, None)
        fresh = [g for g in reply.grants if g.attempt not in self.live and g.attempt not in self.sealed]
        for grant in fresh:
            free = self.free_lanes
            self.live[grant.attempt] = grant.case.ordinal
            if not free:  # one that was parked has taken the lane that this one was to have
                self.parked.add(grant.attempt)
                self.begin_wait(grant.attempt, now)
        if any(command.kind is CommandKind.STOP for command in reply.commands):
            self.stopped = True
        durable = tuple(attempt for attempt in reply.recorded if self.recorded.pop(attempt, None) is not None)
        return Received(tuple(fresh), reply.commands, durable, reply.top_ups)

    def seal(self, sealed: SealedAttempt) -> None:
        """An attempt ended; it is kept until the coordinator acknowledges its commit."""
        self.live.pop(sealed.attempt, None)
        self.waits.pop(sealed.attempt, None)
        self.asks.pop(sealed.attempt, None)
        self.parked.discard(sealed.attempt)
        self.recorded.pop(sealed.attempt, None)
        self.sealed[sealed.attempt] = sealed

    def contact(self, now: float) -> Contact:
        """What the silence of the coordinator means now."""
        silence = now - self.answered_at
        if silence >= self.lease_ttl:
            return Contact.LOST
        return Contact.STALE if silence >= self.lease_ttl / 2 else Contact.FRESH
