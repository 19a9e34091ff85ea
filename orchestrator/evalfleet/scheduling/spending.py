"""A run's budget in its scheduling: who is given money, who waits for it, and when none is left. Pure."""

from __future__ import annotations

from typing import Any

from evalfleet.model.money import Ceiling, Money, Spending
from evalfleet.model.record import Intent, IntentKind, SealedAttempt
from evalfleet.model.verdict import RunStatus
from evalfleet.scheduling.events import StopAsked
from evalfleet.scheduling.messages import CommandKind, LiveAttempt, TopUp, WorkerCommand
from evalfleet.scheduling.money import Figures, Purse
from evalfleet.scheduling.state import Lease, Phase, RunState, WorkerView


def admits(state: RunState, arm: str) -> bool:
    """Whether an attempt of the arm may begin, as far as that is a matter of money."""
    purse = state.purse
    if purse is None:
        return True
    if arm in purse.closed or purse.short or arm in purse.short_arms:
        return False
    whole = purse.policy.whole.get(arm) if purse.policy.hard else None
    return purse.leaves(arm) and (whole is None or purse.allows(arm, whole))


def asked(state: RunState, worker: WorkerView, live: LiveAttempt) -> None:
    """Take in what an attempt asks for; one that has it, and does not know, is told again."""
    purse = state.purse
    held = None if purse is None else purse.open.get(live.attempt)
    if purse is None or held is None:
        return
    if live.attempt in purse.ended:
        _tell_to_end(worker, live.attempt)  # a command may be lost
        return
    if live.asks is None:
        purse.asking.pop(live.attempt, None)
    elif not held.amount.covers(live.asks):
        purse.asking[live.attempt] = live.asks
        if not held.amount:
            purse.usual[held.arm] = _larger(live.asks, purse.usual.get(held.arm, Money()))
    elif live.attempt not in purse.topping:
        worker.top_ups.append(TopUp(live.attempt, held.amount))


def _larger(one: Money, other: Money) -> Money:
    return Money(max(one.nanos, other.nanos), max(one.tokens, other.tokens))


def mind(state: RunState, *, look: bool) -> None:
    """Give money to those that ask for it; `look` whether any is left."""
    if state.purse is None:
        return
    top_up(state)
    if look:
        limit(state)


def top_up(state: RunState) -> None:
    """Reserve what attempts ask for, who began first comes first; it leaves once it is committed."""
    purse = state.purse
    if purse is None:
        return
    purse.short = False
    purse.short_arms.clear()
    if not purse.asking:
        return
    leases = _leases(state)
    for attempt in sorted(purse.asking):
        lease, wanted = leases.get(attempt), purse.asking[attempt]
        if lease is None or attempt in purse.topping or attempt in purse.ended:
            continue
        arm = purse.open[attempt].arm
        if not purse.short and arm not in purse.short_arms and purse.top_up(attempt, wanted):
            del purse.asking[attempt]
            purse.topping.add(attempt)
            reserved = purse.open[attempt].amount
            state.buffer.intents.append(Intent(attempt, lease.ordinal, lease.worker, IntentKind.SPEND, reserved))
        elif purse.run_allows(wanted - purse.open[attempt].amount):
            purse.short_arms.add(arm)
        else:
            purse.short = True


def reserved(state: RunState, intent: Intent) -> None:
    """What was reserved for an attempt is durable: it may be spent."""
    purse = state.purse
    if purse is None or intent.attempt not in purse.topping:
        return
    purse.topping.discard(intent.attempt)
    case = state.cases.get(intent.case)
    if case is not None and case.lease is not None and case.lease.attempt == intent.attempt:
        state.workers[case.lease.worker].top_ups.append(TopUp(intent.attempt, purse.open[intent.attempt].amount))


def settled(state: RunState, seal: SealedAttempt, arm: str) -> None:
    """The row of a sealed attempt is committed."""
    purse = state.purse
    if purse is None:
        return
    if seal.attempt in purse.open:
        purse.settle(seal.attempt, spending_of(purse, seal))
    elif not purse.policy.hard:
        purse.charge(arm, Money.of((seal.cost_usd or 0.0) + seal.judge_usd, seal.tokens))


def spending_of(purse: Purse, seal: SealedAttempt) -> Spending:
    """What a sealed attempt spent: by its allowance, else by its row, else all that it might."""
    if seal.spending is not None:
        return seal.spending
    if seal.cost_usd is None or seal.tokens is None or seal.unknown_judge_cost:
        return Spending(possible=purse.open[seal.attempt].amount)
    return Spending(Money.of(seal.cost_usd + seal.judge_usd, seal.tokens))


def adopted(state: RunState, attempt: int, arm: str) -> None:
    """An attempt of an earlier epoch goes on; one that nothing was reserved for has to ask first."""
    purse = state.purse
    if purse is not None and purse.policy.hard and attempt not in purse.open:
        purse.hold(attempt, arm, Money())


# --- the end of the money -----------------------------------------------------------------------------------------


def limit(state: RunState) -> None:
    """End what can never be paid for, begin nothing more where nothing is left, and stop the run when nothing can."""
    purse = state.purse
    if purse is None or state.adopting:
        return
    if purse.asking:
        _end_stuck(state, purse)
    for arm, queue in state.ready.items():
        if queue and arm not in purse.closed and _is_used_up(state, purse, arm):
            purse.closed.add(arm)
    if purse.closed and state.stopping is None and _nothing_else_left(state, purse):
        purse.used_up = True
        state.stopping = StopAsked(RunStatus.LIMITED, words(state))


def _end_stuck(state: RunState, purse: Purse) -> None:
    """Where every attempt that could give money back waits for money itself, who began last is ended."""
    leases = _leases(state)
    waiting = [attempt for attempt in sorted(purse.asking) if attempt in leases]
    scopes = [set(purse.arms)] if purse.short else [{arm} for arm in sorted(purse.short_arms)]
    for arms in scopes:
        stuck = [attempt for attempt in waiting if purse.open[attempt].arm in arms]
        if not stuck or _may_free(state, purse, leases, arms):
            continue
        purse.closed |= arms
        if purse.short and state.stopping is None:
            purse.used_up = True
            state.stopping = StopAsked(RunStatus.LIMITED, words(state))
        penniless = [attempt for attempt in stuck if not purse.open[attempt].amount]
        for attempt in penniless or stuck[-1:]:
            purse.ended.add(attempt)
            _tell_to_end(state.workers[leases[attempt].worker], attempt)


def _tell_to_end(worker: WorkerView, attempt: int) -> None:
    worker.commands.append(WorkerCommand(CommandKind.CANCEL, attempt, "the budget is used up"))


def _is_used_up(state: RunState, purse: Purse, arm: str) -> bool:
    """Whether no attempt of the arm can begin any more, whatever those that have begun give back."""
    if admits(state, arm):
        return False
    if not purse.policy.hard:
        return True
    by_run = purse.short or not purse.policy.run.leaves(purse.run.total)
    by_run = by_run or not purse.run_allows(purse.policy.whole.get(arm, Money()))
    return not _may_free(state, purse, _leases(state), set(purse.arms) if by_run else {arm})


def _may_free(state: RunState, purse: Purse, leases: dict[int, Lease], arms: set[str]) -> bool:
    """Whether an attempt of these arms may give money back without being given more first."""
    for attempt, held in purse.open.items():
        if held.arm not in arms or (attempt in purse.asking and attempt not in purse.ended):
            continue
        if attempt in leases or attempt in state.buffer.attempts or attempt in state.buffer.taken:
            return True
    return False


def _nothing_else_left(state: RunState, purse: Purse) -> bool:
    waiting = sum(len(queue) for queue in state.ready.values())
    if state.loading or not state.cases or not (state.read_all or waiting >= state.policy.page_size):
        return False
    return all(
        case.pending is not None and case.pending.case.arm in purse.closed and case.phase is not Phase.COMMITTING
        for case in state.cases.values()
    )


def _leases(state: RunState) -> dict[int, Lease]:
    return {attempt: lease for worker in state.workers.values() for attempt, lease in worker.leases.items()}


# --- what is shown ------------------------------------------------------------------------------------------------


def shown(state: RunState) -> dict[str, Any]:
    """The budget as `RunProgress.budget` has it; empty without one."""
    purse = state.purse
    if purse is None:
        return {}
    arms = {arm: _figures(ceiling, purse.of(arm)) for arm, ceiling in purse.policy.arms.items()}
    return {**_figures(purse.policy.run, purse.run), **({"arms": arms} if arms else {})}


def _figures(ceiling: Ceiling, figures: Figures) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    parts = {"spent": figures.spent, "possible": figures.possible, "reserved": figures.reserved}
    if ceiling.nanos is not None:
        found["usd"] = {"limit": Money(ceiling.nanos).usd, **{name: part.usd for name, part in parts.items()}}
    if ceiling.tokens is not None:
        found["tokens"] = {"limit": ceiling.tokens, **{name: part.tokens for name, part in parts.items()}}
    return found


def words(state: RunState) -> str:
    """The three figures of the run's budget, and of those of arms that are used up."""
    purse, found = state.purse, shown(state)
    if purse is None:
        return ""
    parts = [f"budget.{what} {_told(found[what])}" for what in ("usd", "tokens") if what in found]
    for arm, of_arm in found.get("arms", {}).items():
        if arm in purse.closed:
            parts += [f"budget.arms.{arm}.{what} {_told(figures)}" for what, figures in of_arm.items()]
    return "; ".join(parts)


def _told(figures: dict[str, float]) -> str:
    limit, *rest = (f"{value:,}" if isinstance(value, int) else f"{value:.6g}" for value in figures.values())
    return f"of {limit}: {', '.join(f'{value} {name}' for value, name in zip(rest, list(figures)[1:], strict=True))}"


def final_reason(state: RunState, reason: str | None) -> str | None:
    """Why the run ended, with the figures of its end where that is its budget."""
    return words(state) if state.purse is not None and state.purse.used_up else reason
