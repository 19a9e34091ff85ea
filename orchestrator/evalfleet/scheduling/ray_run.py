"""The driver of a run on Ray: owns coordinator and workers, replaces dead workers, watches for silence."""

# Ray makes its actor handles at run time, so a checker can know nothing of their methods.
# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportUntypedClassDecorator=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayError, RayTaskError

from evalfleet.errors import EvalfleetError, InfrastructureError
from evalfleet.model.report import RunProgress
from evalfleet.model.verdict import RunStatus
from evalfleet.scheduling.coordinator import BEAT, RunEnd, drained_for
from evalfleet.scheduling.fleet import Fleet
from evalfleet.scheduling.ray_actors import (
    Actor,
    Claim,
    CoordinatorMaker,
    Refused,
    WorkerMaker,
)
from evalfleet.scheduling.ray_crew import Crew, new_coordinator, new_worker
from evalfleet.scheduling.worker import WorkerEnd

#: Seconds of silence after which the coordinator's process is killed, so that Ray restarts it.
SILENCE = 15.0
#: Workers that fail to begin this many times in a row end the run.
_GIVE_UP = 3


class RayRun:
    """One run over a Ray that `ray.init` has joined or started. The actors die with this process.

    What there is of `crew` is used before any actor is made.
    """

    def __init__(
        self, coordinator: CoordinatorMaker, worker: WorkerMaker, claim: Claim, fleet: Fleet, crew: Crew | None = None
    ) -> None:
        self._beginning = (coordinator, claim)
        self._worker_maker = worker
        self._fleet = fleet
        self._crew = crew or Crew(new_coordinator(type(coordinator)), [])
        self._coordinator = self._crew.coordinator
        self._names = itertools.count(1)
        self._workers: dict[str, Actor] = {}
        self._running: dict[asyncio.Future[Refused | WorkerEnd], str] = {}
        self._run_key = 0
        self._begun: set[str] = set()
        self._failures = 0
        self._heard_at = 0.0
        for _ in range(fleet.workers):
            # Its process starts beside the coordinator's, which takes as long.
            self._hire()

    @property
    def coordinator(self) -> Actor:
        return self._coordinator

    @property
    def workers(self) -> dict[str, Actor]:
        """The living workers by name."""
        return dict(self._workers)

    async def run(self, on_progress: Callable[[RunProgress], None] | None) -> RunEnd:
        """Run to the end. Cancelling the task drains the run and raises CancelledError.

        Raises RunHeld, StoreError, or what a worker could not be built for.
        """
        try:
            self._run_key = await self._claimed()
            for name in self._workers:
                self._set_to_work(name)
            return await self._work(on_progress)
        finally:
            self._dismiss()

    async def _work(self, on_progress: Callable[[RunProgress], None] | None) -> RunEnd:
        self._heard_at = _now()
        try:
            end = await self._supervise(on_progress)
        except asyncio.CancelledError as cancelled:
            await self._drain(*drained_for(cancelled), on_progress)
            await self._hear_out()
            raise
        await self._hear_out()
        return end

    async def _supervise(self, on_progress: Callable[[RunProgress], None] | None) -> RunEnd:
        ended = asyncio.ensure_future(self._ended())
        try:
            while not ended.done():
                await asyncio.wait({ended, *self._running}, timeout=BEAT, return_when=asyncio.FIRST_COMPLETED)
                self._replace_dead()
                if not ended.done():
                    await self._ping(on_progress)
            await self._ping(on_progress)
            return ended.result()
        finally:
            ended.cancel()

    async def _claimed(self) -> int:
        """The run's number in the store, once it is claimed."""
        return await self._answer(self._begin)

    async def _ended(self) -> RunEnd:
        """The coordinator's end."""
        return await self._answer(self._end)

    async def _begin(self) -> Any:
        return await self._coordinator.begin.remote(*self._beginning)

    async def _end(self) -> Any:
        refused = await self._begin()  # a restarted coordinator knows nothing of its run
        return refused if isinstance(refused, Refused) else await self._coordinator.ended.remote()

    async def _answer(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """What the coordinator answers in the end, over its restarts."""
        while True:
            try:
                answer = await ask()
            except RayError as error:
                if not _may_come_back(error):
                    raise InfrastructureError(f"the coordinator is gone: {_first_line(error)}") from error
                await asyncio.sleep(0.2)
                continue
            if isinstance(answer, Refused):
                raise answer.exception()
            return answer

    async def _ping(self, on_progress: Callable[[RunProgress], None] | None) -> None:
        try:
            progress = await _within(self._coordinator.ping.remote(tuple(self._workers)), 2.0)
        except (RayError, TimeoutError):
            if _now() - self._heard_at > SILENCE:
                # A stopped or looping process never answers; killed, it comes back and adopts what lives.
                ray.kill(self._coordinator, no_restart=False)
                self._heard_at = _now()
            return
        self._heard_at = _now()
        if progress is not None and on_progress is not None:
            on_progress(progress)

    def _hire(self) -> str:
        name = f"worker-{next(self._names)}"
        spare = self._crew.workers.pop() if self._crew.workers else None
        self._workers[name] = spare or new_worker(type(self._worker_maker))
        return name

    def _set_to_work(self, name: str) -> None:
        worker = self._workers[name]
        running = worker.run.remote(self._worker_maker, self._coordinator, self._run_key, name, self._fleet.lanes)
        self._running[asyncio.ensure_future(_awaited(running))] = name
        begun = asyncio.ensure_future(_awaited(worker.begun.remote()))
        begun.add_done_callback(lambda done: self._note_begun(name, done))

    def _note_begun(self, name: str, begun: asyncio.Future[bool]) -> None:
        if not begun.cancelled() and begun.exception() is None and begun.result():
            self._begun.add(name)
            self._failures = 0

    def _replace_dead(self) -> None:
        for running in [future for future in self._running if future.done()]:
            name = self._running.pop(running)
            del self._workers[name]
            error = running.exception()
            if error is not None and not isinstance(error, RayError):
                raise error
            end = None if error is not None else running.result()
            if isinstance(error, RayTaskError) and not isinstance(error, ActorDiedError):
                self._count_failure(InfrastructureError(f"workers fail: {_first_line(error)}"))
            elif error is not None and name not in self._begun:
                self._count_failure(InfrastructureError(f"workers die as they load the project: {_first_line(error)}"))
            elif isinstance(end, Refused):
                self._count_failure(end.exception())
            elif end is WorkerEnd.STOPPED or end is WorkerEnd.ABANDONED:
                continue
            self._set_to_work(self._hire())

    def _count_failure(self, error: EvalfleetError) -> None:
        """A worker that can't begin or breaks is replaced, but not for ever."""
        self._failures += 1
        if self._failures >= _GIVE_UP:
            raise error

    async def _drain(self, reason: str, patience: float, on_progress: Callable[[RunProgress], None] | None) -> None:
        ended = asyncio.ensure_future(self._ended())
        began = _now()
        while not ended.done():
            # Asked again and again: a coordinator that is restarted meanwhile has forgotten it.
            with contextlib.suppress(RayError):
                cancel = _now() - began >= patience
                await self._coordinator.stop.remote(RunStatus.CANCELLED, reason, cancel)
            await asyncio.wait({ended}, timeout=BEAT)
        await self._ping(on_progress)

    async def _hear_out(self) -> None:
        """The run is over, and its workers are told so: wait for those that have something to put away."""
        if self._worker_maker.farewell and self._running:
            await asyncio.wait(self._running, timeout=self._worker_maker.farewell)

    def _dismiss(self) -> None:
        for running in self._running:
            running.cancel()
        for worker in (*self._workers.values(), *self._crew.workers):
            ray.kill(worker)
        ray.kill(self._coordinator, no_restart=True)


async def _awaited(reference: Any) -> Any:
    return await reference


async def _within(reference: Any, seconds: float) -> Any:
    return await asyncio.wait_for(_awaited(reference), seconds)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _may_come_back(error: RayError) -> bool:
    """Whether the actor is being restarted; only a death for good is final."""
    return not isinstance(error, ActorDiedError)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
