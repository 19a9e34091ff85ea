"""How far two sides rest on the same responses of an agent: what was drawn once is no second sample. PURE."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from evalfleet.model.comparison import Origin
from evalfleet.reports.figures import percent


@dataclass(frozen=True, slots=True)
class SharedResponses:
    """Of `paired` cases that both sides have evidence of, those that stand on one and the same attempt."""

    shared: int
    paired: int

    @property
    def independent(self) -> bool:
        """Whether a test between the sides may be made: not all that they could differ in is one response."""
        return self.shared < self.paired

    @property
    def note(self) -> str | None:
        """What has to be said of it; None when nothing is shared."""
        if not self.shared:
            return None
        return f"{percent(self.shared / self.paired)} shared responses, not independent"


def is_shared(first: Origin | None, second: Origin | None) -> bool:
    """Whether one attempt made the replies of both. Equal replies or scores alone are no sign of it."""
    return first is not None and first == second


def shared_responses(pairs: Iterable[tuple[Origin | None, Origin | None]]) -> SharedResponses:
    """What two sides share, over the origins of the same case on either: an attempt that one carried from the other, or
    both from a third."""
    known = [(first, second) for first, second in pairs if first is not None and second is not None]
    return SharedResponses(shared=sum(is_shared(*pair) for pair in known), paired=len(known))
