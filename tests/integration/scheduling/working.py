"""A coordinator and a worker over a real record store, with attempts that only take their time.

`python -m tests.integration.scheduling.working URL FILE [PLACE]` is the same as a process of its own; FILE gets a line
for each start. It stops itself when it passes the failpoint PLACE for the fifth time. It exits with 0 when the run is
over, with 3 when another coordinator took it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evalfleet.clock import SystemClock
from evalfleet.model.record import SealedAttempt
from evalfleet.ports import Holder
from evalfleet.scheduling.coordinator import Coordinator, RunEnd
from evalfleet.scheduling.messages import Grant
from evalfleet.scheduling.state import Adoption, RunPolicy
from evalfleet.scheduling.worker import Attempt, Worker, WorkerTimes
from evalfleet.store.rows import encode_attempt
from evalfleet.store.writer import PostgresRecorder
from tests.integration.store.samples import evidence, ignore

RUN = "r1"
LANES = 4
SECONDS = 0.1
#: A lease time that a test can wait for; grants stop after half of it without a word from the store.
LEASE = 2.0
FENCED = 3


@dataclass(frozen=True)
class Start:
    """One start: which case, granted as which attempt, in which process, at which second since the epoch."""

    case: int
    attempt: int
    pid: int
    at: float


class Starts:
    """A file of starts that several processes append to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, grant: Grant) -> None:
        line = f"{grant.case.ordinal} {grant.attempt} {os.getpid()} {time.time():.6f}\n"
        os.write(self._file, line.encode())

    def __len__(self) -> int:
        return self._path.read_bytes().count(b"\n")

    def all(self) -> list[Start]:
        lines = [line.split() for line in self._path.read_text().splitlines()]
        return [Start(int(case), int(attempt), int(pid), float(at)) for case, attempt, pid, at in lines]


class Patient:
    """An attempt that sleeps and then passes."""

    def __init__(self, grant: Grant, run_key: int, starts: Starts) -> None:
        self._grant = grant
        self._run_key = run_key
        self._starts = starts

    async def run(self) -> SealedAttempt:
        self._starts.note(self._grant)
        await asyncio.sleep(SECONDS)
        return encode_attempt(evidence(self._grant.attempt, self._grant.case.ordinal), self._run_key)

    def cancel(self, reason: str) -> None:
        """It is about to end anyway."""

    def hold(self, *, back: bool) -> None:
        """It sends nothing."""


async def work(
    url: str,
    starts: Starts,
    holder: Holder,
    *,
    adoption: Adoption = Adoption.NONE,
    steal: bool = False,
    lease: float = LEASE,
    lanes: int = LANES,
    failpoint: Callable[[str], None] = ignore,
) -> RunEnd:
    """Claim the run and work on it to its end, or until it is taken; no more than `LANES` cases are leased."""
    clock = SystemClock()
    policy = RunPolicy(concurrency=LANES, lease_ttl=lease, lease_grace=0.5, tick=0.1)
    recorder = PostgresRecorder(url, RUN, failpoint)
    coordinator = Coordinator(recorder, clock, policy, kill=_nobody, failpoint=failpoint)
    run_key = await coordinator.start(holder, adoption, takeover=steal, steal=steal)

    def begin(grant: Grant) -> Attempt:
        return Patient(grant, run_key, starts)

    name = f"worker of {holder.id}"
    worker = Worker(name, lanes, coordinator.exchange, begin, clock, WorkerTimes(lease_ttl=lease))
    working = asyncio.create_task(worker.run())
    try:
        end = await coordinator.ended()
        # What the fence was to stop would happen now.
        await asyncio.wait({working}, timeout=3 * SECONDS)
        return end
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await coordinator.close()


def _nobody(worker: str, reason: str) -> None:
    raise AssertionError(f"nothing is wrong with {worker}, but it was to be killed: {reason}")


class _Stops:
    """A failpoint that stops this process, as SIGSTOP from outside does, but at a place of its choice."""

    def __init__(self, place: str, left: int) -> None:
        self._place = place
        self._left = left

    def __call__(self, place: str) -> None:
        self._left -= place == self._place
        if place == self._place and self._left == 0:
            os.kill(os.getpid(), signal.SIGSTOP)


async def _main(url: str, path: Path, place: str) -> int:
    me = Holder(id=f"process {os.getpid()}", host="here", pid=os.getpid())
    # With lanes to spare, what was sealed but not committed does not keep the coordinator from granting.
    end = await work(url, Starts(path), me, lanes=2 * LANES, failpoint=_Stops(place, 5))
    return FENCED if end.fenced else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(sys.argv[1], Path(sys.argv[2]), "".join(sys.argv[3:]))))
