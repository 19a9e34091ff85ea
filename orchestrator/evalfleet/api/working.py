"""What a worker's process is built from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from evalfleet.api.blueprint import RunBlueprint
from evalfleet.api.building import build_worker, open_workshop
from evalfleet.api.governing import local_governor
from evalfleet.api.hidden_output import hide_in_output
from evalfleet.clock import SystemClock
from evalfleet.governor.local import Rationing
from evalfleet.processes import limit_memory, worker_memory
from evalfleet.scheduling.worker import Exchange, Worker

#: Bytes that an attempt in a process of its own may allocate.
ALONE = 2 << 30
#: Seconds after the grace of its last spans in which a worker has written them, or gives up.
SPANS_WRITTEN_WITHIN = 20.0
#: Seconds in which it has sent its own to a collector, or gives up.
SPANS_SENT_WITHIN = 12.0


@dataclass(frozen=True, slots=True)
class WorkerBlueprint:
    """A run as its workers see it."""

    run: RunBlueprint

    @property
    def farewell(self) -> float:
        """Spans that wait to be written or sent are worth some seconds."""
        telemetry = self.run.experiment.telemetry
        sending = 0.0 if telemetry.export is None else SPANS_SENT_WITHIN
        return max(sending, telemetry.grace + SPANS_WRITTEN_WITHIN if telemetry.receive else 0.0)

    async def worker(
        self, run_key: int, name: str, lanes: int, exchange: Exchange, rationing: Rationing
    ) -> tuple[Worker, Callable[[], Awaitable[object]]]:
        """A worker of this process, whose memory is bounded from now on, and what closes everything around it.

        Raises DefinitionError or ConfigurationError when an arm can't be built here or a sandbox backend does not work.
        """
        memory = worker_memory()
        blueprint = replace(self.run, run_key=run_key, memory=min(memory, ALONE))
        limit_memory(memory)
        workshop = await open_workshop(blueprint, local_governor(blueprint, name, rationing, SystemClock()))
        hide_in_output(workshop.secrets)
        try:
            await workshop.backends.check(blueprint.backends)
        except BaseException:
            await workshop.close()
            raise
        return build_worker(blueprint, workshop, name, lanes, exchange), workshop.close
