"""Attempts whose agent is done: durable before anything judges them, so that no loss runs the agent again; and how
conversations began that another attempt can continue. Pure."""

from __future__ import annotations

from evalfleet.errors import FailureKind
from evalfleet.model.record import CommitBatch, PendingCase, Recording, SealedAttempt
from evalfleet.model.verdict import Outcome
from evalfleet.scheduling.state import OpenCase, RunState, WorkerView

#: Failures that say nothing about what was recorded: it can still be judged.
_BESIDE = frozenset({FailureKind.WORKER, FailureKind.INFRASTRUCTURE})


def reported(state: RunState, worker: WorkerView, recording: Recording) -> None:
    """Queue a recording for the next commit, or say again that it is durable.

    One whose lease has ended is passed over: its worker is told to cancel the attempt. Should the lease end from now
    on, the case counts as recorded at once: its next grant is announced, so it leaves after this commit.
    """
    lease = worker.leases.get(recording.attempt)
    if lease is None:
        return
    if lease.recorded or (recording.turns is not None and recording.turns <= lease.begun):
        worker.recorded.append(recording.attempt)
    elif recording.attempt not in state.buffer.recordings and not _in_flight(state, recording.attempt):
        state.buffer.recordings[recording.attempt] = recording
        state.buffer.size += len(recording.body)
        _mark(state.cases[lease.ordinal], recording)


def _mark(case: OpenCase, recording: Recording) -> None:
    if recording.turns is None:
        case.recorded = True
    else:
        case.begun = True


def _in_flight(state: RunState, attempt: int) -> bool:
    return state.inflight is not None and any(recording.attempt == attempt for recording in state.inflight.recordings)


def committed(state: RunState, batch: CommitBatch) -> None:
    """The batch's recordings are durable: their workers may judge them."""
    for recording in batch.recordings:
        case = state.cases.get(recording.case)
        if case is None:
            # Settled meanwhile, by another attempt.
            state.buffer.spent.append(recording.case)
            continue
        lease = case.lease
        if lease is not None and lease.attempt == recording.attempt:
            lease.recorded = recording.turns is None
            lease.begun = recording.turns or 0
            state.workers[lease.worker].recorded.append(lease.attempt)


def read(state: RunState, case: OpenCase, pending: PendingCase) -> None:
    """A page says whether a recording waits; what is to be forgotten with the next commit does not."""
    is_spent = case.ordinal in state.buffer.spent
    case.recorded = case.recorded or (pending.recorded and not is_spent)
    case.begun = case.begun or (pending.begun and not is_spent)


def spend(state: RunState, case: OpenCase, seal: SealedAttempt) -> None:
    """A sealed attempt ends the use of its case's recording, unless its end says nothing about what was recorded.

    One that counts as lost already decides nothing any more: what it recorded is still to be judged.
    """
    judged = seal.outcome is Outcome.COMPLETED or (seal.outcome is Outcome.ERRORED and seal.kind not in _BESIDE)
    if judged and (case.recorded or case.begun) and case.last_attempt != seal.attempt:
        case.recorded = case.begun = False
        state.buffer.spent.append(case.ordinal)
