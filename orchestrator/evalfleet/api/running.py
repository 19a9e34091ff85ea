"""Carrying a planned run out: inline in this process, or on Ray."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

from evalfleet.api.blueprint import RunBlueprint
from evalfleet.api.holders import is_dead, this_process
from evalfleet.api.inline import Claiming, Observer, run_inline
from evalfleet.api.warm import WarmRay, using, warm_ray
from evalfleet.errors import RunHeld
from evalfleet.model.report import RunInfo
from evalfleet.plugins import ray_engine
from evalfleet.ports import Random
from evalfleet.scheduling.coordinator import RunEnd
from evalfleet.scheduling.state import Adoption
from evalfleet.settings import Settings, use_ray_tokens
from evalfleet.store.lifecycle import release


class RayEngine(Protocol):
    """What `evalfleet.api.ray_engine` offers; imported only by runs that use it."""

    def joined(self, address: str | None) -> AbstractAsyncContextManager[Any]: ...

    def fleet_for(self, blueprint: RunBlueprint, cluster: Any, workers: int | None, lanes: int | None) -> Any: ...

    async def run_on_ray(
        self, blueprint: RunBlueprint, claiming: Claiming, fleet: Any, observer: Observer | None
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


async def carry_out(blueprint: RunBlueprint, claiming: Claiming, place: Place, observer: Observer | None) -> RunEnd:
    """Run to the end. Raises RunHeld when another coordinator took the run over meanwhile."""
    if claiming.instead_of is not None:
        await release(blueprint.database_url, blueprint.run, claiming.instead_of)
    if place.inline:
        end = await run_inline(blueprint, claiming, observer, lanes=place.lanes)
    else:
        with _address(place, blueprint.settings) as address:
            engine = cast("RayEngine", ray_engine())
            async with engine.joined(address) as cluster:
                fleet = engine.fleet_for(blueprint, cluster, place.workers, place.lanes)
                end = await engine.run_on_ray(blueprint, claiming, fleet, observer)
    if end.fenced:
        raise RunHeld(f"run {blueprint.run} was taken over by another coordinator; nothing more was written here")
    return end


def joinable(place: Place, settings: Settings) -> WarmRay | None:
    """The Ray that is up here with this process's environment, unless the run is to be elsewhere.

    Call it before anything imports Ray, as an agent may when it is planned: Ray reads then how to authenticate.
    """
    warm = None if place.inline or place.address is not None else warm_ray(settings)
    if warm is None or warm.differences():
        return None
    use_ray_tokens()
    return warm


@contextmanager
def _address(place: Place, settings: Settings) -> Generator[str | None]:
    """Which Ray to join: the named one, else the one that is kept up, else none."""
    warm = joinable(place, settings)
    if warm is None:
        yield place.address
        return
    with using(settings):
        yield warm.address


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
