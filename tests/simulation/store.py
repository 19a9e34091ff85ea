"""The record store of the simulation: claims, fenced commits, pages, and what a failover may lose."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from evalfleet.errors import FailureKind
from evalfleet.model.case import Case
from evalfleet.model.ids import attempt_epoch
from evalfleet.model.money import Money, Spending
from evalfleet.model.record import (
    Claim,
    CommitBatch,
    Committed,
    EndedAttempt,
    OpenIntent,
    PendingCase,
)
from evalfleet.model.verdict import Outcome, Settlement, Verdict


@dataclass(frozen=True)
class Row:
    attempt: int
    case: int
    outcome: Outcome
    blamed: bool = False
    cost: float = 0.0
    judging: float = 0.0
    crashed: bool = False
    kind: FailureKind | None = None
    excused: bool = False
    at: float = 0.0
    epoch: int = 0
    passed: bool = False


@dataclass
class Tables:
    epoch: int = 0
    commit_seq: int = 0
    holder: str | None = None
    beat: float = -1e9
    finished: str | None = None
    attempts: dict[int, Row] = field(default_factory=dict)
    settlements: dict[int, int | None] = field(default_factory=dict)
    intents: dict[int, OpenIntent] = field(default_factory=dict)
    closed: dict[int, tuple[str, Spending]] = field(default_factory=dict)
    recordings: dict[int, int] = field(default_factory=dict)
    beginnings: dict[int, int] = field(default_factory=dict)
    not_needed: set[int] = field(default_factory=set)

    def copied(self) -> Tables:
        """What they hold now; rows themselves never change."""
        return replace(
            self,
            attempts=dict(self.attempts),
            settlements=dict(self.settlements),
            intents=dict(self.intents),
            closed=dict(self.closed),
            recordings=dict(self.recordings),
            beginnings=dict(self.beginnings),
            not_needed=set(self.not_needed),
        )


class SimStore:
    """One run's rows. `commit` is called at the instant the transaction takes effect."""

    def __init__(self, cases: list[Case], cycle: int | None = None) -> None:
        self.cases = cases
        self.cycle = cycle
        self.tables = Tables()
        self.history: list[tuple[float, Tables]] = []
        self.down_until = 0.0
        self.claimed: list[tuple[float, int]] = []

    def claim(self, me: str, now: float, *, takeover: bool) -> Claim | None:
        t = self.tables
        free = t.holder is None or t.holder == me or (takeover and t.beat < now - 15)
        if not free or t.finished:
            return None
        t.epoch += 1
        t.holder, t.beat = me, now
        self.claimed.append((now, t.epoch))
        errored = sum(1 for a in t.settlements.values() if a is not None and t.attempts[a].outcome is Outcome.ERRORED)
        return Claim(
            run_key=1,
            epoch=t.epoch,
            commit_seq=t.commit_seq,
            total=len(self.cases),
            settled=len(t.settlements),
            failures=errored,
            spent_usd=self.spent(),
            judge_usd=self.spent_on_judges(),
            recent=tuple(
                EndedAttempt(self.cases[row.case].arm, row.kind, str(row.kind))
                for row in sorted(t.attempts.values(), key=lambda row: row.attempt)
                if row.outcome in (Outcome.COMPLETED, Outcome.ERRORED)
            ),
            open_intents=tuple(
                replace(intent, recorded=intent.case in t.recordings)
                for intent in t.intents.values()
                if attempt_epoch(intent.attempt) < t.epoch
            ),
            age=now - self.claimed[0][0],
            spending=self.spending(),
            solved=self.solved(),
        )

    def solved(self) -> tuple[int, ...]:
        t = self.tables
        passed = (case for case, a in t.settlements.items() if a is not None and t.attempts[a].passed)
        return () if self.cycle is None else tuple({case % self.cycle for case in passed})

    def spent(self) -> float:
        return sum(row.cost for row in self.tables.attempts.values())

    def spent_on_judges(self) -> float:
        return sum(row.judging for row in self.tables.attempts.values())

    def spending(self) -> dict[str, Spending]:
        """What each arm has spent, by the intents that are closed."""
        found: dict[str, Spending] = {}
        for arm, one in self.tables.closed.values():
            known = found.get(arm, Spending())
            found[arm] = Spending(known.spent + one.spent, known.possible + one.possible)
        return found

    def charged(self, arm: str | None = None) -> Money:
        """What is spent, possible or reserved, of one arm or of all."""
        total = Money()
        for of, one in self.tables.closed.values():
            total += one.spent + one.possible if arm in (None, of) else Money()
        for intent in self.tables.intents.values():
            total += intent.reserved if arm in (None, intent.arm) else Money()
        return total

    def close(self, attempt: int, spending: Spending | None) -> None:
        intent = self.tables.intents.pop(attempt, None)
        if intent is not None:
            lost = Spending(possible=intent.reserved)
            self.tables.closed[attempt] = (intent.arm, lost if spending is None else spending)

    def holds(self, epoch: int) -> bool:
        return self.tables.epoch == epoch

    def commit(self, batch: CommitBatch, epoch: int, now: float) -> Committed:
        self.history.append((now, self.tables.copied()))
        del self.history[:-4]
        t = self.tables
        t.commit_seq += 1
        t.beat = now
        inserted, settled, settled_cases = set[int](), set[int](), set[int]()
        for lost in batch.lost:
            t.attempts.setdefault(lost.attempt, Row(lost.attempt, lost.case, Outcome.INTERRUPTED, blamed=lost.blamed))
        for write in batch.attempts:
            seal = write.sealed
            if seal.attempt in t.attempts:
                continue
            inserted.add(seal.attempt)
            superseded = write.settles and seal.case in t.settlements
            t.attempts[seal.attempt] = Row(
                seal.attempt,
                seal.case,
                Outcome.SUPERSEDED if superseded else seal.outcome,
                cost=seal.cost_usd or 0.0,
                judging=seal.judge_usd,
                crashed=seal.code == "WORKER_CRASHED",
                kind=seal.kind,
                excused=write.excused,
                at=now,
                epoch=epoch,
                passed=seal.verdict is Verdict.PASSED,
            )
            if write.settles and not superseded:
                t.settlements[seal.case] = seal.attempt
                settled.add(seal.attempt)
        for without in batch.settled:
            if without.case not in t.settlements:
                t.settlements[without.case] = None
                settled_cases.add(without.case)
                if without.how is Settlement.NOT_NEEDED:
                    t.not_needed.add(without.case)
        for intent in batch.intents:
            if intent.attempt not in t.closed:
                arm = self.cases[intent.case].arm
                row = OpenIntent(intent.attempt, intent.case, intent.worker, intent.kind, now)
                t.intents[intent.attempt] = replace(row, reserved=intent.reserved, arm=arm)
        for lost in batch.lost:
            self.close(lost.attempt, None)
        for charge in batch.charges:
            self.close(charge.attempt, charge.spending)
        for attempt in batch.closed_intents:
            self.close(attempt, Spending())
        for recording in batch.recordings:
            if recording.turns is None:
                t.recordings.setdefault(recording.case, recording.attempt)
            else:
                t.beginnings[recording.case] = max(recording.turns, t.beginnings.get(recording.case, 0))
        for ordinal in batch.spent_recordings:
            t.recordings.pop(ordinal, None)
            t.beginnings.pop(ordinal, None)
        return Committed(t.commit_seq, epoch, frozenset(inserted), frozenset(settled), frozenset(settled_cases))

    def page(self, after: int, limit: int) -> tuple[tuple[PendingCase, ...], bool]:
        open_cases = [c for c in self.cases if c.ordinal > after and c.ordinal not in self.tables.settlements]
        chosen = tuple(self._pending(case) for case in open_cases[:limit])
        return chosen, len(open_cases) <= limit

    def _pending(self, case: Case) -> PendingCase:
        rows = [row for row in self.tables.attempts.values() if row.case == case.ordinal]
        return PendingCase(
            case,
            attempts=sum(1 for row in rows if row.outcome is Outcome.ERRORED and not row.excused),
            crashes=sum(1 for row in rows if row.blamed or row.crashed),
            lost=sum(1 for row in rows if row.outcome is Outcome.INTERRUPTED and not row.blamed),
            last_attempt=max((row.attempt for row in rows), default=None),
            recorded=case.ordinal in self.tables.recordings,
            begun=case.ordinal in self.tables.beginnings and case.ordinal not in self.tables.recordings,
        )

    def fail_over(self, now: float) -> bool:
        """Lose the last commit, as an asynchronous standby may; False when none is recent enough."""
        if not self.history or now - self.history[-1][0] > 2 or self.tables.finished:
            return False
        self.tables = self.history.pop()[1]
        return True
