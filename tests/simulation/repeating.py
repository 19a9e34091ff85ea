"""Early exit in the simulation: some runs have repetitions, and some of their attempts fail."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evalfleet.model.ids import attempt_epoch
from evalfleet.model.verdict import Verdict

if TYPE_CHECKING:
    from tests.simulation.store import SimStore


@dataclass(frozen=True)
class Repetitions:
    """How many cases a repetition has, None in a run that stops at no success."""

    seed: int
    cycle: int | None

    @classmethod
    def of(cls, seed: int, cases: int) -> Repetitions:
        dice = random.Random(f"repetitions {seed}")
        return cls(seed, None if dice.random() < 0.6 else dice.choice([1, 2, max(1, cases // 3), cases]))

    def verdict(self, attempt: int) -> Verdict:
        """What a completed attempt comes to."""
        dice = random.Random(f"verdict {self.seed} {attempt}")
        return Verdict.FAILED if self.cycle is not None and dice.random() < 0.5 else Verdict.PASSED

    def granted_too_much(self, store: SimStore, ordinal: int, attempt: int) -> str | None:
        """What is wrong with a grant that was decided after the whole run was claimed again."""
        if self.cycle is None or ordinal in store.tables.recordings:
            return None
        epoch = attempt_epoch(attempt)
        solved = {
            row.case % self.cycle
            for row in store.tables.attempts.values()
            if row.passed and row.epoch < epoch and store.tables.settlements.get(row.case) == row.attempt
        }
        if ordinal % self.cycle in solved:
            return f"case {ordinal} was granted although another repetition of it had passed before the claim"
        return None

    def wrong_end(self, store: SimStore) -> str | None:
        """What is wrong with cases that were not needed."""
        tables = store.tables
        passed = {
            case % (self.cycle or 1)
            for case, attempt in tables.settlements.items()
            if attempt is not None and tables.attempts[attempt].passed
        }
        for case in tables.not_needed:
            if self.cycle is None or case % self.cycle not in passed:
                return f"case {case} was not needed, and no repetition of it has passed"
        return None
