"""What a run would do, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from evalfleet.planning.plan import Plan
from evalfleet.planning.reuse import Action, History


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A plan beside what earlier runs settled."""

    plan: Plan
    history: History

    def actions(self) -> Iterator[Action]:
        """What would become of each case, in planned order."""
        return self.plan.actions(self.history)
