"""A run on Ray, local or joined."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from evalfleet.api.blueprint import RunBlueprint
from evalfleet.api.coordination import CoordinatorBlueprint, coordinator_blueprint
from evalfleet.api.inline import Claiming, OnProgress
from evalfleet.api.working import WorkerBlueprint
from evalfleet.randomness import SystemRandom
from evalfleet.scheduling.coordinator import RunEnd
from evalfleet.scheduling.fleet import Fleet, fleet
from evalfleet.scheduling.ray_actors import Claim
from evalfleet.scheduling.ray_cluster import Cluster, ray_cluster
from evalfleet.scheduling.ray_crew import Crew, ready_crew
from evalfleet.scheduling.ray_run import RayRun
from evalfleet.settings import RAY_TOKEN, ray_authentication, use_ray_authentication

#: What this process is joined to for its whole life, by address: Ray allows one at a time.
_HELD: dict[str | None, Cluster] = {}


@asynccontextmanager
async def joined(address: str | None) -> AsyncGenerator[Cluster, None]:
    """Ray, started or joined beside the loop, which stays free meanwhile; left at the end of the block."""
    if address is None and not ray_authentication():
        # Ray would leave a token in the home directory, and from then on ask for it wherever this user starts a Ray.
        use_ray_authentication({RAY_TOKEN: f"{SystemRandom().bits(256):064x}"})
    if address in _HELD:
        here = _HELD[address]
        _HELD[address] = replace(here, crew=None)
        yield here
        return
    cluster = ray_cluster(address)
    started = await asyncio.to_thread(cluster.__enter__)
    try:
        yield started
    finally:
        await asyncio.to_thread(cluster.__exit__, None, None, None)


@contextmanager
def held(address: str) -> Generator[None]:
    """Be joined to the Ray at this address for as long as the block runs, with the actors of one run ready there.

    Raises InfrastructureError when it is not there, RayError when an actor does not come up.
    """
    with ray_cluster(address) as cluster:
        # One worker: a run that gets more has them beside it while this one works already.
        crew = asyncio.run(ready_crew(CoordinatorBlueprint, WorkerBlueprint, 1))
        _HELD[address] = replace(cluster, crew=crew)
        try:
            yield
        finally:
            del _HELD[address]


def fleet_for(blueprint: RunBlueprint, cluster: Cluster, workers: int | None, lanes: int | None) -> Fleet:
    """The workers and lanes that this run gets on this cluster."""
    return fleet(blueprint.experiment.limits.concurrency, blueprint.cases, cluster.cpus, workers, lanes)


async def run_on_ray(
    blueprint: RunBlueprint, claiming: Claiming, fleet: Fleet, crew: Crew | None, on_progress: OnProgress | None
) -> RunEnd:
    """Run to the end on the Ray that this process has joined. Cancelling the task drains the run.

    Raises RunHeld, StoreError, InfrastructureError, or what a worker could not be built for.
    """
    claim = Claim(claiming.holder.pid, claiming.adoption, claiming.takeover, claiming.steal)
    run = RayRun(coordinator_blueprint(blueprint), WorkerBlueprint(blueprint), claim, fleet, crew)
    return await run.run(on_progress)
