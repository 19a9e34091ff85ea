"""The money of a simulated run: what each call costs, what its provider counts, and what must hold of both.

Its own random numbers leave the schedule of faults of a seed as it is without.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from evalfleet.model.money import BudgetPolicy, Ceiling, Money
from evalfleet.model.record import SealedAttempt
from tests.simulation import waiting
from tests.simulation.store import SimStore

if TYPE_CHECKING:
    from tests.simulation.world import WorkerProcess, World

#: The most that any call costs.
DEAREST = 12


@dataclass
class Purchase:
    """What the next call of an attempt costs at most, what it will cost, and what is done once it may be made."""

    most: Money
    cost: Money
    known: bool
    go_on: Callable[[], None]


@dataclass
class Market:
    """Drawn from a seed: whether the run has a hard budget, how large, and what calls cost.

    `billed` is what the provider counts, by arm; `least` the least that was ever left of any budget.
    """

    dice: random.Random
    policy: BudgetPolicy | None
    billed: Counter[str] = field(default_factory=Counter[str])
    waiting: dict[int, Purchase] = field(default_factory=dict[int, Purchase])
    least: int = 1 << 60

    @classmethod
    def of(cls, seed: int, cases: int) -> Market:
        dice = random.Random(f"market {seed}")
        if dice.random() < 0.5:
            return cls(dice, None)
        run = Ceiling(dice.choice([0, 5, 20, 3 * cases, 10 * cases, 100 * cases]))
        arms = {"a": Ceiling(dice.choice([10, 4 * cases]))} if dice.random() < 0.3 else {}
        whole = {"b": Money(3 * DEAREST)} if dice.random() < 0.2 else {}
        return cls(dice, BudgetPolicy(hard=True, run=run, arms=arms, whole=whole))

    def price(self) -> tuple[Money, Money, bool]:
        """The most that a call may cost, what it will, and whether anybody learns that."""
        most = self.dice.randint(1, DEAREST)
        cost = self.dice.choice([most, most, self.dice.randint(0, most)])
        return Money(most), Money(cost), self.dice.random() < 0.9


def buy(world: World, worker: WorkerProcess, attempt: int, go_on: Callable[[], None]) -> None:
    """Make a call once the attempt has the money for it."""
    if world.market.policy is None or attempt not in worker.allowances:
        go_on()
        return
    most, cost, known = world.market.price()
    purchase = Purchase(most, cost, known, go_on)
    if not _bought(world, worker, attempt, purchase):
        world.market.waiting[attempt] = purchase
        worker.state.begin_wait(attempt, world.now)
        worker.state.ask(attempt, worker.allowances[attempt].needs(most))
        world.flush(worker)

        def park() -> None:
            still = world.market.waiting.get(attempt) is purchase and worker.alive and attempt in worker.running
            if still and not world.defer(worker, park) and worker.state.park(attempt):
                world.flush(worker)

        world.after(waiting.PARKS_AFTER, park)


def _bought(world: World, worker: WorkerProcess, attempt: int, purchase: Purchase) -> bool:
    allowance = worker.allowances[attempt]
    if not allowance.hold(purchase.most):
        return False
    arm = worker.running[attempt].case.arm
    world.market.billed[arm] += purchase.cost.nanos

    def end() -> None:
        if worker.alive and worker.allowances.get(attempt) is allowance:
            allowance.end(purchase.most, purchase.cost if purchase.known else None)
        purchase.go_on()

    end()
    return True


def topped_up(world: World, worker: WorkerProcess, attempt: int, total: Money) -> None:
    """More money came: go on where it is enough."""
    allowance = worker.allowances.get(attempt)
    if allowance is None:
        return
    allowance.raised(total)
    purchase = world.market.waiting.pop(attempt, None)
    if purchase is None or attempt not in worker.running:
        return
    if allowance.total.covers(allowance.needs(purchase.most)):
        worker.state.ask(attempt, None)
        waiting.take_lane(world, worker, attempt, lambda: _bought(world, worker, attempt, purchase))
    else:
        world.market.waiting[attempt] = purchase


def paid(worker: WorkerProcess, seal: SealedAttempt) -> SealedAttempt:
    """The seal with what its attempt has spent."""
    allowance = worker.allowances.pop(seal.attempt, None)
    return seal if allowance is None else replace(seal, spending=allowance.spending(None))


# --- what must hold -----------------------------------------------------------------------------------------------


def is_durable(store: SimStore, attempt: int, total: Money) -> bool:
    """Whether an attempt has so much reserved, as long as it is open."""
    intent = store.tables.intents.get(attempt)
    return attempt in store.tables.closed or (intent is not None and intent.reserved.covers(total))


def exceeded(market: Market, store: SimStore) -> str | None:
    """What is wrong with the money at this moment, if anything."""
    policy = market.policy
    if policy is None:
        return None
    if not policy.run.allows(Money(market.billed.total())):
        return f"{market.billed.total()} were billed with a budget of {policy.run.nanos}"
    market.least = min(market.least, *_left(policy, store))
    if not policy.run.allows(store.charged()):
        return f"{store.charged().nanos} are charged and reserved with a budget of {policy.run.nanos}"
    for arm, ceiling in policy.arms.items():
        if not ceiling.allows(Money(market.billed[arm])) or not ceiling.allows(store.charged(arm)):
            return f"{market.billed[arm]} were billed to arm {arm} with a budget of {ceiling.nanos}"
    return None


def wrong_end(market: Market, store: SimStore, *, limited: bool) -> str | None:
    """What is wrong with the money at the end: something billed that nobody counts, or a limit far from it."""
    policy = market.policy
    if policy is None:
        return "the run is limited without a budget" if limited else None
    if market.billed.total() > store.charged().nanos:
        return f"{market.billed.total()} were billed and {store.charged().nanos} charged"
    need = max(DEAREST, *(whole.nanos for whole in policy.whole.values()), 0)
    if limited and market.least > need:
        return f"the run was limited although {market.least} were always left"
    return None


def _left(policy: BudgetPolicy, store: SimStore) -> list[int]:
    left = [(ceiling.nanos or 0) - store.charged(arm).nanos for arm, ceiling in policy.arms.items()]
    return [(policy.run.nanos or 0) - store.charged().nanos, 1 << 60, *left]
