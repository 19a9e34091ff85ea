"""What one attempt may spend on model calls, and what it has. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from evalfleet.model.money import Money, Spending


@dataclass(slots=True)
class Allowance:
    """The money of one attempt, `total` in all.

    Each call holds what it may cost at most until its end tells what it cost; where nobody tells that, it stays as
    `possible`. `aside` is kept for an agent whose calls can't be seen.
    """

    total: Money
    aside: Money = field(default_factory=Money)
    spent: Money = field(default_factory=Money)
    possible: Money = field(default_factory=Money)
    held: Money = field(default_factory=Money)

    def needs(self, most: Money) -> Money:
        """What it must have in all for another call that costs `most` at most."""
        return self.aside + self.spent + self.possible + self.held + most

    def hold(self, most: Money) -> bool:
        """Take what a call may cost; False when it has not enough."""
        if not self.total.covers(self.needs(most)):
            return False
        self.held += most
        return True

    def end(self, most: Money, cost: Money | None) -> None:
        """A call is over: it cost so much; None when nobody knows."""
        self.held -= most
        if cost is None:
            self.possible += most
        else:
            self.spent += cost

    def raised(self, total: Money) -> None:
        """It may spend so much in all from now on; an older word never takes anything back."""
        self.total = Money(max(self.total.nanos, total.nanos), max(self.total.tokens, total.tokens))

    def spending(self, unseen: Money | None) -> Spending:
        """What it comes to at the end. `unseen` is what the agent cost whose calls can't be seen, None if unknown."""
        spent, possible = self.spent, self.possible + self.held
        if not self.aside:
            return Spending(spent, possible)
        return Spending(spent, possible + self.aside) if unseen is None else Spending(spent + unseen, possible)
