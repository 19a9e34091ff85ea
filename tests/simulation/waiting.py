"""Attempts that wait to be allowed a model call, and those that wait for a lane, in a simulated run.

Its own random numbers leave the schedule of faults of a seed as it is without.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evalfleet.scheduling.state import RunPolicy, RunState

if TYPE_CHECKING:
    from tests.simulation.world import WorkerProcess, World

#: Seconds after which an attempt that waits gives up its lane.
PARKS_AFTER = 0.5
#: Seconds between two looks for a free lane.
LOOKS = 0.1


@dataclass
class Throttle:
    """Drawn from a seed: whether calls wait at all in this run, and how long; some wait beyond any deadline."""

    dice: random.Random
    share: float

    @classmethod
    def of(cls, seed: int) -> Throttle:
        dice = random.Random(f"throttle {seed}")
        return cls(dice, dice.choice([0.0, 0.0, 0.3, 0.8]))

    def wait(self) -> float | None:
        """Seconds that the next call waits; None when it does not."""
        return self.dice.choice([0.2, 3.0, 30.0, 90.0]) if self.dice.random() < self.share else None


def wait(world: World, worker: WorkerProcess, attempt: int, seconds: float, go_on: Callable[[], None]) -> None:
    """Hold a running attempt up for so many seconds, then until it has a lane."""
    worker.state.begin_wait(attempt, world.now)

    def park() -> None:
        if worker.alive and attempt in worker.running and not world.defer(worker, park) and worker.state.park(attempt):
            world.flush(worker)

    if seconds > PARKS_AFTER:
        world.after(PARKS_AFTER, park)
    world.after(seconds, lambda: take_lane(world, worker, attempt, go_on))


def take_lane(world: World, worker: WorkerProcess, attempt: int, go_on: Callable[[], None]) -> None:
    """Go on as soon as there is a lane for it."""
    if not worker.alive or attempt not in worker.running:
        return
    if world.defer(worker, lambda: take_lane(world, worker, attempt, go_on)):
        return
    if not worker.state.unpark(attempt):
        world.after(LOOKS, lambda: take_lane(world, worker, attempt, go_on))
        return
    worker.state.end_wait(attempt, world.now)
    go_on()


def overdue(worker: WorkerProcess, now: float, timeout: float) -> bool:
    """Whether the worker holds an attempt that has worked for longer than it may."""
    waits = worker.state.waits
    waited = {attempt: waits[attempt].seconds(now) if attempt in waits else 0.0 for attempt in worker.since}
    return any(now - since - waited[attempt] >= timeout for attempt, since in worker.since.items())


def lanes_exceeded(worker: WorkerProcess) -> str | None:
    """What is wrong with who works in a worker, if anything."""
    state = worker.state
    working = len(state.live) - len(state.parked)
    if working > state.lanes:
        return f"{working} attempts in the {state.lanes} lanes of {state.id}"
    return None


def concurrency_exceeded(state: RunState, policy: RunPolicy, leased_before: int) -> str | None:
    """What is wrong with the leases that were made just now, if anything; counted from the leases themselves."""
    leases = [lease for worker in state.workers.values() for lease in worker.leases.values()]
    parked = sum(1 for lease in leases if lease.parked)
    if state.leased <= leased_before or state.adopting:
        return None
    living = [worker for worker in state.workers.values() if not worker.gone]
    if sum(worker.lanes for worker in living) >= policy.concurrency + len(living):
        parked = 0
    if len(leases) - parked > policy.concurrency:
        return f"{len(leases) - parked} attempts at work with a concurrency of {policy.concurrency}"
    return None
