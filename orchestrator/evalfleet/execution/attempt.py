"""ONE Attempt from planned to sealed: its stages in order, and a watch that no stage can outlive.

The stages run in one task. When one of them exceeds its limit, or the attempt is cancelled, the task is cancelled;
when it ignores that for the grace, it is left behind and counted. The stages that are left then run in a new task,
so that what was recorded is kept and what was opened is closed, whatever author, agent, adapter or sandbox do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.execution.blame import blame
from evalfleet.execution.body import run_body
from evalfleet.execution.job import AttemptControl, AttemptJob, AttemptServices, Patience, Stage
from evalfleet.execution.ledger import Ledger
from evalfleet.execution.sandboxes import close_sandbox, open_sandbox
from evalfleet.execution.seal import seal
from evalfleet.execution.sessions import close_lines
from evalfleet.execution.state import AttemptState
from evalfleet.model.record import AttemptEvidence

__all__ = ["AttemptControl", "AttemptJob", "AttemptServices", "Patience", "Stage", "run_attempt"]


async def run_attempt(job: AttemptJob, services: AttemptServices, control: AttemptControl) -> AttemptEvidence:
    """Run one attempt and return what it left behind: completed, errored or cancelled, never an exception.

    Only when the task that awaits this is itself cancelled, CancelledError is raised, after cleaning up.
    """
    return await _Attempt(job, services, control).run()


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of an attempt: what it does, who is to blame for what escapes from it, its limit in seconds.

    A cancellation does not break off `cleanup`.
    """

    name: str
    act: Callable[[], Awaitable[None]]
    stage: Stage
    kind: FailureKind
    limit: float | None
    cleanup: bool = False

    @property
    def live(self) -> bool:
        """Under the attempt's deadline, and skipped once the attempt has failed."""
        return self.stage in (Stage.OPENING, Stage.RUNNING)


class _Attempt:
    def __init__(self, job: AttemptJob, services: AttemptServices, control: AttemptControl) -> None:
        self._services = services
        self._control = control
        self._state = AttemptState(job, services)
        self._ledger = Ledger(self._state)
        self._steps = self._plan(services.patience)
        self._step: _Step | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._given_up = False

    def _plan(self, patience: Patience) -> deque[_Step]:
        """All that happens to an attempt, in order."""
        state, ledger = self._state, self._ledger
        body = _Step("the test body", lambda: run_body(ledger), Stage.RUNNING, FailureKind.AUTHORING, None)
        settling = _Step("evaluating the assertions", self._settle, Stage.RECORDED, FailureKind.GRADER, patience.grace)
        leaving = _Step(
            "closing the sessions",
            lambda: close_lines(state),
            Stage.RECORDED,
            FailureKind.ADAPTER,
            patience.cleanup,
            cleanup=True,
        )
        if state.job.sandbox is None:
            return deque((body, settling, leaving))
        opening = _Step("opening the sandbox", lambda: open_sandbox(state), Stage.OPENING, FailureKind.SANDBOX, None)
        closing = replace(
            leaving, name="closing the sandbox", act=lambda: close_sandbox(state), kind=FailureKind.SANDBOX
        )
        return deque((opening, body, settling, leaving, closing))

    async def run(self) -> AttemptEvidence:
        state, control = self._state, self._control
        control.started_at = self._services.clock.wall()
        began = self._services.clock.monotonic()
        limit = state.job.attempt_timeout
        if limit is not None:
            state.deadline_at = began + limit
        state.on_stuck = self._stuck
        control.listen(self._cancelled)
        if control.reason is not None:
            self._cancelled()
        lane_cancelled = False
        while self._steps:
            lane_cancelled = await self._watch() or lane_cancelled
        control.listen(None)
        control.stage = Stage.SEALED
        evidence = seal(self._ledger, control, self._services.clock.monotonic() - began)
        if lane_cancelled:
            raise asyncio.CancelledError
        return evidence

    # --- the stages, in one task ------------------------------------------------------------------------------

    async def _drive(self) -> None:
        me = asyncio.current_task()
        while self._steps and self._task is me:  # a task that was given up does not go on
            step = self._steps.popleft()  # before it runs: no stage runs twice
            if step.live and (self._state.failure is not None or self._state.broken_off is not None):
                continue
            self._enter(step)
            try:
                await step.act()
            except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:  # noqa: BLE001 - the border of a stage: attributed here, once
                self._fail(step, blame(error, step.kind, f"{step.kind.upper()}_FAILED"), error)

    def _enter(self, step: _Step) -> None:
        self._step = step
        self._control.stage = step.stage
        limit = self._state.remaining() if step.live else step.limit
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if limit is not None:
            self._timer = asyncio.get_running_loop().call_later(limit, self._expired)

    async def _settle(self) -> None:
        state = self._state
        state.end(state.broken_off or "the attempt ended before the turn did")
        if state.broken_off is None:
            await self._ledger.settle()

    def _fail(self, step: _Step, failure: AttemptFailure, cause: BaseException | None = None) -> None:
        if step.cleanup:
            self._state.fail_cleanup(failure, cause)
        else:
            self._state.fail(failure, cause)

    # --- the watch over them ----------------------------------------------------------------------------------

    async def _watch(self) -> bool:
        """Run the stages that are left until they end or are given up; True when our own task was cancelled."""
        self._given_up = False
        task = self._task = asyncio.get_running_loop().create_task(self._drive())
        task.add_done_callback(self._done)
        lane_cancelled = False
        while not (task.done() or self._given_up):
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            except asyncio.CancelledError:
                lane_cancelled = True
                self._control.cancel("the worker is stopping")
        if self._timer is not None:
            self._timer.cancel()
        if task.done():
            self._read_end(task)
        else:
            self._services.threads.abandon(task)
        return lane_cancelled

    def _read_end(self, task: asyncio.Task[None]) -> None:
        """How the task of the stages ended, when not by doing them all."""
        step = self._step
        if task.cancelled():
            if step is not None and self._steps and self._state.broken_off is None and self._state.failure is None:
                self._fail(
                    step, AttemptFailure(step.kind, "STAGE_CANCELLED", f"{step.stage} was cancelled from within")
                )
            return
        error = task.exception()
        if error is not None:
            kind = step.kind if step is not None and isinstance(error, GeneratorExit) else FailureKind.INFRASTRUCTURE
            self._state.fail(blame(error, kind, "EXECUTION_FAILED"), error)

    def _done(self, _: asyncio.Task[None]) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _expired(self) -> None:
        """The stage under way took too long."""
        step = self._step
        if step is None:
            return
        if step.live:
            limit = self._state.job.attempt_timeout or 0.0
            message = f"the attempt took longer than {limit:g} s"
            self._break_off(AttemptFailure(FailureKind.DEADLINE, "ATTEMPT_TIMEOUT", message))
        else:
            message = f"{step.name} took longer than {step.limit:g} s"
            self._fail(step, AttemptFailure(step.kind, f"{step.kind.upper()}_TIMEOUT", message))
            self._interrupt()

    def _cancelled(self) -> None:
        """The worker cancelled the attempt; cleaning up goes on all the same."""
        if self._step is not None and self._step.cleanup:
            return
        self._break_off(AttemptFailure(FailureKind.CANCELLED, "CANCELLED", self._control.reason or "cancelled"))

    def _stuck(self, failure: AttemptFailure) -> None:
        """A send ignored the cancellation at its own deadline: nothing more is to be had from this body."""
        self._break_off(failure)
        self._give_up()

    def _break_off(self, failure: AttemptFailure) -> None:
        self._state.fail(failure)
        self._state.break_off(f"{failure.code}: {failure}")
        self._interrupt()

    def _interrupt(self) -> None:
        """Cancel the stages' task; what ignores that for the grace is given up."""
        if self._task is None or self._task.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._services.patience.grace, self._give_up)
        self._task.cancel()

    def _give_up(self) -> None:
        self._given_up = True
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
