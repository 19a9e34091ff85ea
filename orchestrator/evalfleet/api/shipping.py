"""Carrying a run out as a job of a Ray cluster: the project travels, the record store is where both sides meet."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from evalfleet.api.blueprint import RunBlueprint
from evalfleet.api.inline import OnProgress
from evalfleet.api.package import write_package
from evalfleet.api.running import Place
from evalfleet.api.session import Session
from evalfleet.clock import SystemClock
from evalfleet.errors import ConfigurationError, InfrastructureError
from evalfleet.model.verdict import RunStatus
from evalfleet.planning.plan import Plan
from evalfleet.plugins import ray_jobs
from evalfleet.settings import Settings
from evalfleet.store import lifecycle

_LOOK_SECONDS = 1.0
#: Seconds for which a run that was asked to stop may take until its job is stopped.
_STOP_SECONDS = 60.0
_ENDED = frozenset({RunStatus.COMPLETED, RunStatus.CANCELLED, RunStatus.LIMITED})


class Jobs(Protocol):
    """What `evalfleet.scheduling.ray_jobs.RayJobs` offers."""

    def submit(self, entrypoint: str, submission: str, package: Path) -> None: ...

    def state(self, submission: str) -> JobState: ...

    def log_tail(self, submission: str) -> str: ...

    def stop(self, submission: str) -> None: ...


class JobState(Protocol):
    @property
    def status(self) -> str: ...
    @property
    def ended(self) -> bool: ...
    @property
    def message(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Parcel:
    """A run that is packed for a cluster, which has answered."""

    run: str
    jobs: Jobs
    package: Path
    entrypoint: str


def check_reachable(address: str, settings: Settings) -> None:
    """Refuse artifacts in a directory of this machine, which a cluster elsewhere would not write to."""
    local = any(f"//{host}" in address for host in ("127.0.0.1", "localhost", "[::1]"))
    if "://" not in settings.artifacts and not local:
        raise ConfigurationError(
            "a run on a cluster keeps large evidence where both sides can reach it: set EVALFLEET_ARTIFACTS to a URL"
        )


@asynccontextmanager
async def packed(plan: Plan, blueprint: RunBlueprint, place: Place, *, steal: bool = False) -> AsyncGenerator[Parcel]:
    """The run ready to be sent, so that what can't be shipped is said before anything is written or sent.

    Raises ConfigurationError when the project can't travel, InfrastructureError when the cluster can't be reached.
    """
    jobs = cast("Jobs", await asyncio.to_thread(ray_jobs, place.address or ""))
    with tempfile.TemporaryDirectory(prefix="evalfleet-") as folder:
        package = Path(folder) / "project.zip"
        await asyncio.to_thread(write_package, plan, blueprint, package)
        entrypoint = f"python -m evalfleet.api.shipped {place.workers or 0} {place.lanes or 0} {int(steal)}"
        yield Parcel(blueprint.run, jobs, package, entrypoint)


async def ship(session: Session, parcel: Parcel, submission: str, on_progress: OnProgress | None) -> None:
    """Submit the run as a job of this id and follow it to its end; a second one under the id changes nothing.

    Cancelling the task stops the run, then its job. Raises InfrastructureError when the cluster can't be reached
    or the job ends before its run does.
    """
    await asyncio.to_thread(parcel.jobs.submit, parcel.entrypoint, submission, parcel.package)
    try:
        await _follow(session, parcel.run, parcel.jobs, submission, on_progress)
    except asyncio.CancelledError:
        await _stop(session, parcel.run, parcel.jobs, submission)
        raise


async def _follow(session: Session, run: str, jobs: Jobs, submission: str, on_progress: OnProgress | None) -> None:
    clock = SystemClock()
    while True:
        state = await asyncio.to_thread(jobs.state, submission)
        info = await session.reader.find_run(run)  # after the job's state: a run that ended had its job until then
        progress = await session.reader.progress(run)
        if progress is not None and on_progress is not None:
            on_progress(progress)
        if info.status in _ENDED and state.ended:
            return
        if state.ended:
            said = await asyncio.to_thread(jobs.log_tail, submission) or state.message
            raise InfrastructureError(f"the job {submission} has {state.status} before its run ended: {said}")
        await clock.sleep(_LOOK_SECONDS)


async def _stop(session: Session, run: str, jobs: Jobs, submission: str) -> None:
    """First by the record store, so that attempts are cancelled in good order; a job that stays is stopped."""
    await lifecycle.request_cancel(session.url, run)
    clock = SystemClock()
    with contextlib.suppress(InfrastructureError):
        for _ in range(int(_STOP_SECONDS / _LOOK_SECONDS)):
            if (await asyncio.to_thread(jobs.state, submission)).ended:
                return
            await clock.sleep(_LOOK_SECONDS)
        await asyncio.to_thread(jobs.stop, submission)
