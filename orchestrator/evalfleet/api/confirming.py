"""Whether a run may begin that may cost more than its experiment lets pass unasked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from evalfleet.api.session import Session
from evalfleet.errors import ConfigurationError
from evalfleet.planning.plan import Plan
from evalfleet.planning.reuse import Action, ActionKind, History
from evalfleet.reports.cost_estimate import CostEstimate, estimate_line, estimated
from evalfleet.reports.figures import money
from evalfleet.store.connection import connect
from evalfleet.store.past_costs import PastCost, past_costs


async def known_costs(session: Session, plan: Plan) -> dict[str, PastCost]:
    """What earlier runs know of the cost of the plan's arms."""
    arms = [(arm.name, arm.settings.model) for arm in plan.arms]
    async with await connect(session.url, autocommit=True) as connection:
        return await past_costs(connection, str(plan.project), arms)


async def confirm_cost(
    session: Session, plan: Plan, history: History, asked: Callable[[CostEstimate], bool] | None
) -> None:
    """Ask whether the plan may run, if it may cost more than `budget.confirm_usd`.

    Raises ConfigurationError when nobody can be asked, or the answer is no.
    """
    if plan.experiment.budget.confirm_usd is not None:
        confirm(plan, plan.actions(history), await known_costs(session, plan), asked)


def confirm(
    plan: Plan,
    actions: Iterable[Action],
    costs: Mapping[str, PastCost],
    asked: Callable[[CostEstimate], bool] | None,
) -> None:
    """The same for a plan whose actions and earlier costs are known."""
    limit = plan.experiment.budget.confirm_usd
    if limit is None:
        return
    estimate = estimated(Counter(action.case.arm for action in actions if action.kind is ActionKind.RUN), costs)
    if not estimate.exceeds(limit):
        return
    if asked is None:
        message = f"{estimate_line(estimate)}, and budget.confirm_usd is {money(limit)}: say --yes to let the run begin"
        raise ConfigurationError(message)
    if not asked(estimate):
        raise ConfigurationError("no run was begun: its cost was not confirmed")
