"""A run on Ray, local or joined."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from evalfleet.api.blueprint import RunBlueprint
from evalfleet.api.building import build_coordinator, build_worker, build_workshop
from evalfleet.api.inline import Claiming, Observer
from evalfleet.processes import limit_memory, worker_memory
from evalfleet.scheduling.coordinator import Coordinator, RunEnd
from evalfleet.scheduling.ray_actors import Claim
from evalfleet.scheduling.ray_cluster import Cluster, ray_cluster
from evalfleet.scheduling.ray_run import Fleet, RayRun
from evalfleet.scheduling.worker import Exchange, Worker

#: Bytes that an attempt in a process of its own may allocate.
ALONE = 2 << 30


@dataclass(frozen=True, slots=True)
class RayBlueprint:
    """A run's blueprint as Ray's actors use it; carries its own way to build."""

    run: RunBlueprint

    def coordinator(self, kill: Callable[[str, str], None]) -> Coordinator:
        return build_coordinator(self.run, kill)

    def worker(
        self, run_key: int, name: str, lanes: int, exchange: Exchange
    ) -> tuple[Worker, Callable[[], Awaitable[object]]]:
        memory = worker_memory()
        blueprint = replace(self.run, run_key=run_key, memory=min(memory, ALONE))
        limit_memory(memory)
        workshop = build_workshop(blueprint)
        return build_worker(blueprint, workshop, name, lanes, exchange), workshop.close


@asynccontextmanager
async def joined(address: str | None) -> AsyncGenerator[Cluster, None]:
    """Ray, started or joined beside the loop, which stays free meanwhile; left at the end of the block."""
    cluster = ray_cluster(address)
    started = await asyncio.to_thread(cluster.__enter__)
    try:
        yield started
    finally:
        await asyncio.to_thread(cluster.__exit__, None, None, None)


def fleet_for(blueprint: RunBlueprint, cluster: Cluster, workers: int | None, lanes: int | None) -> Fleet:
    """One worker for two CPUs, and lanes so that all of them together reach the run's concurrency."""
    concurrency = blueprint.experiment.limits.concurrency
    count = workers or max(1, min(cluster.cpus // 2, concurrency))
    return Fleet(count, lanes or math.ceil(concurrency / count))


async def run_on_ray(blueprint: RunBlueprint, claiming: Claiming, fleet: Fleet, observer: Observer | None) -> RunEnd:
    """Run to the end on the Ray that this process has joined. Cancelling the task drains the run.

    Raises RunHeld, StoreError, InfrastructureError, or what a worker could not be built for.
    """
    claim = Claim(claiming.holder.pid, claiming.adoption, claiming.takeover, claiming.steal)
    return await RayRun(RayBlueprint(blueprint), claim, fleet).run(observer)
