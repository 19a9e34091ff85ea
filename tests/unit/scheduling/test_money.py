"""The purse: spent, possible and reserved together never exceed a budget, and nothing is counted twice or forgotten."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from evalfleet.execution.allowance import Allowance
from evalfleet.model.money import BudgetPolicy, Ceiling, Money, Spending
from evalfleet.scheduling.money import Purse, Reservation

ARMS = ("a", "b")


@dataclass
class Told:
    """What really happened, counted apart from the purse."""

    spent: int = 0
    possible: int = 0
    open: dict[int, int] = field(default_factory=dict)


amounts = st.integers(0, 40)
steps = st.lists(
    st.tuples(
        st.sampled_from(["begin", "top up", "settle", "lose", "give back", "claim"]),
        st.sampled_from(ARMS),
        amounts,
        st.floats(0, 1),
        st.integers(0, 7),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(steps, st.integers(0, 120), st.none() | st.integers(0, 60), st.none() | amounts)
def test_the_sum_holds_at_each_moment(
    told: list[tuple[str, str, int, float, int]], limit: int, of_a: int | None, whole: int | None
) -> None:
    policy = BudgetPolicy(
        hard=True,
        run=Ceiling(nanos=limit),
        arms={} if of_a is None else {"a": Ceiling(nanos=of_a)},
        whole={} if whole is None else {"b": Money(whole)},
    )
    purse, really = Purse(policy), Told()
    for number, (what, arm, amount, share, which) in enumerate(told):
        chosen = sorted(really.open)[which % len(really.open)] if really.open else None
        if what == "begin":
            if whole is None or arm == "a" or purse.allows(arm, Money(whole)):
                really.open[number] = purse.begin(number, arm).nanos
        elif what == "claim":
            spending = {each: Spending(purse.of(each).spent, purse.of(each).possible) for each in ARMS}
            open_ = {n: Reservation(one.arm, one.amount) for n, one in purse.open.items()}
            purse = Purse.restored(policy, spending, open_)
        elif chosen is not None and what == "top up":
            if purse.top_up(chosen, Money(really.open[chosen] + amount)):
                really.open[chosen] += amount
        elif chosen is not None:
            held = really.open.pop(chosen)
            spent = int(held * share)
            if what == "settle":
                purse.settle(chosen, Spending(Money(spent), Money((held - spent) // 2)))
                really.spent, really.possible = really.spent + spent, really.possible + (held - spent) // 2
            elif what == "lose":
                purse.lose(chosen)
                really.possible += held
            else:
                purse.give_back(chosen)
        figures = purse.run
        assert figures.total.nanos <= limit
        assert of_a is None or purse.of("a").total.nanos <= of_a
        assert figures.spent.nanos == really.spent
        assert figures.possible.nanos == really.possible
        assert figures.reserved.nanos == sum(really.open.values())
        assert figures.total == purse.of("a").total + purse.of("b").total


def test_what_is_told_twice_counts_once() -> None:
    purse = Purse(BudgetPolicy(hard=True, run=Ceiling(nanos=10)))
    purse.hold(1, "a", Money(6))
    purse.lose(1)
    purse.settle(1, Spending(Money(2)))
    purse.give_back(1)
    assert (purse.run.spent, purse.run.possible, purse.run.reserved) == (Money(), Money(6), Money())


def test_tokens_and_dollars_limit_each_by_itself() -> None:
    purse = Purse(BudgetPolicy(hard=True, run=Ceiling(nanos=100, tokens=10)))
    purse.hold(1, "a", Money(1, 8))
    assert not purse.top_up(1, Money(2, 11))
    assert purse.top_up(1, Money(90, 8))
    assert not purse.allows("a", Money(11))


calls = st.lists(st.tuples(amounts, st.none() | st.floats(0, 1)), max_size=20)


@given(calls, st.integers(0, 100), amounts, st.none() | amounts)
def test_an_attempt_never_begins_a_call_that_it_can_not_pay(
    told: list[tuple[int, float | None]], total: int, aside: int, unseen: int | None
) -> None:
    allowance = Allowance(Money(total + aside), aside=Money(aside))
    begun: list[tuple[int, int | None]] = []
    for most, share in told:
        if allowance.hold(Money(most)):
            cost = None if share is None else int(most * share)
            begun.append((most, cost))
            if most % 3:  # the others are under way until the end
                allowance.end(Money(most), None if cost is None else Money(cost))
        assert sum(most if cost is None else cost for most, cost in begun) <= total
    over = allowance.spending(None if unseen is None else Money(unseen))
    most = sum(most if cost is None else cost for most, cost in begun)
    least = sum(cost or 0 for _, cost in begun)
    assert over.spent.nanos + over.possible.nanos >= most - 0
    assert over.spent.nanos <= least + (unseen or 0 if aside else 0)
    assert aside == 0 or unseen is not None or over.possible.nanos >= aside


def test_a_dollar_is_rounded_so_that_nothing_is_missing() -> None:
    assert Money.of(1e-10) == Money(1)
    assert Ceiling.of(0.1 + 0.2, None).nanos == 300_000_000
    assert not Ceiling.of(1.0, None).allows(Money.of(1.0000000001))
