"""How far two runs rest on the same responses of an agent: what was drawn once is no second sample. PURE."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from evalfleet.model.report import CaseView
from evalfleet.reports.figures import percent


@dataclass(frozen=True, slots=True)
class SharedResponses:
    """Of `paired` cases that both runs have evidence of, those that stand on one and the same attempt."""

    shared: int
    paired: int

    @property
    def independent(self) -> bool:
        """Whether a test between the two runs may be made: not all that they could differ in is one response."""
        return self.shared < self.paired

    @property
    def note(self) -> str | None:
        """What has to be said of it; None when nothing is shared."""
        if not self.shared:
            return None
        share = f"{percent(self.shared / self.paired)} shared responses"
        return share if self.independent else f"{share}, not independent"


def shared_responses(first: str, second: str, pairs: Iterable[tuple[CaseView, CaseView]]) -> SharedResponses:
    """What the runs of these ids share, over the same case in either: an attempt that one carried from the other, or
    both from a third. Equal replies or scores alone are no sign of it."""
    origins = [(_origin(first, one), _origin(second, other)) for one, other in pairs]
    known = [(one, other) for one, other in origins if one is not None and other is not None]
    return SharedResponses(shared=sum(one == other for one, other in known), paired=len(known))


def _origin(run: str, case: CaseView) -> tuple[str, int] | None:
    """The run and the attempt whose agent was really asked; None of a case without evidence."""
    if case.carried_from is not None:
        return case.carried_from
    return None if case.attempt is None else (run, case.attempt)
