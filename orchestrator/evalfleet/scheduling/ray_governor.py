"""The governor of a Ray cluster: one named actor, shared by the workers of all runs that are on it.

The first worker that has to ask makes it: a run without rates and refusals has none. It is detached, since it belongs
to no run; Ray restarts it after a crash, and it ends by itself when nobody asks any more.
"""

# Ray makes its actor handles at run time, so a checker can know nothing of their methods.
# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportUntypedClassDecorator=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import os
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayError

from evalfleet.governor import wire
from evalfleet.governor.messages import Allotment, WorkerReport
from evalfleet.governor.ration import ration
from evalfleet.governor.state import GovernorState
from evalfleet.processes import die_with_parent

#: The number rises with the form of what is said: runs of different versions don't share one.
NAME, NAMESPACE = "evalfleet-governor-1", "evalfleet"
#: Seconds without a report after which the governor ends, and those between two looks.
IDLE, _LOOK = 300.0, 10.0


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0, max_concurrency=1000)  # pyright: ignore[reportCallIssue]
class GovernorActor:
    """Hosts the state of all accounts of a cluster."""

    def __init__(self) -> None:
        die_with_parent()
        self._state = GovernorState()
        self._heard_at = _now()
        self._end_when_idle()

    async def ration(self, report: bytes) -> bytes:
        """`governor.ration` over the wire."""
        self._heard_at = _now()
        return wire.encode(ration(self._state, wire.decode_report(report), self._heard_at))

    async def pid(self) -> int:
        return os.getpid()

    def _end_when_idle(self) -> None:
        if _now() - self._heard_at < IDLE:
            asyncio.get_running_loop().call_later(_LOOK, self._end_when_idle)
        else:
            ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


class RayRationing:
    """The way from a worker to the governor of its cluster."""

    def __init__(self) -> None:
        self._actor: Any = None

    async def ration(self, report: WorkerReport) -> tuple[Allotment, ...]:
        """See `governor.local.Rationing`."""
        try:
            if self._actor is None:
                self._actor = await asyncio.to_thread(governor)
            return wire.decode_allotments(await self._actor.ration.remote(wire.encode(report)))
        except ActorDiedError as error:
            self._actor = None  # the next report finds another, or makes one
            raise ConnectionError("it is gone") from error
        except (RayError, ValueError) as error:
            raise ConnectionError(type(error).__name__) from error


def governor() -> Any:
    """The cluster's governor, made if there is none. Talks to Ray for some milliseconds."""
    return GovernorActor.options(  # pyright: ignore
        name=NAME, namespace=NAMESPACE, lifetime="detached", get_if_exists=True
    ).remote()


def _now() -> float:
    return asyncio.get_running_loop().time()
