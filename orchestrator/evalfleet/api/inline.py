"""A run in this process: the same coordinator and worker as on a cluster, in one event loop; breakpoints work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from evalfleet.api.blueprint import RunBlueprint
from evalfleet.api.building import INLINE, build_worker, open_workshop
from evalfleet.api.coordination import coordinator_blueprint
from evalfleet.api.governing import local_governor
from evalfleet.clock import SystemClock
from evalfleet.collector import spared_collections
from evalfleet.governor.local import OwnRationing
from evalfleet.model.report import RunProgress
from evalfleet.model.verdict import RunStatus
from evalfleet.ports import Holder
from evalfleet.scheduling.coordinator import BEAT, DRAIN, Coordinator, RunEnd, drained_for
from evalfleet.scheduling.state import Adoption
from evalfleet.scheduling.worker import WorkerEnd

OnProgress = Callable[[RunProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claiming:
    """How a run is claimed: by whom, what must be waited for, and whether another holder may be pushed aside.

    `instead_of` is the id of a holder that is known to be dead: only it, and nobody who came meanwhile, is removed.
    """

    holder: Holder
    adoption: Adoption = Adoption.NONE
    takeover: bool = False
    steal: bool = False
    instead_of: str | None = None


async def run_inline(
    blueprint: RunBlueprint, claiming: Claiming, on_progress: OnProgress | None, *, lanes: int | None = None
) -> RunEnd:
    """Run to the end in this process. Cancelling the task drains the run, cleans up and raises CancelledError.

    Raises RunHeld, StoreError, DefinitionError or ConfigurationError.
    """
    coordinator = coordinator_blueprint(blueprint).coordinator(_cannot_kill)
    try:
        run_key = await coordinator.start(
            claiming.holder, claiming.adoption, takeover=claiming.takeover, steal=claiming.steal
        )
        blueprint = replace(blueprint, run_key=run_key)
        clock = SystemClock()
        workshop = await open_workshop(blueprint, local_governor(blueprint, INLINE, OwnRationing(clock), clock))
        try:
            count = lanes or blueprint.experiment.limits.concurrency
            worker = build_worker(blueprint, workshop, INLINE, count, coordinator.exchange)
            working = asyncio.create_task(worker.run(), name="evalfleet-worker")
            try:
                with spared_collections():
                    return await _until_end(coordinator, working, on_progress)
            finally:
                await _let_go(working)
        finally:
            await workshop.close()
    finally:
        await coordinator.close()


async def _until_end(
    coordinator: Coordinator, working: asyncio.Task[WorkerEnd], on_progress: OnProgress | None
) -> RunEnd:
    """Wait for the end of the run, telling `on_progress` about once a second; a cancellation drains the run first."""
    ended = asyncio.ensure_future(coordinator.ended())
    try:
        while not ended.done():
            await asyncio.wait({ended, working}, timeout=BEAT, return_when=asyncio.FIRST_COMPLETED)
            _tell(coordinator, on_progress)
            if working.done() and not ended.done():
                # Only a bug ends the worker early; nobody would ever settle what is left.
                working.result()
                await asyncio.wait({ended}, timeout=DRAIN)
    except asyncio.CancelledError as cancelled:
        reason, patience = drained_for(cancelled)
        for cancel in (False, True):
            coordinator.stop(RunStatus.CANCELLED, reason, cancel=cancel)
            await asyncio.wait({ended}, timeout=patience if not cancel else None)
        _tell(coordinator, on_progress)
        raise
    return ended.result()


def _tell(coordinator: Coordinator, on_progress: OnProgress | None) -> None:
    if on_progress is not None:
        on_progress(coordinator.progress())


async def _let_go(working: asyncio.Task[WorkerEnd]) -> None:
    """The worker ends by itself once it is told to stop; nobody is left to tell it after a failure."""
    _, still = await asyncio.wait({working}, timeout=DRAIN)
    if still:
        working.cancel()
    await asyncio.gather(working, return_exceptions=True)


def _cannot_kill(worker: str, reason: str) -> None:
    """The only worker is this process: a stalled loop is for its user to end."""
