"""Carrying a planned run out: inline in this process, or on Ray."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

from evalfleet.api.blueprint import RunBlueprint
from evalfleet.api.holders import is_dead, this_process
from evalfleet.api.inline import Claiming, OnProgress, run_inline
from evalfleet.api.judging import with_judges_tried
from evalfleet.api.reaping import swept
from evalfleet.api.warm import WarmRay, using, warm_ray
from evalfleet.errors import RunHeld
from evalfleet.model.report import RunInfo
from evalfleet.plugins import ray_engine
from evalfleet.ports import Random
from evalfleet.scheduling.coordinator import RunEnd
from evalfleet.scheduling.state import Adoption
from evalfleet.settings import Settings, use_ray_authentication
from evalfleet.store.lifecycle import release


class RayEngine(Protocol):
    """What `evalfleet.api.ray_engine` offers; imported only by runs that use it."""

    def joined(self, address: str | None) -> AbstractAsyncContextManager[Any]: ...

    def fleet_for(self, blueprint: RunBlueprint, cluster: Any, workers: int | None, lanes: int | None) -> Any: ...

    async def run_on_ray(
        self, blueprint: RunBlueprint, claiming: Claiming, fleet: Any, crew: Any, on_progress: OnProgress | None
    ) -> RunEnd: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a run is carried out. `address` names a Ray cluster; without one Ray is started here.

    At the HTTP address of a cluster's dashboard the run is a job of the cluster; any other address is joined.
    """

    inline: bool = False
    address: str | None = None
    workers: int | None = None
    lanes: int | None = None

    @property
    def is_shipped(self) -> bool:
        return self.address is not None and self.address.startswith(("http://", "https://"))


class Venue:
    """A place on the way to it: a Ray that runs is joined meanwhile, one of our own is started once it is needed."""

    def __init__(self, place: Place, settings: Settings, stack: AsyncExitStack) -> None:
        self._place = place
        self._stack = stack
        self._joining: asyncio.Task[tuple[RayEngine, Any]] | None = None
        warm = joinable(place, settings)
        if warm is not None:
            stack.enter_context(using(settings))
        self._address = place.address if warm is None else warm.address
        if self._address is not None and not place.inline and not place.is_shipped:
            self._joining = asyncio.create_task(self._join(), name="evalfleet-joining")

    async def arrive(self) -> None:
        """Wait for the Ray that runs already, if we go there. Raises InfrastructureError when it is not there."""
        if self._joining is not None:
            await asyncio.shield(self._joining)

    async def carry_out(self, blueprint: RunBlueprint, claiming: Claiming, on_progress: OnProgress | None) -> None:
        """Run to the end. Raises RunHeld when another coordinator took the run over meanwhile."""
        blueprint = await with_judges_tried(blueprint)
        if claiming.instead_of is not None:
            await release(blueprint.database_url, blueprint.run, claiming.instead_of)
        async with swept(blueprint):
            end = await self._run(blueprint, claiming, on_progress)
        if end.fenced:
            raise RunHeld(f"run {blueprint.run} was taken over by another coordinator; nothing more was written here")

    async def _run(self, blueprint: RunBlueprint, claiming: Claiming, on_progress: OnProgress | None) -> RunEnd:
        place = self._place
        if place.inline:
            return await run_inline(blueprint, claiming, on_progress, lanes=place.lanes)
        engine, cluster = await (self._join() if self._joining is None else asyncio.shield(self._joining))
        fleet = engine.fleet_for(blueprint, cluster, place.workers, place.lanes)
        return await engine.run_on_ray(blueprint, claiming, fleet, cluster.crew, on_progress)

    async def turn_back(self) -> None:
        """Let a joining under way come to its end, whatever it is, so that what it joined can be left."""
        if self._joining is not None:
            await asyncio.wait({self._joining})
            if not self._joining.cancelled():
                self._joining.exception()

    async def _join(self) -> tuple[RayEngine, Any]:
        engine = cast("RayEngine", await asyncio.to_thread(ray_engine))
        return engine, await self._stack.enter_async_context(engine.joined(self._address))


@asynccontextmanager
async def reaching(place: Place, settings: Settings) -> AsyncGenerator[Venue]:
    """Set out for a place, and leave it at the end of the block.

    Enter before anything else may import Ray, as an agent may when it is planned: Ray reads then how to authenticate.
    """
    async with AsyncExitStack() as stack:
        venue = Venue(place, settings, stack)
        try:
            yield venue
        finally:
            await venue.turn_back()


def joinable(place: Place, settings: Settings) -> WarmRay | None:
    """The Ray that is up here with this process's environment, unless the run is to be elsewhere."""
    warm = None if place.inline or place.address is not None else warm_ray(settings)
    if warm is None or warm.differences():
        return None
    use_ray_authentication(warm.authentication)
    return warm


def first_claim(random: Random) -> Claiming:
    """The claim of a run that nobody can hold yet."""
    return Claiming(holder=this_process(random))


def resumed_claim(info: RunInfo, random: Random, *, steal: bool) -> Claiming:
    """The claim of a resumed run: a holder that is known to be dead is not waited for."""
    holder = info.holder
    if holder is None:
        return Claiming(holder=this_process(random), takeover=True)
    if is_dead(info):
        # Its workers die with it, so nothing of it can act any more.
        return Claiming(holder=this_process(random), takeover=True, steal=steal, instead_of=str(holder["id"]))
    return Claiming(holder=this_process(random), adoption=Adoption.LEASE, takeover=True, steal=steal)


def debugged() -> bool:
    """Whether someone may sit in a debugger: a tracer is set, or a terminal is there for breakpoints."""
    return sys.gettrace() is not None or sys.stdin.isatty()
