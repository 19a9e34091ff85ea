"""What a run would do, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from evalfleet.planning.plan import Plan
from evalfleet.planning.reuse import Action, ActionKind, History
from evalfleet.store.past_costs import PastCost


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A plan beside what earlier runs settled, and what their attempts cost by arm, where that is known.

    `carries` says whether the run would carry results, or execute every case.
    """

    plan: Plan
    history: History
    carries: bool = True
    costs: Mapping[str, PastCost] = field(default_factory=dict[str, PastCost])

    def actions(self) -> Iterator[Action]:
        """What would become of each case, in planned order."""
        actions = self.plan.actions(self.history)
        return actions if self.carries else map(_executed, actions)


def _executed(action: Action) -> Action:
    """What becomes of a case when nothing is carried."""
    if action.kind is not ActionKind.CARRY:
        return action
    return replace(action, kind=ActionKind.RUN, reason=f"{action.reason}; --reuse would carry it")
