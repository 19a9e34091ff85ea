"""From a sealed attempt to a settled case: what is committed, and what the commit means. Pure."""

from __future__ import annotations

from evalfleet.errors import FailureKind
from evalfleet.model.record import (
    AttemptWrite,
    Charge,
    Committed,
    IntentKind,
    LostAttempt,
    PendingCase,
    SealedAttempt,
    SettleWithout,
)
from evalfleet.model.verdict import Outcome, RunStatus, Settlement, Verdict
from evalfleet.scheduling import admission, early_exit, grants, losses, recordings, spending
from evalfleet.scheduling.events import PageRead, StopAsked
from evalfleet.scheduling.messages import CommandKind, WorkerCommand
from evalfleet.scheduling.state import OpenCase, Phase, RunState, WorkerView

_FRACTION = 1 << 16


def sealed(state: RunState, worker: WorkerView, seal: SealedAttempt, now: float) -> None:
    """Queue a sealed attempt for the next commit; a repeated delivery has no effect."""
    if seal.attempt in state.buffer.attempts or _in_flight(state, seal.attempt):
        return
    case = state.cases.get(seal.case)
    if case is None:
        case = state.cases[seal.case] = OpenCase(seal.case, Phase.UNREAD)
    lease = None
    if case.lease is not None and case.lease.attempt == seal.attempt:
        lease = grants.release(state, case)
        if lease is not None and lease.announced:
            _close_intent(state, seal)
    elif (intent := state.open_intents.pop(seal.attempt, None)) is not None:
        case.external = case.external or intent.kind is IntentKind.EXTERNAL
        _close_intent(state, seal)
    elif state.purse is not None and seal.attempt in state.purse.open:
        _close_intent(state, seal)
    if case.lease is None:
        case.phase = Phase.COMMITTING
    excused = admission.ended(state, case, lease, seal, now) and not case.external
    write = AttemptWrite(seal, worker.id, settles=not excused and settles(state, case, seal), excused=excused)
    recordings.spend(state, case, seal)
    state.buffer.attempts[seal.attempt] = write
    state.buffer.size += seal.rows.size


def _close_intent(state: RunState, seal: SealedAttempt) -> None:
    if state.purse is not None and seal.attempt in state.purse.open:
        state.buffer.charges.append(Charge(seal.attempt, spending.spending_of(state.purse, seal)))
    else:
        state.buffer.closed.append(seal.attempt)


def _in_flight(state: RunState, attempt: int) -> bool:
    return state.inflight is not None and attempt in state.buffer.taken


def settles(state: RunState, case: OpenCase, seal: SealedAttempt) -> bool:
    """Whether this attempt decides its case: completed ones do, errored ones when no retry is left."""
    if seal.outcome is Outcome.COMPLETED:
        return True
    if seal.outcome is not Outcome.ERRORED:
        return False
    if case.external:
        return True
    if seal.code == losses.CRASHED and case.crashes + 1 >= state.policy.crash_limit:
        return True
    return seal.kind not in state.policy.retry_on or case.attempts + 1 >= state.policy.max_attempts


def committed(state: RunState, result: Committed, now: float) -> None:
    """Apply what the store says it did: counts come from returned rows only."""
    batch, state.inflight = state.inflight, None
    if batch is None:
        return
    recordings.committed(state, batch)
    if state.purse is not None:
        for lost in batch.lost:
            state.purse.lose(lost.attempt)
    for write in batch.attempts:
        _attempt_committed(state, write, result, now)
    for lost in batch.lost:
        case = state.cases.get(lost.case)
        if case is not None and case.pending is None:
            # The page will read this loss from the store, so the window forgets it.
            case.crashes -= lost.blamed
            case.lost -= not lost.blamed
    for settlement in batch.settled:
        _settled_without(state, settlement, result)
    for intent in batch.intents:
        spending.reserved(state, intent)
        grants.announced(state, intent, now)


def _attempt_committed(state: RunState, write: AttemptWrite, result: Committed, now: float) -> None:
    seal = write.sealed
    worker = state.workers.get(write.worker)
    if worker is not None:
        worker.durable.add(seal.attempt)
        worker.acks.append(seal.attempt)
        worker.want += 1
    inserted = seal.attempt in result.inserted
    if inserted:
        state.spent_usd += seal.cost_usd or 0.0
        state.judge_usd += seal.judge_usd
        state.unknown_judge_cost += seal.unknown_judge_cost
        if seal.kind is not None:
            state.kinds[seal.kind.value] = state.kinds.get(seal.kind.value, 0) + 1
    case = state.cases.get(seal.case)
    if inserted or seal.attempt in result.rejected:
        pending = None if case is None else case.pending
        spending.settled(state, seal, "" if pending is None else pending.case.arm)
    if seal.attempt in result.rejected:
        _rejected(state, write, now)
    elif seal.attempt in result.settled:
        if seal.verdict is Verdict.PASSED:
            early_exit.passed(state, case)
        _count(state, seal.verdict)
        _close(state, seal.case)
    elif case is None or case.phase is not Phase.COMMITTING:
        return
    elif case.decided or (inserted and write.settles):
        _close(state, seal.case)
    elif write.settles:
        # The store knew this attempt: settled before our time, or recorded as lost and its case open again.
        grants.make_ready(state, case)
    else:
        _retry(state, case, write, now, inserted=inserted)


def _retry(state: RunState, case: OpenCase, write: AttemptWrite, now: float, *, inserted: bool) -> None:
    seal = write.sealed
    if case.external and not case.recorded:
        blocked = SettleWithout(case.ordinal, Settlement.BLOCKED, code=losses.RECONCILE)
        losses.decide_without(state, case, blocked)
        return
    if inserted and case.pending is not None:
        if seal.outcome is Outcome.ERRORED:
            case.attempts += not write.excused
            case.crashes += seal.code == losses.CRASHED
        else:
            case.lost += 1
    case.last_attempt, case.failed = seal.attempt, seal.outcome is Outcome.ERRORED
    if case.pending is None or state.stopping is not None:
        grants.make_ready(state, case)
        return
    if losses.quarantine(state, case, seal.kind, seal.code):
        # Its body was read only after this seal had been queued, and it was the last attempt it had.
        return
    case.phase = Phase.BACKOFF
    case.due = now + backoff(state, case, seal)


def backoff(state: RunState, case: OpenCase, seal: SealedAttempt) -> float:
    """Seconds until a retry: exponential with jitter from the attempt's id, at least what was asked for."""
    policy = state.policy
    exponential = min(policy.backoff_cap, policy.backoff_base * 2.0 ** max(0, case.attempts - 1))
    fraction = (seal.attempt * 0x9E3779B97F4A7C15 >> 13) % _FRACTION / _FRACTION
    return max(exponential * (0.5 + fraction / 2), seal.retry_after or 0.0)


def _rejected(state: RunState, write: AttemptWrite, now: float) -> None:
    """The database can't hold this record: the attempt is kept as interrupted and its case errored."""
    seal = write.sealed
    state.buffer.lost.append(
        LostAttempt(
            seal.attempt,
            seal.case,
            write.worker,
            FailureKind.INFRASTRUCTURE,
            "RECORD_REJECTED",
            state.wall(now),
            blamed=False,
            pages_complete=False,
        )
    )
    case = state.cases.get(seal.case)
    if case is not None and case.phase is Phase.COMMITTING:
        settlement = SettleWithout(
            seal.case,
            Settlement.ATTEMPT,
            Verdict.ERRORED,
            FailureKind.INFRASTRUCTURE,
            "RECORD_REJECTED",
            seal.attempt,
        )
        losses.decide_without(state, case, settlement)


def _settled_without(state: RunState, settlement: SettleWithout, result: Committed) -> None:
    if settlement.case in result.settled_cases:
        _count(state, settlement.verdict or settlement.how)
    _close(state, settlement.case)


def _count(state: RunState, what: Verdict | Settlement) -> None:
    state.settled += 1
    state.tallies[what.value] = state.tallies.get(what.value, 0) + 1
    if what is not Verdict.ERRORED:
        return
    state.failures += 1
    limit_failures(state)


def limit_failures(state: RunState) -> None:
    """Stop granting once too many cases errored, be it before this incarnation."""
    limit = state.policy.max_failures
    if limit is not None and state.failures >= limit and state.stopping is None:
        state.stopping = StopAsked(RunStatus.LIMITED, f"max_failures of {limit} reached: {state.failures} errored")


def limit_wall(state: RunState, now: float) -> None:
    """Stop granting once the run is as old as it may get."""
    limit = state.policy.wall
    if limit is not None and now - state.began >= limit and state.stopping is None:
        state.stopping = StopAsked(RunStatus.LIMITED, f"budget.wall of {limit:g} s is over")


def _close(state: RunState, ordinal: int) -> None:
    """The case is settled: it leaves the window as soon as nobody works on it any more."""
    case = state.cases.get(ordinal)
    if case is None:
        return
    if case.lease is None:
        del state.cases[ordinal]
        return
    case.decided = True
    holder = state.workers[case.lease.worker]
    holder.commands.append(WorkerCommand(CommandKind.CANCEL, case.lease.attempt, "its case is settled"))


def wake(state: RunState, now: float) -> None:
    """Put retries whose backoff is over back into the queue."""
    for case in state.cases.values():
        if case.phase is Phase.BACKOFF and case.due <= now:
            grants.make_ready(state, case)


def page_read(state: RunState, page: PageRead) -> None:
    """Take in a page of unsettled cases. No commit ran meanwhile, so counts in the window are on top of it."""
    state.loading = False
    # What was never tried comes first: should an outage go on, no case has to stand all of it.
    for pending in sorted(page.cases, key=lambda pending: pending.attempts > 0):
        _take_in(state, pending)
    named = {pending.case.ordinal for pending in page.cases}
    end = state.total - 1 if page.last else page.cases[-1].case.ordinal
    gone = [
        case.ordinal
        for case in state.cases.values()
        if case.phase is Phase.UNREAD and case.ordinal <= end and case.ordinal not in named
    ]
    for ordinal in gone:
        del state.cases[ordinal]
    state.cursor = end
    state.read_all = page.last


def _take_in(state: RunState, pending: PendingCase) -> None:
    ordinal = pending.case.ordinal
    case = state.cases.get(ordinal)
    if case is None:
        case = state.cases[ordinal] = OpenCase(ordinal, Phase.UNREAD)
    case.pending = pending
    case.failed = case.failed or pending.attempts > 0
    case.external = case.external or pending.case.external
    recordings.read(state, case, pending)
    case.attempts += pending.attempts
    case.crashes += pending.crashes
    case.lost += pending.lost
    case.last_attempt = case.last_attempt or pending.last_attempt
    if case.phase is Phase.UNREAD:
        if pending.unreconciled and not case.recorded:
            blocked = SettleWithout(ordinal, Settlement.BLOCKED, code=losses.RECONCILE_FIRST)
            losses.decide_without(state, case, blocked)
        elif not losses.quarantine(state, case, None, None):
            grants.make_ready(state, case)
    elif case.lease is not None:
        arm = pending.case.arm
        state.leased_by_arm[arm] = state.leased_by_arm.get(arm, 0) + 1
