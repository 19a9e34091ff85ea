"""What is around the arms of a simulated run: sandboxes and their limits, an outage, and what must hold of both.

Its own random numbers leave the schedule of faults of a seed as it is without.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from evalfleet.errors import FailureKind
from evalfleet.model.case import Case
from evalfleet.model.ids import attempt_epoch
from evalfleet.model.verdict import Outcome
from evalfleet.scheduling import admission
from evalfleet.scheduling.breaker import FIRST_PROBE, PAUSES_AT, WINDOW
from evalfleet.scheduling.state import RunState
from tests.simulation.store import SimStore

#: More attempts than a window, by those whose arm a restarted coordinator does not know yet.
SURE = WINDOW + 12


@dataclass(frozen=True)
class Outage:
    """From `begins` to `ends` a share of the starts of sandboxes fail."""

    begins: float
    ends: float
    share: float


@dataclass
class Weather:
    """Drawn from a seed: which limits there are on sandboxes, whether an outage comes, and restarts beneath them."""

    sandboxes: int | None
    starts: float | None
    outage: Outage | None
    dice: random.Random
    restarts: tuple[float, ...] = ()
    sandboxed: frozenset[str] = frozenset({"a"})
    started: deque[float] = field(default_factory=lambda: deque[float](maxlen=4000))
    minted: set[int] = field(default_factory=set)
    probes: set[int] = field(default_factory=set)
    claims: list[tuple[float, int, bool]] = field(default_factory=list)

    @classmethod
    def of(cls, seed: int) -> Weather:
        dice = random.Random(f"weather {seed}")
        outage = None
        if dice.random() < 0.3:
            begins = dice.uniform(0, 5)
            outage = Outage(begins, begins + dice.choice([20, 120, 300]), dice.choice([0.6, 1.0, 1.0]))
        limited = dice.random() < 0.5
        restarts = (dice.uniform(3, 20), dice.uniform(60, 120)) if dice.random() < 0.5 else ()
        return cls(
            sandboxes=dice.choice([1, 2, 4]) if limited else None,
            starts=dice.choice([0.5, 2.0, 20.0]) if limited and dice.random() < 0.6 else None,
            outage=outage,
            dice=dice,
            restarts=restarts if limited or outage is not None else (),
        )

    def start(self, arm: str, now: float) -> tuple[float, bool]:
        """How many seconds a sandbox takes to be made, and whether it fails."""
        down = self.outage is not None and arm in self.sandboxed and self.outage.begins <= now < self.outage.ends
        fails = down and self.outage is not None and self.dice.random() < self.outage.share
        return self.dice.uniform(0.02, 0.5), fails

    def claimed(self, now: float, epoch: int, *, restart: bool) -> None:
        self.claims.append((now, epoch, restart))

    # --- what must hold ---------------------------------------------------------------------------------------

    def granted(self, state: RunState, store: SimStore, now: float) -> str | None:
        """Look at the leases that a coordinator has just made; what is wrong with them, if anything."""
        for worker in state.workers.values():
            for lease in worker.leases.values():
                pending = state.cases[lease.ordinal].pending
                if lease.attempt in self.minted or attempt_epoch(lease.attempt) != state.epoch or pending is None:
                    continue
                self.minted.add(lease.attempt)
                if pending.case.arm not in self.sandboxed:
                    continue
                self.started.append(lease.granted_at)
                if admission.paused(state):
                    self.probes.add(lease.attempt)
                if (problem := self._too_fast(now) or self._no_probe(store, now)) is not None:
                    return problem
        return None

    def _too_fast(self, now: float) -> str | None:
        if self.starts is None:
            return None
        for span in (1.0, 10.0, 60.0):
            recent = sum(1 for at in self.started if at > now - span)
            if recent > self.starts * span + max(1.0, self.starts):
                return f"{recent} sandboxes started in {span} s at {self.starts} a second"
        return None

    def _no_probe(self, store: SimStore, now: float) -> str | None:
        """Once everything failed for so long that every coordinator must know, only probes are granted."""
        fresh = max((epoch for _, epoch, restart in self.claims if not restart), default=0)
        rows = [row for row in store.tables.attempts.values() if store.cases[row.case].arm in self.sandboxed]
        told = [row for row in rows if attempt_epoch(row.attempt) >= fresh and row.at < now - FIRST_PROBE]
        ended = [row for row in told if row.outcome in (Outcome.COMPLETED, Outcome.ERRORED)]
        last = sorted(ended, key=lambda row: row.attempt)[-SURE:]
        if len(last) < SURE or any(row.kind is not FailureKind.SANDBOX for row in last):
            return None
        if any(row.at >= now - FIRST_PROBE and row.kind is not FailureKind.SANDBOX for row in rows):
            return None
        burst = sum(1 for at in self.started if at > now - 0.9 * FIRST_PROBE)
        return f"{burst} attempts granted within seconds although everything fails" if burst > 2 else None

    def lost_to_it(self, store: SimStore, cases: list[Case]) -> list[int]:
        """Cases that the outage settled as errored although it did not have to; the external ones may not wait.

        A takeover begins without knowing of it, half of a window may go well for long when only a share fails, and
        the last few cases of a run are too few to tell.
        """
        if (
            self.outage is None
            or self.outage.share < 1.0
            or [restart for _, _, restart in self.claims].count(False) > 2
        ):
            return []
        failed = [row for row in store.tables.attempts.values() if row.kind is FailureKind.SANDBOX]
        settling = {attempt for attempt in store.tables.settlements.values() if attempt is not None}
        lost = [row.case for row in failed if row.attempt in settling and not cases[row.case].external]
        return lost if len(failed) >= 2 * PAUSES_AT else []

    def counted(self, store: SimStore, cases: list[Case]) -> list[int]:
        """Probes that failed and count for their cases, as whoever granted them took them in."""
        rows = [store.tables.attempts[attempt] for attempt in self.probes if attempt in store.tables.attempts]
        failed = [row for row in rows if row.kind is FailureKind.SANDBOX and row.epoch == attempt_epoch(row.attempt)]
        return [row.case for row in failed if not row.excused and not cases[row.case].external]
