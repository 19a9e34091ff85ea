"""A run that may get only so old, in the same weather: nothing is granted later, and nothing that was begun is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evalfleet.model.verdict import RunStatus
from evalfleet.scheduling.events import Reply
from tests.simulation.world import CoordinatorProcess, Violation, World

SEEDS = 300
CHUNK = 100


class ShortLived(World):
    """A world whose run is limited after some of its cases."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.wall = self.random.choice([1.0, 5.0, 20.0, 60.0])
        self.market.policy = None  # what limits the run is its age alone
        self.policy = replace(self.policy, wall=self.wall, budget=None)

    @property
    def age(self) -> float:
        return self.now - self.store.claimed[0][0]

    def reply(self, process: CoordinatorProcess, decision: Reply) -> None:
        if decision.reply.grants and self.age >= self.wall:
            raise Violation(f"a case was granted at the age of {self.age:.1f} s, of {self.wall:.0f}")
        super().reply(process, decision)

    def check_end(self) -> None:
        tables = self.store.tables
        settled = len(tables.settlements) == len(self.cases)
        limited = tables.finished == RunStatus.LIMITED.value
        if limited and self.age < self.wall:
            raise Violation(f"limited at the age of {self.age:.1f} s, of {self.wall:.0f}")
        if not limited:
            super().check_end()
        elif settled:
            raise Violation("nothing was left, and the run is limited")


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_nothing_is_granted_after_its_time(first: int) -> None:
    ended: set[str | None] = set()
    for seed in range(first, first + CHUNK):
        world = ShortLived(seed)
        try:
            world.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        ended.add(world.store.tables.finished)
    assert ended == {RunStatus.LIMITED.value, RunStatus.COMPLETED.value}, "both ends occur"
