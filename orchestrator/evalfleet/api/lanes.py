"""One granted case, run to a sealed attempt: in this process, or alone in one of its own."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from evalfleet.api.blueprint import RunBlueprint
from evalfleet.errors import AttemptFailure, FailureKind, InfrastructureError, StoreError
from evalfleet.execution.executor import Executor
from evalfleet.execution.job import AttemptControl
from evalfleet.execution.paid_calls import AttemptPurse
from evalfleet.execution.seal import never_ran
from evalfleet.execution.waiting import Lane
from evalfleet.grading.judge_prompts import Question
from evalfleet.model.case import Case
from evalfleet.model.money import Money
from evalfleet.model.record import AttemptEvidence, Recording, SealedAttempt
from evalfleet.ports import Clock
from evalfleet.sandbox_ports import Command, CommandResult, Spawner
from evalfleet.scheduling.messages import Grant
from evalfleet.settings import own_environment
from evalfleet.store.rows import EvidenceEncoder

if TYPE_CHECKING:
    # It brings psycopg, for which only who judges has a use.
    from evalfleet.store.recordings import Recordings

#: Seconds between tries to hand large bodies to an artifact store that is away, and how often.
_PAUSES = (1.0, 4.0, 15.0, 40.0)
#: Seconds that a process of its own may take beyond the attempt's deadline to start and to end.
_GRACE = 4.0
_NO_DEADLINE = 7 * 24 * 3600.0


class LaneAttempt:
    """An attempt in this process. `failpoint` is passed the place `during_seal`: it ran, and nobody knows yet."""

    def __init__(
        self,
        grant: Grant,
        executor: Executor,
        encoder: EvidenceEncoder,
        clock: Clock,
        failpoint: Callable[[str], None],
        recordings: Recordings | None = None,
    ) -> None:
        self._grant = grant
        self._executor = executor
        self._encoder = encoder
        self._clock = clock
        self._failpoint = failpoint
        self._control = AttemptControl()
        self._recordings = recordings
        self._judging: asyncio.Future[AttemptEvidence] | None = None
        self._purse: AttemptPurse | None = None
        self._told: Callable[[AttemptEvidence, Case], None] | None = None

    def record_with(self, hand_over: Callable[[Recording], Awaitable[None]]) -> None:
        """Have the attempt recorded before it is judged, and after turns from which it can be continued.

        `hand_over` returns once the recording is durable.
        """
        recordings, grant = self._recordings, self._grant
        if recordings is None:
            return

        async def record(evidence: AttemptEvidence, questions: Mapping[int, Sequence[Question]]) -> None:
            body = await recordings.encode(evidence, questions)
            await hand_over(Recording(grant.attempt, grant.case.ordinal, body))

        async def record_beginning(evidence: AttemptEvidence) -> None:
            body = await recordings.encode(evidence, {})
            await hand_over(Recording(grant.attempt, grant.case.ordinal, body, turns=len(evidence.turns)))

        self._control.record = record
        self._control.record_beginning = record_beginning

    def tell_when_made(self, made: Callable[[int, float], None]) -> None:
        """Have `made` told the attempt and the seconds that its sandbox took to be made, once it is there."""
        self._control.sandbox_made = partial(made, self._grant.attempt)

    def tell_when_over(self, told: Callable[[AttemptEvidence, Case], None] | None) -> None:
        """Have `told` what the attempt was, once it is over."""
        self._told = told

    def wait_in(self, lane: Lane) -> None:
        """Have the attempt leave its lane while it waits for model calls."""
        self._control.lane = lane

    def pay_with(self, purse: AttemptPurse | None) -> None:
        """Have the attempt's model calls paid."""
        self._purse = self._control.purse = purse

    async def run(self) -> SealedAttempt:
        evidence = await self._evidence()
        sealed = await seal(evidence, self._grant, self._encoder, self._clock)
        if self._told is not None:
            self._told(evidence, self._grant.case)
        if self._purse is not None:
            sealed = replace(sealed, spending=self._purse.spending(_unseen(evidence, sealed, self._purse)))
        self._failpoint("during_seal")
        return sealed

    async def _evidence(self) -> AttemptEvidence:
        grant = self._grant
        if grant.begun:
            return await self._continued()
        if not grant.recorded:
            return await self._executor.execute(grant.attempt, grant.case, self._control)
        self._judging = asyncio.ensure_future(self._judged())
        try:
            return await self._judging
        except asyncio.CancelledError:
            if self._control.reason is None:
                raise
            failure = AttemptFailure(FailureKind.CANCELLED, "CANCELLED", self._control.reason)
            return never_ran(grant.attempt, grant.case, failure, self._clock.wall())

    async def _continued(self) -> AttemptEvidence:
        """Go on where an earlier attempt of the case was lost."""
        attempt, case = self._grant.attempt, self._grant.case
        try:
            if self._recordings is None:
                raise StoreError("no case of this run is continued any more")
            found = await self._recordings.read(case.ordinal)
        except StoreError as error:
            failure = AttemptFailure(FailureKind.INFRASTRUCTURE, "RECORDING_UNREADABLE", str(error))
            return never_ran(attempt, case, failure, self._clock.wall())
        return await self._executor.execute(attempt, case, self._control, found.evidence.turns, found.begun_by)

    async def _judged(self) -> AttemptEvidence:
        """Judge what an earlier attempt of the case left; its agent is never called again instead."""
        attempt, case = self._grant.attempt, self._grant.case
        try:
            if self._recordings is None:
                raise StoreError("no eval of this run asks a judge any more")
            found = await self._recordings.read(case.ordinal)
        except StoreError as error:
            failure = AttemptFailure(FailureKind.INFRASTRUCTURE, "RECORDING_UNREADABLE", str(error))
            return never_ran(attempt, case, failure, self._clock.wall())
        return await self._executor.judge(attempt, case, found.as_evidence(attempt, case), found.questions, self._purse)

    def cancel(self, reason: str) -> None:
        self._control.cancel(reason)
        if self._judging is not None:
            self._judging.cancel()

    def hold(self, *, back: bool) -> None:
        self._control.hold(back=back)


def _unseen(evidence: AttemptEvidence, sealed: SealedAttempt, purse: AttemptPurse) -> Money | None:
    """What an agent cost whose calls can't be seen, None when nobody knows; one that was sent nothing cost nothing."""
    if not evidence.turns:
        return Money()
    if sealed.tokens is None or (purse.dollars and sealed.cost_usd is None):
        return None
    return Money.of(sealed.cost_usd, sealed.tokens)


async def seal(evidence: AttemptEvidence, grant: Grant, encoder: EvidenceEncoder, clock: Clock) -> SealedAttempt:
    """Encode an attempt; evidence that can't be kept makes it errored, never lost."""
    try:
        return await _encode(evidence, encoder, clock)
    except AttemptFailure as failure:
        return encoder.encode_inline(never_ran(grant.attempt, grant.case, failure, clock.wall()))


async def _encode(evidence: AttemptEvidence, encoder: EvidenceEncoder, clock: Clock) -> SealedAttempt:
    for pause in _PAUSES:
        try:
            return await encoder.encode(evidence)
        except StoreError:
            await clock.sleep(pause)
    try:
        return await encoder.encode(evidence)
    except StoreError as error:
        message = f"the artifact store took no evidence: {error}"
        raise AttemptFailure(FailureKind.INFRASTRUCTURE, "ARTIFACT_STORE_AWAY", message) from error


def begun_file(result: Path) -> Path:
    """What a process of its own leaves beside its result once the attempt begins: from then on it is to blame."""
    return result.with_suffix(".begun")


class IsolatedAttempt:
    """An attempt in a process of its own, which it alone can stall, exhaust or kill."""

    def __init__(
        self,
        grant: Grant,
        blueprint: RunBlueprint,
        encoder: EvidenceEncoder,
        spawner: Spawner,
        clock: Clock,
    ) -> None:
        self._grant = grant
        self._blueprint = blueprint
        self._encoder = encoder
        self._spawner = spawner
        self._clock = clock
        self._process: asyncio.Future[CommandResult] | None = None
        self._cancelled: str | None = None

    async def run(self) -> SealedAttempt:
        limits = self._blueprint.experiment.limits
        deadline = limits.attempt_timeout + (limits.grading_timeout if self._blueprint.judges else 0.0)
        with tempfile.TemporaryDirectory(prefix="evalfleet-") as folder:
            result = Path(folder) / "sealed"
            command = Command(
                argv=(sys.executable, "-m", "evalfleet.api.child", str(result)),
                stdin=msgspec.msgpack.encode((self._blueprint, self._grant)),
                timeout=deadline + _GRACE,
                cwd=self._blueprint.project,
            )
            self._process = asyncio.ensure_future(self._spawner.run(command, base_env=own_environment()))
            try:
                ended = await self._process
            except asyncio.CancelledError:
                if self._cancelled is None:
                    raise
                return self._failed(FailureKind.CANCELLED, "CANCELLED", self._cancelled)
            except (OSError, InfrastructureError) as error:
                return self._failed(FailureKind.INFRASTRUCTURE, "ISOLATION_FAILED", str(error))
            if not begun_file(result).exists():
                tail = ended.stderr[-500:].decode("utf-8", "replace")
                return self._failed(
                    FailureKind.INFRASTRUCTURE, "ISOLATION_FAILED", f"its process did not begin: {tail}"
                )
            if result.exists():
                return msgspec.msgpack.decode(result.read_bytes(), type=SealedAttempt)
        if ended.timed_out:
            message = f"the attempt did not end {_GRACE:.0f} s after its deadline of {deadline:.0f} s and was killed"
            return self._failed(FailureKind.DEADLINE, "ATTEMPT_TIMEOUT", message)
        how = f"signal {ended.signal}" if ended.signal is not None else f"exit code {ended.exit_code}"
        tail = ended.stderr[-2000:].decode("utf-8", "replace")
        return self._failed(FailureKind.WORKER, "WORKER_CRASHED", f"its process ended with {how}: {tail}")

    def cancel(self, reason: str) -> None:
        self._cancelled = self._cancelled or reason
        if self._process is not None:
            self._process.cancel()

    def hold(self, *, back: bool) -> None:
        """Its sends are out of reach; when the lease is over it is killed."""

    def _failed(self, kind: FailureKind, code: str, message: str) -> SealedAttempt:
        failure = AttemptFailure(kind, code, message)
        return self._encoder.encode_inline(
            never_ran(self._grant.attempt, self._grant.case, failure, self._clock.wall())
        )
