"""The bugs of docs/protocol.md that the simulation must catch, each planted as one small change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from evalfleet.model import ids
from evalfleet.model.record import Committed, PendingCase
from evalfleet.scheduling import decide as decide_module
from evalfleet.scheduling import early_exit, grants, leases, losses, recordings, settling, spending
from evalfleet.scheduling import state as state_module
from evalfleet.scheduling.breaker import Breaker, Health
from evalfleet.scheduling.events import Decision, Event, Exchanged, Reply
from evalfleet.scheduling.messages import ExchangeReply, TopUp
from evalfleet.scheduling.money import Purse
from evalfleet.scheduling.pace import Pace
from evalfleet.scheduling.state import Adoption, Lease, RunState, begin
from evalfleet.scheduling.worker_state import WorkerState
from tests.simulation import world
from tests.simulation.store import SimStore

Plant = Callable[[pytest.MonkeyPatch], None]


def ack_before_commit(patch: pytest.MonkeyPatch) -> None:
    right = decide_module.decide

    def wrong(state: RunState, event: Event, now: float) -> list[Decision]:
        decisions = right(state, event, now)
        if not isinstance(event, Exchanged) or not event.request.sealed:
            return decisions
        acks = tuple(seal.attempt for seal in event.request.sealed)
        hasty = Reply(event.request.worker, event.request.seq, ExchangeReply(state.epoch, acks))
        return [*[d for d in decisions if not (isinstance(d, Reply) and d.worker == hasty.worker)], hasty]

    patch.setattr(decide_module, "decide", wrong)


def epoch_read_without_lock(patch: pytest.MonkeyPatch) -> None:
    """The epoch is compared when a transaction begins, and nothing holds it until the end."""
    patch.setattr(world.World, "fence", lambda self, txn: True)


def grant_freed_by_an_older_list(patch: pytest.MonkeyPatch) -> None:
    right = leases.exchanged

    def wrong(state: RunState, request: Any, now: float) -> list[Decision]:
        worker = state.worker(request.worker, now)
        newest, worker.seq = worker.seq, min(worker.seq, request.seq - 1)
        for lease in worker.leases.values():
            lease.seq = min(lease.seq, request.seq - 1)
        decisions = right(state, request, now)
        worker.seq = max(worker.seq, newest)
        return decisions

    patch.setattr(leases, "exchanged", wrong)


def grant_given_to_an_overtaken_poll(patch: pytest.MonkeyPatch) -> None:
    right = leases.exchanged

    def wrong(state: RunState, request: Any, now: float) -> list[Decision]:
        worker = state.worker(request.worker, now)
        parked = worker.poll
        decisions = right(state, request, now)
        if parked is not None and worker.poll == request.seq:
            worker.poll = parked
        return decisions

    patch.setattr(leases, "exchanged", wrong)


def lost_grant_never_requeued(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leases, "_grant_never_arrived", lambda state, case: None)


def restart_takes_over(patch: pytest.MonkeyPatch) -> None:
    right = world.World.claim

    def wrong(self: world.World, process: Any, *, takeover: bool, adoption: Adoption) -> bool:
        if adoption is Adoption.ROSTER:
            self.store.tables.holder = process.holder
        return right(self, process, takeover=takeover, adoption=adoption)

    patch.setattr(world.World, "claim", wrong)


def no_adoption_phase(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world, "begin", lambda *args, adoption: begin(*args, adoption=Adoption.NONE))


def expiry_after_own_pause(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(losses, "shift", lambda state, gap: None)


def attempt_number_reused_after_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(grants, "attempt_id", lambda epoch, counter: ids.attempt_id(1, counter))


def cost_counted_from_the_message(patch: pytest.MonkeyPatch) -> None:
    right = settling.committed

    def wrong(state: RunState, result: Committed, now: float) -> None:
        batch = state.inflight
        known = set(result.inserted)
        right(state, result, now)
        for write in batch.attempts if batch is not None else ():
            if write.sealed.attempt not in known:
                state.spent_usd += write.sealed.cost_usd or 0.0

    patch.setattr(settling, "committed", wrong)


def crash_count_forgotten(patch: pytest.MonkeyPatch) -> None:
    right = SimStore.page

    def wrong(self: SimStore, after: int, limit: int) -> tuple[tuple[PendingCase, ...], bool]:
        cases, last = right(self, after, limit)
        return tuple(replace(case, crashes=0) for case in cases), last

    patch.setattr(SimStore, "page", wrong)


def external_case_released_by_expiry(patch: pytest.MonkeyPatch) -> None:
    right = losses.after_loss

    def wrong(state: RunState, case: Any, *args: Any, blamed: bool) -> None:
        if not blamed:
            case.external = False
        right(state, case, *args, blamed=blamed)

    patch.setattr(losses, "after_loss", wrong)


def finish_while_a_worker_holds_a_seal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decide_module, "_holds_something", lambda worker: False)


def judged_before_the_recording_is_durable(patch: pytest.MonkeyPatch) -> None:
    right = recordings.reported

    def wrong(state: RunState, worker: Any, recording: Any) -> None:
        right(state, worker, recording)
        worker.recorded.append(recording.attempt)

    patch.setattr(recordings, "reported", wrong)


def recording_forgotten_by_a_claim(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recordings, "read", lambda state, case, pending: None)


def recording_forgotten_by_a_loss(patch: pytest.MonkeyPatch) -> None:
    right = losses.after_loss

    def wrong(state: RunState, case: Any, *args: Any, blamed: bool) -> None:
        case.recorded = False
        right(state, case, *args, blamed=blamed)

    patch.setattr(losses, "after_loss", wrong)


def sandbox_limit_ignored_after_adoption(patch: pytest.MonkeyPatch) -> None:
    right = RunState.leased_sandboxes.fget
    assert right is not None

    def wrong(self: RunState) -> int:
        adopted = [n for w in self.workers.values() for n in w.leases if ids.attempt_epoch(n) != self.epoch]
        return right(self) - len(adopted)

    patch.setattr(RunState, "leased_sandboxes", property(wrong))


def beginning_forgotten_by_a_claim(patch: pytest.MonkeyPatch) -> None:
    right = recordings.read

    def wrong(state: RunState, case: Any, pending: Any) -> None:
        right(state, case, replace(pending, begun=False))

    patch.setattr(recordings, "read", wrong)


def went_on_before_the_turn_was_durable(patch: pytest.MonkeyPatch) -> None:
    right = recordings.reported

    def wrong(state: RunState, worker: Any, recording: Any) -> None:
        right(state, worker, recording)
        if recording.turns is not None:
            worker.recorded.append(recording.attempt)

    patch.setattr(recordings, "reported", wrong)


def sandbox_limit_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RunState, "leased_sandboxes", property(lambda self: 0))


def refused_start_takes_a_token(patch: pytest.MonkeyPatch) -> None:
    right = Pace.ready

    def wrong(self: Pace, now: float) -> bool:
        if right(self, now):
            return True
        self.tokens -= 1.0
        return False

    patch.setattr(Pace, "ready", wrong)


def pause_never_ends(patch: pytest.MonkeyPatch) -> None:
    right = Breaker.ended

    def wrong(self: Breaker, attempt: int, failure: str, newest: int, now: float) -> None:
        if failure or self.health is not Health.PAUSED:
            right(self, attempt, failure, newest, now)

    patch.setattr(Breaker, "ended", wrong)


def pause_forgotten_by_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state_module, "_remembered", lambda claim, policy, now: {})


def pause_grants_all_the_same(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Breaker, "admits", lambda self, now: True)


def parked_attempt_killed_as_overdue(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "worked", lambda self, now: now - self.granted_at)


def parked_attempt_counted_after_its_end(patch: pytest.MonkeyPatch) -> None:
    right = grants.release

    def wrong(state: RunState, case: Any) -> Any:
        lease = right(state, case)
        state.parked += lease is not None and lease.parked
        return lease

    patch.setattr(grants, "release", wrong)


def came_back_without_a_lane(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorkerState, "unpark", lambda self, attempt: self.parked.discard(attempt) or True)


def outage_counts_for_the_case(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Breaker, "forgives", property(lambda self: False))


def reservation_released_on_worker_death(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Purse, "lose", Purse.give_back)


def reservation_forgotten_by_a_claim(patch: pytest.MonkeyPatch) -> None:
    right = Purse.restored

    def wrong(policy: Any, known: Any, open_: Any) -> Purse:
        return right(policy, known, {})

    patch.setattr(Purse, "restored", wrong)


def top_up_handed_out_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    right = spending.top_up

    def wrong(state: RunState) -> None:
        asked = set() if state.purse is None else set(state.purse.asking)
        right(state)
        if state.purse is not None:
            for worker in state.workers.values():
                for attempt in asked & state.purse.topping & worker.leases.keys():
                    worker.top_ups.append(TopUp(attempt, state.purse.open[attempt].amount))

    patch.setattr(spending, "top_up", wrong)


def broke_attempts_wait_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(spending, "_end_stuck", lambda state, purse: None)


def forget_what_passed_at_a_claim(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that follows on another grants repetitions that nobody needs."""
    patch.setattr(state_module, "_solved", lambda claim, cycle: bytearray(cycle))


def take_any_end_for_a_success(patch: pytest.MonkeyPatch) -> None:
    """A repetition that failed ends the others, too."""
    right = settling._attempt_committed

    def wrong(state: RunState, write: Any, result: Committed, now: float) -> None:
        if write.sealed.attempt in result.settled:
            early_exit.passed(state, state.cases.get(write.sealed.case))
        right(state, write, result, now)

    patch.setattr(settling, "_attempt_committed", wrong)


BUGS: dict[str, Plant] = {
    "ack before commit": ack_before_commit,
    "epoch read without lock": epoch_read_without_lock,
    "grant freed by an older list": grant_freed_by_an_older_list,
    "grant given to an overtaken parked poll": grant_given_to_an_overtaken_poll,
    "lost grant never requeued": lost_grant_never_requeued,
    "restart takes over": restart_takes_over,
    "no adoption phase": no_adoption_phase,
    "expiry after own pause": expiry_after_own_pause,
    "attempt number reused after restart": attempt_number_reused_after_restart,
    "cost counted from the message": cost_counted_from_the_message,
    "crash count forgotten": crash_count_forgotten,
    "external case re-leased by expiry": external_case_released_by_expiry,
    "finish while a worker holds a seal": finish_while_a_worker_holds_a_seal,
    "judged before the recording is durable": judged_before_the_recording_is_durable,
    "recording forgotten by a claim": recording_forgotten_by_a_claim,
    "recording forgotten by a loss": recording_forgotten_by_a_loss,
    "beginning forgotten by a claim": beginning_forgotten_by_a_claim,
    "went on before the turn was durable": went_on_before_the_turn_was_durable,
    "sandbox limit ignored": sandbox_limit_ignored,
    "sandbox limit ignored after adoption": sandbox_limit_ignored_after_adoption,
    "refused start takes a token": refused_start_takes_a_token,
    "pause never ends": pause_never_ends,
    "pause forgotten by a restart": pause_forgotten_by_a_restart,
    "pause grants all the same": pause_grants_all_the_same,
    "outage counts for the case": outage_counts_for_the_case,
    "parked attempt killed as overdue": parked_attempt_killed_as_overdue,
    "parked attempt counted after its end": parked_attempt_counted_after_its_end,
    "came back without a lane": came_back_without_a_lane,
    "reservation released on worker death": reservation_released_on_worker_death,
    "reservation forgotten by a claim": reservation_forgotten_by_a_claim,
    "top-up handed out before it is durable": top_up_handed_out_before_it_is_durable,
    "broke attempts wait for ever": broke_attempts_wait_for_ever,
    "solved evals forgotten by a claim": forget_what_passed_at_a_claim,
    "any end taken for a success": take_any_end_for_a_success,
}
