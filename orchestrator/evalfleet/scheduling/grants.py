"""Who gets which case: limits, announced leases and the moment a grant is put into a reply. Pure."""

from __future__ import annotations

from collections import deque

from evalfleet.model.ids import attempt_id
from evalfleet.model.money import Money
from evalfleet.model.record import Intent, IntentKind
from evalfleet.scheduling import admission, early_exit, spending
from evalfleet.scheduling.messages import Grant
from evalfleet.scheduling.state import Lease, OpenCase, Phase, RunState, WorkerView


def assign(state: RunState, now: float) -> None:
    """Grant pending cases to workers with an open poll and free lanes, within every limit."""
    if not _may_grant(state, now):
        return
    _hand_over_announced(state)
    room = state.policy.concurrency - state.working
    for worker in _hungry(state):
        while worker.want > 0 and room > 0:
            case = _next_ready(state, now)
            if case is None:
                return
            _lease(state, case, worker, now)
            room -= 1


def _may_grant(state: RunState, now: float) -> bool:
    return (
        not state.adopting
        and state.stopping is None
        and not state.over
        and now - state.confirmed_at < state.policy.lease_ttl / 2
        and state.buffer.size < state.policy.buffer_limit
    )


def _hungry(state: RunState) -> list[WorkerView]:
    """Workers that can take a grant in the reply to their newest request, the emptiest first."""
    open_polls = [
        w for w in state.workers.values() if w.poll is not None and w.want > 0 and w.reachable and not w.killed
    ]
    return sorted(open_polls, key=lambda worker: (len(worker.leases), worker.id))


def _next_ready(state: RunState, now: float) -> OpenCase | None:
    """The pending case that comes first in planned order among the arms that nothing holds back."""
    best: OpenCase | None = None
    for arm, queue in state.ready.items():
        if not queue or not spending.admits(state, arm) or not admission.admits(state, arm, now):
            continue
        while queue:
            case = state.cases.get(queue[0])
            if case is not None and case.phase is Phase.PENDING:
                if early_exit.is_needed(state, case):
                    break
                early_exit.skip(state, case)
            queue.popleft()
        if queue:
            case = state.cases[queue[0]]
            if best is None or case.ordinal < best.ordinal:
                best = case
    if best is not None and best.pending is not None:
        state.ready[best.pending.case.arm].popleft()
    return best


def _lease(state: RunState, case: OpenCase, worker: WorkerView, now: float) -> None:
    assert worker.poll is not None and case.pending is not None
    identifier = attempt_id(state.epoch, state.counter)
    state.counter += 1
    case.lease = Lease(identifier, case.ordinal, worker.id, worker.poll, now, state.wall(now))
    worker.leases[identifier] = case.lease
    worker.want -= 1
    state.leased += 1
    arm = case.pending.case.arm
    state.leased_by_arm[arm] = state.leased_by_arm.get(arm, 0) + 1
    admission.granted(state, case, arm, case.lease)
    purse = state.purse if state.purse is not None and state.purse.policy.hard else None
    again = case.attempts or case.crashes or case.lost or case.recorded or case.begun
    if case.pending.case.external or again or purse is not None:
        # Announced before the act: the grant leaves only after the intent is durable.
        case.phase, case.lease.announced = Phase.ANNOUNCING, True
        writes = case.pending.case.external and not case.recorded
        spends = IntentKind.LEASE if purse is None else IntentKind.SPEND
        reserved = Money() if purse is None else purse.begin(identifier, arm)
        kind = IntentKind.EXTERNAL if writes else spends
        state.buffer.intents.append(Intent(identifier, case.ordinal, worker.id, kind, reserved))
        return
    hand_over(state, case, worker)


def hand_over(state: RunState, case: OpenCase, worker: WorkerView) -> None:
    """Put the grant of a leased case into its worker's next reply."""
    assert case.pending is not None and case.lease is not None
    held = None if state.purse is None else state.purse.open.get(case.lease.attempt)
    case.phase, case.lease.isolated = Phase.LEASED, case.crashes > 0 and _may_be_alone(state, case)
    grant = Grant(
        case.lease.attempt,
        case.pending.case,
        isolated=case.lease.isolated,
        recorded=case.recorded,
        begun=case.begun and not case.recorded,
        allowance=None if held is None else held.amount,
    )
    worker.grants.append(grant)


def _may_be_alone(state: RunState, case: OpenCase) -> bool:
    """A process of its own can ask for no money, so there an attempt must have all of it from the beginning."""
    assert case.pending is not None
    purse = state.purse
    return purse is None or not purse.policy.hard or case.pending.case.arm in purse.policy.whole


def announced(state: RunState, intent: Intent, now: float) -> None:
    """An intent is durable: its grant may leave, if its lease still stands and granting is still allowed."""
    case = state.cases.get(intent.case)
    if case is None or case.lease is None or case.lease.attempt != intent.attempt:
        return
    if case.phase is not Phase.ANNOUNCING:
        return
    if not _may_grant(state, now):
        state.buffer.closed.append(intent.attempt)
        release(state, case)
        never_began(state, intent.attempt)
        make_ready(state, case)
        return
    state.workers[case.lease.worker].announced.append(case.ordinal)


def _hand_over_announced(state: RunState) -> None:
    """Grants whose intents are durable leave with the next open poll, and answer that one."""
    for worker in state.workers.values():
        if worker.poll is None or not worker.announced:
            continue
        for ordinal in worker.announced:
            case = state.cases.get(ordinal)
            lease = case.lease if case is not None and case.phase is Phase.ANNOUNCING else None
            if case is not None and lease is not None and lease.worker == worker.id:
                lease.seq = worker.poll
                hand_over(state, case, worker)
        worker.announced = []


def release(state: RunState, case: OpenCase) -> Lease | None:
    """Take the lease off a case and out of every count; the caller decides what becomes of the case."""
    lease, case.lease = case.lease, None
    if lease is None:
        return None
    worker = state.workers.get(lease.worker)
    if worker is not None:
        worker.leases.pop(lease.attempt, None)
        worker.grants = [grant for grant in worker.grants if grant.attempt != lease.attempt]
    state.leased -= 1
    state.parked -= lease.parked
    if state.pace is not None:
        state.pace.gone(lease.attempt)
    if state.purse is not None:
        state.purse.forget(lease.attempt)
    if case.pending is not None:
        state.leased_by_arm[case.pending.case.arm] -= 1
    return lease


def never_began(state: RunState, attempt: int) -> None:
    """A grant did not reach its worker: what was reserved for it is free."""
    if state.purse is not None:
        state.purse.give_back(attempt)


def make_ready(state: RunState, case: OpenCase) -> None:
    """Queue a case for granting; without its body it waits until the page is read.

    One that failed comes last: in an outage others have yet to be tried once.
    """
    if case.pending is None:
        if state.cursor >= case.ordinal:
            # Its page was read while it was leased elsewhere, so it is settled: nothing to grant.
            del state.cases[case.ordinal]
            return
        case.phase = Phase.UNREAD
        return
    case.phase = Phase.PENDING
    queue = state.ready.setdefault(case.pending.case.arm, deque[int]())
    if queue and case.ordinal < queue[0] and not case.failed:
        queue.appendleft(case.ordinal)
    else:
        queue.append(case.ordinal)
