"""The actors of a run: made when it begins, or kept ready before there is one."""

# Ray makes its actor handles at run time, so a checker can know nothing of their methods.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass

from evalfleet.scheduling.ray_actors import Actor, CoordinatorActor, CoordinatorMaker, WorkerActor, WorkerMaker


@dataclass(frozen=True, slots=True)
class Crew:
    """A coordinator and workers whose processes run and have imported what they need."""

    coordinator: Actor
    workers: list[Actor]


def new_coordinator(maker: type[CoordinatorMaker]) -> Actor:
    """A coordinator's actor, not yet told its run."""
    return CoordinatorActor.remote(maker)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]


def new_worker(maker: type[WorkerMaker], *, cpus: int = 1) -> Actor:
    """A worker's actor, not yet told its run; it takes `cpus` of what Ray counts."""
    return WorkerActor.options(num_cpus=cpus).remote(maker)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]


async def ready_crew(coordinator: type[CoordinatorMaker], worker: type[WorkerMaker], workers: int) -> Crew:
    """A crew that is up. It takes none of Ray's CPUs, which a run beside it may need before it has one of its own.

    Raises RayError when an actor does not come up.
    """
    crew = Crew(new_coordinator(coordinator), [new_worker(worker, cpus=0) for _ in range(workers)])
    for actor in (crew.coordinator, *crew.workers):
        await actor.pid.remote()
    return crew
