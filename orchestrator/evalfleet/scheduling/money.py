"""The purse of a run: what is spent, what may have been, and what is reserved, for the run and for each arm. Pure.

With a hard budget their sum never exceeds it: nothing is spent that was not reserved, and what is reserved becomes
spent or possible, or is given back once it is certain that it was not spent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evalfleet.model.money import BudgetPolicy, Ceiling, Money, Spending

_UNLIMITED = Ceiling()


@dataclass(slots=True)
class Figures:
    """The three figures of a budget, which are always shown apart."""

    spent: Money = field(default_factory=Money)
    possible: Money = field(default_factory=Money)
    reserved: Money = field(default_factory=Money)

    @property
    def total(self) -> Money:
        return self.spent + self.possible + self.reserved


@dataclass(frozen=True, slots=True)
class Reservation:
    """What an attempt may spend in all, judges included."""

    arm: str
    amount: Money


@dataclass(slots=True)
class Purse:
    """The money of one run.

    `open` holds the reservations of attempts whose end is not committed. `asking` holds what attempts want to have in
    all and don't have yet; those of `topping` have it once that is committed, those of `ended` are told to end for want
    of it. `usual` is what an attempt of an arm asked for first, at most: later ones get it with their lease. Arms that
    are `closed` begin nothing more. While the run is `short`, or an arm is one of `short_arms`, attempts that have
    begun wait for money, so none may begin.
    """

    policy: BudgetPolicy
    run: Figures = field(default_factory=Figures)
    arms: dict[str, Figures] = field(default_factory=dict[str, Figures])
    open: dict[int, Reservation] = field(default_factory=dict[int, Reservation])
    asking: dict[int, Money] = field(default_factory=dict[int, Money])
    topping: set[int] = field(default_factory=set[int])
    ended: set[int] = field(default_factory=set[int])
    usual: dict[str, Money] = field(default_factory=dict[str, Money])
    closed: set[str] = field(default_factory=set[str])
    short: bool = False
    short_arms: set[str] = field(default_factory=set[str])
    used_up: bool = False

    @classmethod
    def restored(
        cls, policy: BudgetPolicy, spending: Mapping[str, Spending], open_: Mapping[int, Reservation]
    ) -> Purse:
        """What a claim found: what each arm has spent so far, and reservations that nobody has closed."""
        purse = cls(policy)
        for arm, known in spending.items():
            for figures in (purse.run, purse.of(arm)):
                figures.spent += known.spent
                figures.possible += known.possible
        for attempt, one in open_.items():
            purse.hold(attempt, one.arm, one.amount)
        return purse

    def of(self, arm: str) -> Figures:
        """The figures of one arm."""
        figures = self.arms.get(arm)
        if figures is None:
            figures = self.arms[arm] = Figures()
        return figures

    def ceiling(self, arm: str) -> Ceiling:
        return self.policy.arms.get(arm, _UNLIMITED)

    def run_allows(self, more: Money) -> bool:
        return self.policy.run.allows(self.run.total + more)

    def allows(self, arm: str, more: Money) -> bool:
        """Whether so much more may be reserved for the arm."""
        return self.run_allows(more) and self.ceiling(arm).allows(self.of(arm).total + more)

    def leaves(self, arm: str) -> bool:
        """Whether the run and the arm have any money that is not reserved."""
        return self.policy.run.leaves(self.run.total) and self.ceiling(arm).leaves(self.of(arm).total)

    # --- reservations -----------------------------------------------------------------------------------------

    def begin(self, attempt: int, arm: str) -> Money:
        """Reserve what an attempt begins with; nothing where that is more than there is: it asks for what it needs."""
        if not self.policy.hard:
            return Money()
        first = self.policy.whole.get(arm) or self.usual.get(arm, Money())
        if not self.allows(arm, first):
            first = Money()
        self.hold(attempt, arm, first)
        return first

    def top_up(self, attempt: int, wanted: Money) -> bool:
        """Reserve for an attempt what it lacks of `wanted`; False when there is not enough."""
        held = self.open[attempt]
        raised = Money(max(held.amount.nanos, wanted.nanos), max(held.amount.tokens, wanted.tokens))
        more = raised - held.amount
        if not self.allows(held.arm, more):
            return False
        self._reserve(held.arm, more)
        self.open[attempt] = Reservation(held.arm, raised)
        return True

    def hold(self, attempt: int, arm: str, amount: Money) -> None:
        """Count a reservation as it is."""
        self._reserve(arm, amount)
        self.open[attempt] = Reservation(arm, amount)

    def _reserve(self, arm: str, more: Money) -> None:
        self.run.reserved += more
        self.of(arm).reserved += more

    # --- what becomes of them ---------------------------------------------------------------------------------

    def settle(self, attempt: int, spending: Spending) -> None:
        """The attempt's end is committed: what it did not spend is free. Without effect on one that is closed."""
        held = self.open.pop(attempt, None)
        self.forget(attempt)
        if held is None:
            return
        for figures in (self.run, self.of(held.arm)):
            figures.reserved -= held.amount
            figures.spent += spending.spent
            figures.possible += spending.possible

    def lose(self, attempt: int) -> None:
        """Nobody knows what the attempt spent: it may be all that it might."""
        held = self.open.get(attempt)
        if held is not None:
            self.settle(attempt, Spending(possible=held.amount))

    def give_back(self, attempt: int) -> None:
        """The attempt never began, so it spent nothing."""
        self.settle(attempt, Spending())

    def forget(self, attempt: int) -> None:
        """The attempt asks for nothing any more."""
        self.asking.pop(attempt, None)
        self.topping.discard(attempt)
        self.ended.discard(attempt)

    def charge(self, arm: str, spent: Money) -> None:
        """Count what an attempt without a reservation has spent."""
        self.run.spent += spent
        self.of(arm).spent += spent
