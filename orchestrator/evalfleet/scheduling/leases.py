"""Leases as the workers' lists tell them. Pure."""

from __future__ import annotations

from evalfleet.scheduling import adoption, grants, recordings, settling, spending
from evalfleet.scheduling.events import Decision, Reply
from evalfleet.scheduling.messages import CommandKind, ExchangeReply, ExchangeRequest, LiveAttempt, WorkerCommand
from evalfleet.scheduling.state import Lease, OpenCase, Phase, RunState, WorkerView


def exchanged(state: RunState, request: ExchangeRequest, now: float) -> list[Decision]:
    """Take in one worker's whole present state; an overtaken call is answered empty and changes nothing."""
    worker = state.worker(request.worker, now)
    empty = ExchangeReply(state.epoch)
    if request.seq <= worker.seq or worker.gone:
        return [Reply(worker.id, request.seq, empty)]
    overtaken: list[Decision] = [Reply(worker.id, worker.poll, empty)] if worker.poll is not None else []
    worker.seq, worker.poll, worker.poll_since, worker.heard_at = request.seq, request.seq, now, now
    worker.lanes, worker.rss, worker.reachable, worker.rates = request.lanes, request.rss, True, request.rates
    worker.epoch_seen = max(worker.epoch_seen, request.epoch_seen)
    worker.busy = bool(request.live or request.sealed)
    if state.pace is not None:
        for made in request.made:
            state.pace.made(made.attempt, made.seconds, now)
    _reconcile(state, worker, request, now)
    announcing = sum(1 for lease in worker.leases.values() if state.cases[lease.ordinal].phase is Phase.ANNOUNCING)
    worker.draining = request.draining
    worker.want = max(0, request.want - announcing)
    return overtaken


def _reconcile(state: RunState, worker: WorkerView, request: ExchangeRequest, now: float) -> None:
    held = {live.attempt for live in request.live} | {sealed.attempt for sealed in request.sealed}
    for lease in list(worker.leases.values()):
        case = state.cases[lease.ordinal]
        if lease.attempt not in held and lease.seq < request.seq and case.phase is not Phase.ANNOUNCING:
            _grant_never_arrived(state, case)
    worker.durable &= held
    for sealed in request.sealed:
        if sealed.attempt in worker.durable:
            worker.acks.append(sealed.attempt)
        else:
            settling.sealed(state, worker, sealed, now)
    for live in request.live:
        lease = worker.leases.get(live.attempt)
        if lease is None and live.attempt not in worker.durable:
            if not (state.adopting and adoption.adopt(state, worker, live, now)):
                worker.commands.append(WorkerCommand(CommandKind.CANCEL, live.attempt, "its lease has ended"))
                continue
            lease = worker.leases[live.attempt]
        if lease is not None and (live.waiting or live.waited or lease.waiting):
            _note_wait(state, lease, live, now)
        if state.purse is not None:
            spending.asked(state, worker, live)
    for recording in request.recorded:
        recordings.reported(state, worker, recording)


def _note_wait(state: RunState, lease: Lease, live: LiveAttempt, now: float) -> None:
    state.parked += live.parked - lease.parked
    lease.waited, lease.waiting, lease.parked, lease.told_at = live.waited, live.waiting, live.parked, now


def _grant_never_arrived(state: RunState, case: OpenCase) -> None:
    """A newer list names the grant neither live nor sealed: its reply was lost and nothing ran."""
    lease = grants.release(state, case)
    if lease is not None and lease.announced:
        state.buffer.closed.append(lease.attempt)
        grants.never_began(state, lease.attempt)
    if case.decided:
        del state.cases[case.ordinal]
        return
    grants.make_ready(state, case)
