"""What holds an arm's cases back beside the run's own limits: its limit, its sandboxes, an outage. Pure."""

from __future__ import annotations

from evalfleet.errors import FailureKind
from evalfleet.model.ids import attempt_id
from evalfleet.model.record import SealedAttempt
from evalfleet.model.verdict import RunStatus
from evalfleet.scheduling.breaker import Breaker, Health, tells
from evalfleet.scheduling.events import StopAsked
from evalfleet.scheduling.state import Lease, OpenCase, RunState


def admits(state: RunState, arm: str, now: float) -> bool:
    """Whether a case of the arm may be granted now, as far as that is the arm's own."""
    policy = state.policy
    limit = policy.per_arm.get(arm)
    if limit is not None and state.leased_by_arm.get(arm, 0) >= limit:
        return False
    breaker = state.breakers.get(arm)
    if breaker is not None and not breaker.admits(now):
        return False
    if arm not in policy.sandboxed:
        return True
    if policy.sandboxes is not None and state.leased_sandboxes >= policy.sandboxes:
        return False
    return state.pace is None or state.pace.ready(now)


def granted(state: RunState, case: OpenCase, arm: str, lease: Lease) -> None:
    """A case of the arm is leased: it takes a start, and a probe if the arm is paused."""
    case.failed = False
    if (breaker := state.breakers.get(arm)) is not None:
        breaker.granted(lease.granted_at)
    if state.pace is not None and arm in state.policy.sandboxed:
        tells_start = case.crashes == 0 and not case.recorded
        state.pace.granted(lease.attempt, lease.granted_at, tells=tells_start)


def ended(state: RunState, case: OpenCase, lease: Lease | None, seal: SealedAttempt, now: float) -> bool:
    """Take in what the end of an attempt tells; whether it is excused: its arm fails, not its case."""
    if state.pace is not None and lease is not None and seal.kind is FailureKind.SANDBOX:
        state.pace.cut(lease.granted_at, now)
    failure = tells(seal.kind, seal.code, state.policy.retry_on)
    if failure is None:
        return False
    if case.pending is None:
        # Its arm is known once its page is read. Better one attempt too many than a case lost to an outage.
        return bool(failure) and any(breaker.forgives for breaker in state.breakers.values())
    breaker = state.breakers.get(case.pending.case.arm)
    if breaker is None:
        breaker = state.breakers[case.pending.case.arm] = Breaker()
    breaker.ended(seal.attempt, failure, attempt_id(state.epoch, state.counter), now)
    return bool(failure) and breaker.forgives


def paused(state: RunState) -> dict[str, str]:
    """Why each paused arm is paused."""
    return {arm: breaker.words() for arm, breaker in state.breakers.items() if breaker.health is Health.PAUSED}


def limit_outage(state: RunState) -> None:
    """Stop the run once all that is left waits for arms whose probes failed for too long."""
    limit = state.policy.outage
    given_up = {arm: breaker for arm, breaker in state.breakers.items() if breaker.fails_for >= limit}
    if not given_up or state.stopping is not None or state.loading:
        return
    if all(case.pending is not None and case.pending.case.arm in given_up for case in state.cases.values()):
        why = "; ".join(f"arm {arm}: {breaker.words()}" for arm, breaker in given_up.items())
        state.stopping = StopAsked(RunStatus.LIMITED, f"paused for the {limit:.0f} s of limits.outage, {why}")
