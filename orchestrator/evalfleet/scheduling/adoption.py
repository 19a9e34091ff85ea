"""After a claim: nothing is granted until the leases of the earlier epoch are known. Pure."""

from __future__ import annotations

from evalfleet.errors import FailureKind
from evalfleet.model.record import IntentKind, LostAttempt, OpenIntent
from evalfleet.scheduling import grants, losses, spending
from evalfleet.scheduling.messages import CommandKind, LiveAttempt, WorkerCommand
from evalfleet.scheduling.state import Adoption, Lease, OpenCase, Phase, RunState, WorkerView


def adopt(state: RunState, worker: WorkerView, live: LiveAttempt, now: float) -> bool:
    """Take over a lease that an earlier epoch granted; of two for one case the older grant stays."""
    case = state.cases.get(live.case)
    if case is None:
        case = state.cases[live.case] = OpenCase(live.case, Phase.UNREAD)
    if case.phase is Phase.COMMITTING or case.decided:
        return False
    if case.lease is not None:
        if case.lease.attempt < live.attempt:
            return False
        _cancel(state, case)
    intent = state.open_intents.pop(live.attempt, None)
    if intent is not None and intent.kind is IntentKind.EXTERNAL:
        case.external = True
    case.phase = Phase.LEASED
    case.lease = Lease(
        live.attempt, live.case, worker.id, worker.seq, now, state.wall(now), announced=intent is not None
    )
    worker.leases[live.attempt] = case.lease
    state.leased += 1
    spending.adopted(state, live.attempt, "" if case.pending is None else case.pending.case.arm)
    if case.pending is not None:
        arm = case.pending.case.arm
        state.leased_by_arm[arm] = state.leased_by_arm.get(arm, 0) + 1
    return True


def _cancel(state: RunState, case: OpenCase) -> None:
    lease = grants.release(state, case)
    if lease is not None:
        holder = state.workers[lease.worker]
        holder.commands.append(WorkerCommand(CommandKind.CANCEL, lease.attempt, "an older grant of its case lives"))


def finish_when_due(state: RunState, now: float) -> None:
    """End the adoption phase once every worker has reported or one lease time has passed."""
    reported = (
        state.adoption is Adoption.ROSTER
        and state.roster is not None
        and all(name in state.workers and state.workers[name].epoch_seen >= state.epoch for name in state.roster)
    )
    if not reported and now < state.adoption_ends:
        return
    state.adopting = False
    for intent in list(state.open_intents.values()):
        state.buffer.lost.append(
            LostAttempt(
                intent.attempt,
                intent.case,
                intent.worker,
                FailureKind.INFRASTRUCTURE,
                "RUN_INTERRUPTED",
                intent.created_at,
                blamed=False,
                pages_complete=False,
            )
        )
        _lost_before_claim(state, intent)
    state.open_intents.clear()


def _lost_before_claim(state: RunState, intent: OpenIntent) -> None:
    case = state.cases.get(intent.case)
    if case is None:
        case = state.cases[intent.case] = OpenCase(intent.case, Phase.UNREAD)
    case.external = case.external or intent.kind is IntentKind.EXTERNAL
    case.recorded = case.recorded or intent.recorded
    if case.lease is not None or case.phase is Phase.COMMITTING:
        case.lost += 1
        return
    losses.after_loss(state, case, intent.attempt, FailureKind.INFRASTRUCTURE, "RUN_INTERRUPTED", blamed=False)
