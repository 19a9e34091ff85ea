"""A run's budget as its coordinator keeps it and its attempts are held to it."""

from __future__ import annotations

from collections.abc import Callable

from evalfleet.api.blueprint import RunBlueprint
from evalfleet.execution.allowance import Allowance
from evalfleet.execution.paid_calls import AttemptPurse, Price
from evalfleet.model.money import BudgetPolicy, Ceiling, Money
from evalfleet.scheduling.messages import Grant


def budget_policy(run: RunBlueprint) -> BudgetPolicy | None:
    """What the run may spend, None when nothing limits it.

    Attempts are reserved a whole amount where their calls can't be seen, or nobody can be asked for more.
    """
    experiment = run.experiment
    budget = experiment.budget
    if not budget.limits_spending:
        return None
    apart = run.arms if experiment.isolation == "process" else run.unseen
    whole = Money.of(budget.attempt_usd, budget.attempt_tokens)
    return BudgetPolicy(
        hard=budget.is_hard,
        run=Ceiling.of(budget.usd, budget.tokens),
        arms={name: Ceiling.of(arm.usd, arm.tokens) for name, arm in budget.arms.items()},
        whole={arm: whole for arm in apart},
    )


def attempt_purse(
    run: RunBlueprint, grant: Grant, price: Price | None, ask: Callable[[Money | None], None] | None
) -> AttemptPurse | None:
    """What an attempt pays its model calls from, None without a hard budget."""
    if grant.allowance is None:
        return None
    budget = run.experiment.budget
    aside = Money()
    if grant.case.arm in run.unseen and not grant.recorded:
        aside = Money.of(budget.attempt_usd, budget.attempt_tokens)
    dollars = budget.usd is not None or any(arm.usd is not None for arm in budget.arms.values())
    return AttemptPurse(allowance=Allowance(grant.allowance, aside=aside), price=price, dollars=dollars, ask=ask)
