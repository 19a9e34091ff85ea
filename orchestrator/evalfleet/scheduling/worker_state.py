"""A worker's side of the exchange, as a pure machine: what it holds, says and does about replies."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from evalfleet.model.record import Recording, SealedAttempt
from evalfleet.scheduling.messages import (
    CommandKind,
    ExchangeReply,
    ExchangeRequest,
    Grant,
    LiveAttempt,
    MadeSandbox,
    WorkerCommand,
)


class Contact(StrEnum):
    """How long ago the coordinator answered: fresh, stale (start nothing new), or lost (cancel everything)."""

    FRESH = "fresh"
    STALE = "stale"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Received:
    """What a reply asks for: grants to start, commands to carry out, and recordings that may be judged now."""

    grants: tuple[Grant, ...] = ()
    commands: tuple[WorkerCommand, ...] = ()
    durable: tuple[int, ...] = ()


@dataclass(slots=True)
class WorkerState:
    """What one worker incarnation holds. Times are on its own monotonic clock.

    `sent_at` is when the newest call was made, `answered_at` when the last answered one was: the coordinator
    counts a lease from no earlier instant, so a worker that counts from it never outlives its lease.

    A lane is taken until its attempt is acknowledged, so that a death never costs more attempts than lanes.
    `live` maps running attempts to their case ordinal; `sealed` keeps every attempt until it is acknowledged.
    `recorded` keeps the recordings of running attempts until they are known to be durable. `body_limit` bounds the
    bytes of sealed and recorded attempts in one call; the other sealed ones are listed as live. `made` is news that no
    answered call has carried, the first `told` of it in the newest one.
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
    told: int = 0

    @property
    def free_lanes(self) -> int:
        """Lanes that neither run an attempt nor hold one that is not acknowledged."""
        return max(0, self.lanes - len(self.live) - len(self.sealed))

    def request(self, now: float, rss: int = 0) -> ExchangeRequest:
        """The next call: the whole present state under a higher number. `rss` is in bytes."""
        self.seq += 1
        self.sent_at = now
        self.told = len(self.made)
        carried: list[SealedAttempt] = []
        held = [LiveAttempt(attempt, case) for attempt, case in self.live.items()]
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
            self.live[grant.attempt] = grant.case.ordinal
        if any(command.kind is CommandKind.STOP for command in reply.commands):
            self.stopped = True
        durable = tuple(attempt for attempt in reply.recorded if self.recorded.pop(attempt, None) is not None)
        return Received(tuple(fresh), reply.commands, durable)

    def seal(self, sealed: SealedAttempt) -> None:
        """An attempt ended; it is kept until the coordinator acknowledges its commit."""
        self.live.pop(sealed.attempt, None)
        self.recorded.pop(sealed.attempt, None)
        self.sealed[sealed.attempt] = sealed

    def contact(self, now: float) -> Contact:
        """What the silence of the coordinator means now."""
        silence = now - self.answered_at
        if silence >= self.lease_ttl:
            return Contact.LOST
        return Contact.STALE if silence >= self.lease_ttl / 2 else Contact.FRESH
