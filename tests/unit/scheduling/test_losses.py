"""What becomes of an attempt whose worker ended, by how that ended: whose fault, under which code, who is suspected."""

from __future__ import annotations

import pytest

from evalfleet.model.record import LostAttempt
from evalfleet.scheduling.events import Decision, Departure, KillWorker, Tick, WorkerGone
from evalfleet.scheduling.messages import LiveAttempt
from evalfleet.scheduling.state import RunPolicy
from tests.unit.scheduling.test_decide import Story, case, granted

LOSSES = {
    Departure.CRASHED: ("worker", "WORKER_CRASHED", True),
    Departure.KILLED: ("worker", "WORKER_STALLED", True),
    Departure.OUT_OF_MEMORY: ("worker", "WORKER_OOM", False),
    Departure.DRAINED: ("infrastructure", "WORKER_DRAINED", False),
}


@pytest.mark.parametrize("how", LOSSES)
def test_a_worker_that_ended_leaves_an_interrupted_attempt(how: Departure) -> None:
    story = Story([case(0)])
    (attempt,) = granted(story.call("w"))
    story.tell(WorkerGone("w", how))
    (lost,) = story.batches()[-1].lost
    assert (lost.attempt, lost.worker) == (attempt, "w")
    assert (lost.kind, lost.code, lost.blamed) == LOSSES[how]
    assert (story.state.cases[0].crashes, story.state.cases[0].lost) == ((1, 0) if lost.blamed else (0, 1))


def test_a_worker_that_is_out_of_reach_may_live_on_until_its_lease_ends() -> None:
    assert set(Departure) - set(LOSSES) == {Departure.UNREACHABLE}
    story = Story([case(0)])
    story.call("w")
    story.tell(WorkerGone("w", Departure.UNREACHABLE))
    told_at = story.now
    lost = list[LostAttempt]()
    for _ in range(20):
        story.tell(Tick(), after=5.0)
        while story.state.inflight:
            story.commit()
        lost = [each for batch in story.batches() for each in batch.lost]
        if lost:
            break
        assert story.now - told_at < story.policy.lease_ttl + story.policy.lease_grace + 5.0
    assert [(each.kind, each.code, each.blamed) for each in lost] == [("infrastructure", "LEASE_EXPIRED", False)]
    assert story.now - told_at > story.policy.lease_ttl


def test_what_an_attempt_waits_is_not_held_against_its_worker() -> None:
    """Waiting goes on until the worker says otherwise; then the deadline counts what it worked."""
    story = Story([case(0)], policy=RunPolicy(concurrency=1, attempt_timeout=20.0))
    (attempt,) = granted(story.call("w"))

    def call(waited: float, *, waiting: bool) -> list[Decision]:
        for _ in range(3):
            story.tell(Tick(), after=4.0)
            story.call("w", live=(LiveAttempt(attempt, 0, waited, waiting, parked=waiting),))
        return [each for each in story.said if isinstance(each, KillWorker)]

    story.call("w", live=(LiveAttempt(attempt, 0, 0.0, waiting=True),))
    for waited in (0.0, 12.0, 24.0, 36.0):
        assert call(waited, waiting=True) == []
    assert call(48.0, waiting=False) == []
    assert call(48.0, waiting=False) == []
    assert [each.worker for each in call(48.0, waiting=False)] == ["w"]
