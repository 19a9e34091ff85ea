"""`decide(state, event, now) → decisions`: the whole of scheduling, without I/O, clock or randomness.

`state` belongs to the caller and is advanced in place; the same state, event and instant give the same
decisions. The rules are those of `docs/protocol.md`.
"""

from __future__ import annotations

from dataclasses import replace

from evalfleet.model.verdict import RunStatus
from evalfleet.scheduling import admission, adoption, grants, leases, losses, settling, spending
from evalfleet.scheduling.events import (
    CommitDone,
    Decision,
    EpochConfirmed,
    Event,
    Exchanged,
    FencedOff,
    Finish,
    KillWorker,
    Leave,
    LoadPage,
    PageRead,
    Reply,
    Roster,
    StopAsked,
    Tick,
    WorkerGone,
    Write,
)
from evalfleet.scheduling.messages import CommandKind, ExchangeReply, WorkerCommand
from evalfleet.scheduling.state import RunState, WorkerView


def decide(state: RunState, event: Event, now: float) -> list[Decision]:
    """Advance `state` by one event and return what has to be done about it, in order."""
    if state.over:
        return _farewell(state, event, now)
    _notice_pause(state, now)
    decisions: list[Decision] = []
    match event:
        case Exchanged():
            decisions += leases.exchanged(state, event.request, now)
        case WorkerGone():
            losses.worker_gone(state, event, now)
        case Roster():
            state.roster = frozenset(event.workers)
        case PageRead():
            settling.page_read(state, event)
        case CommitDone():
            state.confirmed_at = max(state.confirmed_at, event.asked_at)
            state.epoch = event.result.epoch
            settling.committed(state, event.result, now)
        case EpochConfirmed():
            state.confirmed_at = max(state.confirmed_at, event.asked_at)
        case FencedOff():
            return _leave(state, now)
        case StopAsked():
            _stop(state, event)
        case Tick():
            decisions += _tick(state, now)
    if state.adopting:
        adoption.finish_when_due(state, now)
    settling.limit_wall(state, now)
    spending.mind(state, look=isinstance(event, (Tick, CommitDone)))
    grants.assign(state, now)
    decisions += _load(state) or _write(state)
    decisions += _finish(state)
    decisions += _replies(state, now)
    return decisions


def _notice_pause(state: RunState, now: float) -> None:
    """After a pause of this process the silence was ours, so no expiry may count it, whatever event comes first."""
    gap = now - state.ticked_at
    if gap > 2 * state.policy.tick:
        losses.shift(state, gap - state.policy.tick)
        state.ticked_at = now


def _tick(state: RunState, now: float) -> list[Decision]:
    state.ticked_at = now
    losses.expire(state, now)
    losses.announce_old(state, now)
    settling.wake(state, now)
    settling.limit_failures(state)
    admission.limit_outage(state)
    return [
        KillWorker(worker.id, "an attempt is past its deadline and the worker did not end it")
        for worker in losses.overdue(state, now)
    ]


def _stop(state: RunState, event: StopAsked) -> None:
    if state.stopping is None or event.cancel:
        state.stopping = event
    if not event.cancel:
        return
    for worker in state.workers.values():
        for attempt in worker.leases:
            worker.commands.append(WorkerCommand(CommandKind.CANCEL, attempt, event.reason))


def _write(state: RunState) -> list[Decision]:
    if state.inflight is not None or state.loading or not state.buffer:
        return []
    state.inflight = state.buffer.take(state.policy.batch_size)
    return [Write(state.inflight)]


#: Pages that may wait in the window, most of them of paused arms: others are looked for beyond them.
_PAGES = 8


# A page is read only while no commit is in flight and none starts meanwhile, so that its counts are exact.
def _load(state: RunState) -> list[Decision]:
    if state.loading or state.inflight is not None or state.read_all or state.stopping is not None:
        return []
    paused = admission.paused(state).keys() | (set[str]() if state.purse is None else state.purse.closed)
    waiting = sum(len(queue) for queue in state.ready.values())
    next_ones = waiting - sum(len(state.ready.get(arm, ())) for arm in paused)
    if next_ones >= state.policy.page_size // 2 or waiting >= _PAGES * state.policy.page_size:
        return []
    state.loading = True
    return [LoadPage(state.cursor, state.policy.page_size)]


def _finish(state: RunState) -> list[Decision]:
    if state.adopting or state.inflight is not None or state.buffer:
        return []
    if state.leased or any(_holds_something(worker) for worker in state.workers.values()):
        return []
    read = state.read_all or state.settled == state.total
    nothing_left = read and not state.loading and not state.cases
    # a limit that kept nothing from being settled is none, nor is an abort after the last case
    if state.stopping is not None and not nothing_left:
        state.over = True
        return [Finish(state.stopping.status, spending.final_reason(state, state.stopping.reason))]
    if not nothing_left:
        return []
    state.over = True
    return [Finish(RunStatus.COMPLETED, None)]


def _holds_something(worker: WorkerView) -> bool:
    return worker.reachable and not worker.gone and (worker.busy or bool(worker.durable))


def _replies(state: RunState, now: float) -> list[Decision]:
    decisions: list[Decision] = []
    for worker in state.workers.values():
        if worker.poll is None:
            continue
        if state.over:
            worker.commands.append(WorkerCommand(CommandKind.STOP))
        news = worker.acks or worker.grants or worker.commands or worker.recorded or worker.epoch_seen < state.epoch
        news = news or worker.top_ups
        if news or now - worker.poll_since >= state.policy.hold:
            decisions.append(_reply(state, worker, now))
    return decisions


def _reply(state: RunState, worker: WorkerView, now: float) -> Reply:
    assert worker.poll is not None
    reply = ExchangeReply(
        state.epoch, tuple(worker.acks), tuple(worker.grants), tuple(worker.commands), tuple(worker.recorded)
    )
    if worker.top_ups:
        reply = replace(reply, top_ups=tuple(worker.top_ups))
        worker.top_ups = []
    seq, worker.poll, worker.answered_at = worker.poll, None, now
    worker.acks, worker.grants, worker.commands, worker.recorded = [], [], [], []
    return Reply(worker.id, seq, reply)


def _leave(state: RunState, now: float) -> list[Decision]:
    """Fenced: nothing more is written or granted. Workers get no command, since the run is not ours."""
    state.over = True
    for worker in state.workers.values():
        worker.acks, worker.grants, worker.commands, worker.poll = [], [], [], None
    return [Leave()]


def _farewell(state: RunState, event: Event, now: float) -> list[Decision]:
    """After the end a worker that asks is told to stop."""
    if not isinstance(event, Exchanged):
        return []
    request = event.request
    worker = state.worker(request.worker, now)
    stop = ExchangeReply(state.epoch, commands=(WorkerCommand(CommandKind.STOP),))
    worker.seq = max(worker.seq, request.seq)
    return [Reply(request.worker, request.seq, stop)]
