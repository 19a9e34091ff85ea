"""Leases that end without a seal: death, silence, stalls, and what becomes of their cases. Pure."""

from __future__ import annotations

from evalfleet.errors import FailureKind
from evalfleet.model.record import Intent, IntentKind, LostAttempt, SettleWithout
from evalfleet.model.verdict import Settlement, Verdict
from evalfleet.scheduling import grants
from evalfleet.scheduling.events import Departure, WorkerGone
from evalfleet.scheduling.state import Lease, OpenCase, Phase, RunState, WorkerView

RECONCILE = "EXTERNAL_WRITE_RESUME_REQUIRES_RECONCILIATION"

#: An attempt that may have written outside failed, and is to be repeated: only a person can say that it may.
RECONCILE_FIRST = "EXTERNAL_WRITE_RETRY_REQUIRES_RECONCILIATION"
CRASHED = "WORKER_CRASHED"

#: Why a worker's leases ended: kind, code, and whether the cases are suspected of it.
_LOSSES: dict[Departure, tuple[FailureKind, str, bool]] = {
    Departure.CRASHED: (FailureKind.WORKER, CRASHED, True),
    Departure.KILLED: (FailureKind.WORKER, "WORKER_STALLED", True),
    Departure.OUT_OF_MEMORY: (FailureKind.WORKER, "WORKER_OOM", False),
    Departure.DRAINED: (FailureKind.INFRASTRUCTURE, "WORKER_DRAINED", False),
}


def worker_gone(state: RunState, event: WorkerGone, now: float) -> None:
    """A worker ended. An unreachable one may live on: its leases wait for their end."""
    if state.roster is not None:
        state.roster -= {event.worker}
    worker = state.workers.get(event.worker)
    if worker is None or worker.gone:
        return
    worker.poll = None
    if event.how is Departure.UNREACHABLE:
        worker.reachable = False
        return
    kind, code, blamed = _LOSSES[Departure.KILLED if worker.killed else event.how]
    if event.how is Departure.OUT_OF_MEMORY:
        # Ray kills the youngest process, not the fattest: only its own last word shows that it was this one.
        blamed = worker.rss >= state.policy.memory_suspicion
    for lease in list(worker.leases.values()):
        lose(state, lease, kind, code, blamed=blamed)
    # The view stays, so that a late message of the dead worker is known for what it is.
    worker.gone, worker.busy = True, False


def lose(state: RunState, lease: Lease, kind: FailureKind, code: str, *, blamed: bool) -> None:
    """End a lease without a seal: it becomes an interrupted attempt, its case is requeued or decided."""
    case = state.cases[lease.ordinal]
    announcing = case.phase is Phase.ANNOUNCING
    blamed = blamed and not lease.isolated
    grants.release(state, case)
    if announcing:
        # The grant never left, so nothing ran and nothing is to be recorded.
        state.buffer.closed.append(lease.attempt)
        grants.never_began(state, lease.attempt)
        grants.make_ready(state, case)
        return
    state.buffer.lost.append(
        LostAttempt(lease.attempt, case.ordinal, lease.worker, kind, code, lease.wall, blamed=blamed)
    )
    after_loss(state, case, lease.attempt, kind, code, blamed=blamed)


def after_loss(state: RunState, case: OpenCase, attempt: int, kind: FailureKind, code: str, *, blamed: bool) -> None:
    """What becomes of a case that lost an attempt."""
    if case.decided:
        del state.cases[case.ordinal]
        return
    case.last_attempt = attempt
    if blamed:
        case.crashes += 1
    else:
        case.lost += 1
    if case.external and not case.recorded:
        decide_without(state, case, SettleWithout(case.ordinal, Settlement.BLOCKED, code=RECONCILE))
    elif not quarantine(state, case, kind, code):
        grants.make_ready(state, case)


def quarantine(state: RunState, case: OpenCase, kind: FailureKind | None, code: str | None) -> bool:
    """Settle a case as errored when it spent its attempts; False when it may be tried again.

    Without `kind` and `code` the row of its last attempt says why.
    """
    policy = state.policy
    if case.crashes < policy.crash_limit and case.lost < policy.loss_limit and case.attempts < policy.max_attempts:
        return False
    lost = SettleWithout(case.ordinal, Settlement.ATTEMPT, Verdict.ERRORED, kind, code, case.last_attempt)
    decide_without(state, case, lost)
    return True


def decide_without(state: RunState, case: OpenCase, settlement: SettleWithout) -> None:
    """Settle a case without a sealed attempt at the next commit."""
    case.phase = Phase.COMMITTING
    state.buffer.settled.append(settlement)


def expire(state: RunState, now: float) -> None:
    """End the leases of workers that were silent for the whole lease time and its grace."""
    limit = state.policy.lease_ttl + state.policy.lease_grace
    for worker in list(state.workers.values()):
        if now - worker.heard_at < limit or worker.poll is not None:
            continue
        for lease in list(worker.leases.values()):
            lose(state, lease, FailureKind.INFRASTRUCTURE, "LEASE_EXPIRED", blamed=False)
        worker.busy = False
        worker.durable.clear()


def shift(state: RunState, gap: float) -> None:
    """Move every expiry by the time this process was paused; the epoch's confirmation grows old all the same."""
    for worker in state.workers.values():
        worker.heard_at += gap
        worker.poll_since += gap
        worker.answered_at += gap
    state.adoption_ends += gap


def announce_old(state: RunState, now: float) -> None:
    """Write an intent for each lease that has grown old, so that its loss is known after any restart."""
    for worker in state.workers.values():
        for lease in worker.leases.values():
            if not lease.announced and now - lease.granted_at >= state.policy.announce_after:
                lease.announced = True
                state.buffer.intents.append(Intent(lease.attempt, lease.ordinal, worker.id, IntentKind.LEASE))


def overdue(state: RunState, now: float) -> list[WorkerView]:
    """Workers to kill: silent although their poll was answered, or holding an attempt far past its deadline."""
    found: list[WorkerView] = []
    deadline = state.policy.attempt_timeout
    for worker in state.workers.values():
        if worker.killed or not worker.reachable:
            continue
        stalled = worker.poll is None and worker.leases and now - worker.answered_at >= state.policy.stall_limit
        late = deadline is not None and any(
            lease.worked(now) >= deadline + state.policy.kill_grace for lease in worker.leases.values()
        )
        if stalled or late:
            worker.killed = True
            found.append(worker)
    return found
