"""The two actors of a run on Ray: its coordinator and its workers. Both end with the process that made them."""

# Ray makes its actor handles at run time, so a checker can know nothing of their methods.
# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportUntypedClassDecorator=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, OutOfMemoryError, RayError

from evalfleet.collector import spare_collections
from evalfleet.errors import EvalfleetError
from evalfleet.model.verdict import RunStatus
from evalfleet.ports import Holder
from evalfleet.processes import die_with_parent
from evalfleet.scheduling import wire
from evalfleet.scheduling.events import Departure
from evalfleet.scheduling.messages import ExchangeReply, ExchangeRequest
from evalfleet.scheduling.ray_governor import RayRationing
from evalfleet.scheduling.state import Adoption

if TYPE_CHECKING:
    from evalfleet.governor.local import Rationing

    # Each actor's process loads its own side only, from its blueprint.
    from evalfleet.model.report import RunProgress
    from evalfleet.scheduling.coordinator import Coordinator, RunEnd
    from evalfleet.scheduling.worker import Worker, WorkerEnd

Actor: TypeAlias = Any
#: Seconds that a worker may take to hand over what it holds after it was told to stop.
FAREWELL = 30.0


@dataclass(frozen=True, slots=True)
class Claim:
    """How the first incarnation claims its run; a restarted one never takes over and asks who lives."""

    driver_pid: int
    adoption: Adoption
    takeover: bool
    steal: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """A claim or a run that failed, as plain data: exceptions do not cross processes."""

    error: type[EvalfleetError]
    message: str

    def exception(self) -> EvalfleetError:
        return self.error(self.message)


class CoordinatorMaker(Protocol):
    """What a coordinator's actor is built from."""

    def coordinator(self, kill: Callable[[str, str], None]) -> Coordinator: ...


class WorkerMaker(Protocol):
    """What a worker's actor is built from; `run_key` is known once the run was claimed.

    `farewell` are the seconds that a worker may take at the end of the run for what no verdict waits for; with 0 it is
    ended at once.
    """

    @property
    def farewell(self) -> float: ...

    async def worker(
        self,
        run_key: int,
        name: str,
        lanes: int,
        exchange: Callable[[ExchangeRequest], Awaitable[ExchangeReply]],
        rationing: Rationing,
    ) -> tuple[Worker, Callable[[], Awaitable[object]]]:
        """A worker, whose model calls `rationing` governs, and what closes everything around it."""
        ...


# One loop for all methods: a concurrency group would run in a thread of its own. A worker has at most three calls
# open, so this many never fill up.
@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0, max_concurrency=10_000)  # pyright: ignore[reportCallIssue]
class CoordinatorActor:
    """Hosts the run's Coordinator. Ray restarts it after a crash, under the same actor id."""

    def __init__(self, maker: type[CoordinatorMaker]) -> None:
        del maker  # named here so that its module is imported before there is a run
        die_with_parent()
        self._workers: dict[str, Actor] = {}
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._start: asyncio.Future[int | Refused] | None = None
        self._told = asyncio.Event()
        self._coordinator: Coordinator | None = None

    async def begin(self, maker: CoordinatorMaker, claim: Claim) -> int | Refused:
        """Claim the run; its number in the store, or why not. Repeated calls give the first answer.

        The owner says it again after a restart, of which only Ray and the owner know.
        """
        if self._start is None:
            self._start = asyncio.ensure_future(self._begin(maker, claim))
            self._told.set()
        return await asyncio.shield(self._start)

    async def _begin(self, maker: CoordinatorMaker, claim: Claim) -> int | Refused:
        context = ray.get_runtime_context()
        restarted = context.was_current_actor_reconstructed
        adoption = Adoption.ROSTER if restarted else claim.adoption
        takeover, steal = (claim.takeover and not restarted, claim.steal and not restarted)
        holder = Holder(id=str(context.get_actor_id()), host=socket.gethostname(), pid=claim.driver_pid)
        self._coordinator = coordinator = maker.coordinator(self._kill)
        spare_collections()
        try:
            return await coordinator.start(holder, adoption, takeover=takeover, steal=steal)
        except EvalfleetError as error:
            if restarted:
                _leave()
            return Refused(type(error), str(error))

    async def exchange(self, *parts: bytes) -> bytes:
        """`Coordinator.exchange` over the wire."""
        coordinator = await self._ready()
        return wire.encode(await coordinator.exchange(wire.decode_request(parts)))

    async def ended(self) -> RunEnd | Refused:
        """Wait for the end of the run."""
        coordinator = await self._ready()
        try:
            end = await coordinator.ended()
        except EvalfleetError as error:
            return Refused(type(error), str(error))
        if end.fenced:
            # Anything but this Ray undoes by a restart, and the restart would claim a newer epoch.
            asyncio.get_running_loop().call_later(0.5, _leave)
        return end

    async def ping(self, roster: tuple[str, ...]) -> RunProgress | None:
        """The owner's sign of life: which workers it has. None while the claim is not through."""
        if isinstance(await self._started(), Refused) or self._coordinator is None:
            return None
        self._coordinator.roster(roster)
        return self._coordinator.progress()

    async def stop(self, status: RunStatus, reason: str, cancel: bool) -> None:
        (await self._ready()).stop(status, reason, cancel=cancel)

    async def meet(self, name: str, worker: Actor) -> None:
        """A worker introduces itself: from now on its death is seen at once."""
        coordinator = await self._ready()
        self._workers[name] = worker
        if name not in self._watching:
            self._watching[name] = asyncio.ensure_future(self._watch(coordinator, name, worker))

    async def pid(self) -> int:
        return os.getpid()

    async def _ready(self) -> Coordinator:
        if isinstance(await self._started(), Refused) or self._coordinator is None:
            raise ConnectionError("the coordinator could not claim its run")
        return self._coordinator

    async def _started(self) -> int | Refused:
        await self._told.wait()
        assert self._start is not None
        return await asyncio.shield(self._start)

    async def _watch(self, coordinator: Coordinator, name: str, worker: Actor) -> None:
        how = await _departure(worker)
        self._watching.pop(name, None)
        coordinator.worker_gone(name, how)

    def _kill(self, worker: str, reason: str) -> None:
        handle = self._workers.get(worker)
        if handle is not None:
            ray.kill(handle)


async def _departure(worker: Actor) -> Departure:
    """Await a call that never returns; how it fails says how the worker ended."""
    try:
        await worker.watch.remote()
    except OutOfMemoryError:
        return Departure.OUT_OF_MEMORY
    except ActorUnavailableError:
        return Departure.UNREACHABLE
    except ActorDiedError as error:
        # A lost node may still run its workers, so their leases wait for their end.
        return Departure.UNREACHABLE if "node was terminated" in str(error) else Departure.CRASHED
    except RayError:
        return Departure.UNREACHABLE
    return Departure.DRAINED


def _leave() -> None:
    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


@ray.remote(max_restarts=0, max_task_retries=0, max_concurrency=100)  # pyright: ignore[reportCallIssue]
class WorkerActor:
    """Hosts one worker. Never restarted: the owner makes a new one."""

    def __init__(self, maker: type[WorkerMaker]) -> None:
        del maker  # named here so that its module is imported before there is a run
        die_with_parent()
        self._name = ""
        self._coordinator: Actor = None
        self._epoch = 0
        self._worker: Worker | None = None
        self._met = False
        self._tried = asyncio.Event()
        self._over = asyncio.Event()

    async def run(
        self, maker: WorkerMaker, coordinator: Actor, run_key: int, name: str, lanes: int
    ) -> Refused | WorkerEnd:
        """Work until the run is over or the worker was drained."""
        self._name, self._coordinator = name, coordinator
        try:
            worker, close = await maker.worker(run_key, name, lanes, self._exchange, RayRationing())
        except EvalfleetError as error:
            self._tried.set()
            return Refused(type(error), str(error))
        self._worker = worker
        self._tried.set()
        spare_collections()
        try:
            await self._introduce()
            return await worker.run()
        finally:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(close(), FAREWELL)
            self._over.set()

    async def watch(self) -> None:
        """Return when the worker ended in good order; fail when its process died."""
        await self._over.wait()

    async def begun(self) -> bool:
        """Whether the worker could be built, as soon as that is known; fails when its process dies of it."""
        await self._tried.wait()
        return self._worker is not None

    async def drain(self) -> None:
        if self._worker is not None:
            self._worker.drain()

    async def pid(self) -> int:
        return os.getpid()

    async def _introduce(self) -> None:
        me = ray.get_runtime_context().current_actor
        self._met = False
        with contextlib.suppress(RayError):
            await self._coordinator.meet.remote(self._name, me)
            self._met = True

    async def _exchange(self, request: ExchangeRequest) -> ExchangeReply:
        try:
            data: Any = await self._coordinator.exchange.remote(*wire.pieces(wire.encode(request)))
        except ActorDiedError as error:
            raise ConnectionAbortedError("the coordinator is gone for good") from error
        except RayError as error:
            raise ConnectionError("the coordinator did not answer") from error
        reply = wire.decode_reply(data)
        if not self._met or (self._epoch and reply.epoch > self._epoch):
            # A new incarnation does not know us: it must see our death as the old one would have.
            await self._introduce()
        self._epoch = max(self._epoch, reply.epoch)
        return reply
