"""Attempts that wait for a model call hold no lane: what a worker and its coordinator make of it."""

from __future__ import annotations

import asyncio

import pytest

from evalfleet.clock import SystemClock
from evalfleet.scheduling.messages import CommandKind, ExchangeReply, Grant, LiveAttempt, WorkerCommand
from evalfleet.scheduling.state import RunPolicy
from evalfleet.scheduling.worker import Worker, WorkerLane
from evalfleet.scheduling.worker_state import WorkerState
from tests.unit.scheduling.test_decide import Story, case, granted, seal
from tests.unit.scheduling.test_worker import PATIENT, STOP, Desk, grants


def holding(lanes: int, *attempts: int) -> WorkerState:
    state = WorkerState("w", lanes, 30.0, answered_at=0.0)
    state.receive(state.request(0.0).seq, ExchangeReply(1, grants=_grants(*attempts)), 0.0)
    return state


def _grants(*attempts: int) -> tuple[Grant, ...]:
    return tuple(Grant(attempt, case(attempt)) for attempt in attempts)


def test_a_parked_attempt_frees_its_lane_and_gets_one_back_only_when_one_is_free() -> None:
    state = holding(2, 1, 2)
    assert (state.free_lanes, state.park(1), state.free_lanes) == (0, True, 1)
    state.receive(state.request(1.0).seq, ExchangeReply(1, grants=_grants(3)), 1.0)
    assert (state.free_lanes, state.unpark(1)) == (0, False)
    assert state.park(3)
    assert state.unpark(1)
    assert state.unpark(1)  # which changes nothing more
    assert state.free_lanes == 0


def test_no_more_are_parked_than_there_are_lanes() -> None:
    state = holding(1, 1)
    assert state.park(1)
    state.receive(state.request(1.0).seq, ExchangeReply(1, grants=_grants(2)), 1.0)
    assert not state.park(2)
    assert not state.park(99)  # which is not here


def test_a_grant_whose_lane_was_taken_back_meanwhile_is_parked_until_one_is_free() -> None:
    state = holding(1, 1)
    state.park(1)
    asked = state.request(1.0)
    assert asked.want == 1
    assert state.unpark(1)
    state.receive(asked.seq, ExchangeReply(1, grants=_grants(2)), 1.0)
    assert state.parked == {2}
    assert set(state.request(3.0).live) == {LiveAttempt(1, 1), LiveAttempt(2, 2, 2.0, waiting=True, parked=True)}


def test_what_was_waited_adds_up_and_is_told() -> None:
    state = holding(2, 1, 2)
    state.begin_wait(1, 10.0)
    assert set(state.request(12.0).live) == {LiveAttempt(1, 1, 2.0, waiting=True), LiveAttempt(2, 2)}
    state.end_wait(1, 13.0)
    state.begin_wait(1, 20.0)
    state.park(1)
    assert LiveAttempt(1, 1, 4.0, waiting=True, parked=True) in state.request(21.0).live
    state.seal(seal(1, 1))
    assert (state.waits, state.parked, state.free_lanes) == ({}, set(), 0)


@pytest.mark.parametrize(("concurrency", "more"), [(4, 2), (3, 0)])
def test_the_concurrency_counts_who_works_where_the_lanes_bound_who_comes_back(concurrency: int, more: int) -> None:
    """With four lanes and a concurrency of three, both that were parked could work again beside three others."""
    story = Story([case(n) for n in range(9)], policy=RunPolicy(concurrency=concurrency))
    held = granted(story.call(want=4))
    live = [LiveAttempt(attempt, n) for n, attempt in enumerate(held)]
    assert len(live) == concurrency
    waiting = tuple(LiveAttempt(each.attempt, each.case, 1.0, waiting=True, parked=True) for each in live[:2])
    assert len(granted(story.call(live=(*waiting, *live[2:]), want=3))) == more


def test_a_parked_attempt_that_is_sealed_counts_no_more() -> None:
    story = Story([case(n) for n in range(9)], policy=RunPolicy(concurrency=4))
    (first, second) = granted(story.call(want=2))
    waiting = LiveAttempt(second, 1, 1.0, waiting=True, parked=True)
    story.call(live=(LiveAttempt(first, 0), waiting), want=0)
    assert (story.state.leased, story.state.parked) == (2, 1)
    story.call(live=(LiveAttempt(first, 0),), sealed=(seal(second, 1),), want=0)
    assert (story.state.leased, story.state.parked) == (1, 0)


class Play:
    """A worker of one lane, whose calls the test answers."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.worker = Worker("w", 1, self.desk.exchange, self.desk.begin, SystemClock(), PATIENT)
        self.running = asyncio.ensure_future(self.worker.run())
        self.begun: list[int] = []

    async def answer(self, **reply: object) -> tuple[LiveAttempt, ...]:
        request, answer = await self.desk.calls.get()
        answer.set_result(ExchangeReply(1, **reply))  # pyright: ignore[reportArgumentType]
        return request.live


async def test_a_parked_attempts_lane_is_asked_for_anew_and_given_back_in_order() -> None:
    play = Play()
    await play.answer(grants=grants(1))
    await asyncio.sleep(0.02)
    lane = WorkerLane(play.worker, 1)
    lane.waiting(begun=True)
    assert lane.leave()
    request, answer = await play.desk.calls.get()
    assert (request.want, request.live[0].parked) == (1, True)
    assert lane.take()
    lane.waiting(begun=False)
    answer.set_result(ExchangeReply(1, grants=grants(2)))  # too late: its lane is taken
    play.desk.end(2)
    await asyncio.sleep(0.05)
    request, answer = await play.desk.calls.get() if not play.desk.calls.empty() else (None, None)
    assert request is None or all(each.parked for each in request.live if each.attempt == 2)
    play.desk.end(1)
    if answer is not None:
        answer.set_result(ExchangeReply(1))
    request, answer = await play.desk.calls.get()
    assert [each.attempt for each in request.sealed] == [1]
    answer.set_result(ExchangeReply(1, acks=(1,)))
    request, answer = await play.desk.calls.get()
    assert [each.attempt for each in request.sealed] == [2]  # it began once the lane was free
    answer.set_result(STOP)
    await play.running


async def test_one_that_waits_for_a_lane_can_be_cancelled() -> None:
    play = Play()
    await play.answer(grants=grants(1))
    await asyncio.sleep(0.02)
    lane = WorkerLane(play.worker, 1)
    lane.leave()
    request, answer = await play.desk.calls.get()
    lane.take()
    play.desk.end(2)
    cancel = WorkerCommand(CommandKind.CANCEL, 2, "asked")
    answer.set_result(ExchangeReply(1, grants=grants(2), commands=(cancel,)))
    request, answer = await play.desk.calls.get()
    assert [each.attempt for each in request.sealed] == [2]
    play.desk.end(1)
    answer.set_result(STOP)
    await play.running
