"""ONE Attempt from planned to sealed: its steps in order, and a watch that no step can outlive.

The steps run in one task. When one of them exceeds its limit, or the attempt is cancelled, the task is cancelled;
when it ignores that for the grace, it is left behind and counted. The steps that are left then run in a new task,
so that what was recorded is kept and what was opened is closed, whatever author, agent, adapter or sandbox do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.execution.blame import blame
from evalfleet.execution.body import run_body
from evalfleet.execution.job import AttemptControl, AttemptJob, AttemptServices, Patience, Stage
from evalfleet.execution.ledger import Ledger
from evalfleet.execution.sandboxes import close_sandbox, last_look, open_sandbox
from evalfleet.execution.seal import recording, seal, verdict_so_far
from evalfleet.execution.sessions import close_lines
from evalfleet.execution.state import LOOK_AGAIN, TIMER_SLACK, AttemptState
from evalfleet.execution.watch import Watch
from evalfleet.model.record import AttemptEvidence
from evalfleet.model.sandbox import KeepSandbox
from evalfleet.model.verdict import Verdict
from evalfleet.redacted_values import redacted

__all__ = ["AttemptControl", "AttemptJob", "AttemptServices", "Patience", "Stage", "run_attempt"]


async def run_attempt(job: AttemptJob, services: AttemptServices, control: AttemptControl) -> AttemptEvidence:
    """Run one attempt and return what it left behind: completed, errored or cancelled, never an exception.

    Only when the task that awaits this is itself cancelled, CancelledError is raised, after cleaning up.
    """
    return await _Attempt(job, services, control).run()


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of an attempt: what it does, and who is to blame, under which code, for what escapes from it.

    `limit` gives its seconds; None is the attempt's deadline, and such a step is skipped once the attempt has
    failed, as is one that is not `needed`. A cancellation does not break off `cleanup`.
    """

    name: str
    act: Callable[[Ledger], Awaitable[None]]
    stage: Stage
    kind: FailureKind
    code: str
    limit: Callable[[Ledger], float] | None = None
    cleanup: bool = False
    needed: Callable[[Ledger], bool] | None = None


async def _open_sandbox(ledger: Ledger) -> None:
    await open_sandbox(ledger.state)


async def _last_look(ledger: Ledger) -> None:
    await last_look(ledger.state)


async def _settle(ledger: Ledger) -> None:
    state = ledger.state
    state.end(state.broken_off or "the attempt ended before the turn did")
    if state.broken_off is None:
        await ledger.settle()


async def _close_lines(ledger: Ledger) -> None:
    await close_lines(ledger.state)


async def _close_sandbox(ledger: Ledger) -> None:
    await close_sandbox(ledger.state, keep=_is_to_be_kept(ledger))


def _is_to_be_kept(ledger: Ledger) -> bool:
    """Whether the sandbox stays after an attempt that ends like this one. Who breaks a run off keeps nothing."""
    state, keep = ledger.state, ledger.state.job.keep_sandbox
    if keep is KeepSandbox.NONE or (state.control is not None and state.control.reason is not None):
        return False
    return keep is KeepSandbox.ALL or verdict_so_far(state, ledger.rows()) in (Verdict.FAILED, Verdict.ERRORED)


def _is_to_be_closed(ledger: Ledger) -> bool:
    """Whether the sandbox goes before a judge is asked: only one that may be kept waits for the verdict."""
    return ledger.state.job.keep_sandbox is KeepSandbox.NONE or not _is_to_be_judged(ledger)


def _is_to_be_judged(ledger: Ledger) -> bool:
    state = ledger.state
    return state.failure is None and state.broken_off is None and ledger.asks_judge


def _is_to_be_recorded(ledger: Ledger) -> bool:
    state = ledger.state
    kept = state.control is not None and state.control.record is not None and state.cleanup_failure is None
    return kept and _is_to_be_judged(ledger)


async def _record(ledger: Ledger) -> None:
    """Have what the agent did made durable: from here on a lost worker costs a judge's answers, not an agent's."""
    control = ledger.state.control
    if control is not None and control.record is not None:
        questions = redacted(ledger.questions, ledger.state.secrets.redactor)
        await control.record(recording(ledger, control), questions)


async def _judge(ledger: Ledger) -> None:
    await ledger.judge()


def _has_sandbox(ledger: Ledger) -> bool:
    return ledger.state.sandbox is not None


def _grace(ledger: Ledger) -> float:
    return ledger.state.services.patience.grace


def _evaluation(ledger: Ledger) -> float:
    return ledger.state.services.patience.evaluation


def _recording(ledger: Ledger) -> float:
    return ledger.state.services.patience.recording


def _grading(ledger: Ledger) -> float:
    return ledger.state.job.grading_timeout


def _cleanup(ledger: Ledger) -> float:
    return ledger.state.services.patience.cleanup


#: All that happens to an attempt, in order.
_STEPS = (
    _Step("opening the sandbox", _open_sandbox, Stage.OPENING, FailureKind.SANDBOX, "SANDBOX_FAILED"),
    _Step("the test body", run_body, Stage.RUNNING, FailureKind.AUTHORING, "EVAL_RAISED"),
    _Step(
        "the last look at the sandbox",
        _last_look,
        Stage.RUNNING,
        FailureKind.SANDBOX,
        "SANDBOX_LOST",
        _grace,
        needed=_has_sandbox,
    ),
    _Step("evaluating the assertions", _settle, Stage.RECORDED, FailureKind.GRADER, "EVALUATION_FAILED", _evaluation),
    _Step(
        "closing the sessions",
        _close_lines,
        Stage.RECORDED,
        FailureKind.ADAPTER,
        "SESSION_CLOSE_FAILED",
        _cleanup,
        cleanup=True,
    ),
    _Step(
        "closing the sandbox",
        _close_sandbox,
        Stage.RECORDED,
        FailureKind.SANDBOX,
        "SANDBOX_CLOSE_FAILED",
        _cleanup,
        cleanup=True,
        needed=_is_to_be_closed,
    ),
    _Step(
        "recording the attempt",
        _record,
        Stage.RECORDED,
        FailureKind.INFRASTRUCTURE,
        "RECORDING_FAILED",
        _recording,
        needed=_is_to_be_recorded,
    ),
    _Step(
        "judging",
        _judge,
        Stage.RECORDED,
        FailureKind.JUDGE,
        "GRADING_TIMEOUT",
        _grading,
        needed=_is_to_be_judged,
    ),
    _Step(
        "closing the sandbox",
        _close_sandbox,
        Stage.RECORDED,
        FailureKind.SANDBOX,
        "SANDBOX_CLOSE_FAILED",
        _cleanup,
        cleanup=True,
        needed=_has_sandbox,
    ),
)


class _Attempt:
    __slots__ = ("_at", "_control", "_ends_at", "_ledger", "_limit", "_patience", "_round", "_state", "_step", "_watch")

    def __init__(self, job: AttemptJob, services: AttemptServices, control: AttemptControl) -> None:
        self._control = control
        self._patience = services.patience
        self._state = AttemptState(job, services)
        self._ledger = Ledger(self._state)
        self._watch = Watch()
        self._at = 0 if job.sandbox is not None else 1
        self._round = 0
        self._limit = 0.0
        self._ends_at = 0.0
        self._step: _Step | None = None

    async def run(self) -> AttemptEvidence:
        state, control, clock = self._state, self._control, self._state.services.clock
        control.started_at = clock.wall()
        began = clock.monotonic()
        limit = state.job.attempt_timeout
        state.deadline_at = None if limit is None else began + limit
        state.on_stuck = self._stuck
        state.on_lost = self._break_off
        state.control = control
        control.listen(self._cancelled)
        if control.reason is not None:
            self._cancelled()
        await state.open_outlet()
        while self._at < len(_STEPS):
            self._round += 1
            self._read_end(await self._watch.run(self._drive(self._round), self._lane_cancelled))
        self._watch.stop()
        state.end_calls()
        state.end_outlet()
        control.listen(None)
        control.stage = Stage.SEALED
        evidence = seal(self._ledger, control, clock.monotonic() - began - state.waited)
        if self._watch.cancelled:
            raise asyncio.CancelledError
        return evidence

    async def _drive(self, round_: int) -> None:
        state, control, watch = self._state, self._control, self._watch
        while self._at < len(_STEPS) and self._round == round_:  # a task that was given up does not go on
            step = _STEPS[self._at]
            self._at += 1  # before it runs: no step runs twice
            if step.needed is not None and not step.needed(self._ledger):
                continue
            if step.limit is None:
                if state.failure is not None or state.broken_off is not None:
                    continue
                watch.arm(state.remaining(), self._expired)
            else:
                self._limit = step.limit(self._ledger)
                self._ends_at = state.services.clock.monotonic() + self._limit - state.waited
                watch.arm(self._limit, self._expired)
            self._step = step
            control.stage = step.stage
            try:
                await step.act(self._ledger)
            except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:  # noqa: BLE001 - the border of a step: attributed here, once
                self._fail(step, blame(error, step.kind, step.code), error)

    def _read_end(self, task: asyncio.Task[None]) -> None:
        """How the task of the steps ended, when not by doing them all."""
        step = self._step
        if not task.done():
            self._state.services.threads.abandon(task)
        elif task.cancelled():
            if step is not None and self._state.broken_off is None:
                self._fail(step, AttemptFailure(step.kind, "STAGE_CANCELLED", f"{step.name} was cancelled from within"))
        elif (error := task.exception()) is not None:
            kind = step.kind if step is not None and isinstance(error, GeneratorExit) else FailureKind.INFRASTRUCTURE
            self._state.fail(blame(error, kind, "EXECUTION_FAILED"), error)

    def _fail(self, step: _Step, failure: AttemptFailure, cause: BaseException | None = None) -> None:
        if step.cleanup:
            self._state.fail_cleanup(failure, cause)
        else:
            self._state.fail(failure, cause)

    # --- what breaks a step off -------------------------------------------------------------------------------

    def _expired(self) -> None:
        """The step under way took too long."""
        step = self._step
        if step is None:
            return
        if (left := self._left(step)) > TIMER_SLACK:  # it waited for model calls meanwhile, and may still
            self._watch.arm(max(left, LOOK_AGAIN), self._expired)
        elif step.limit is None:
            self._break_off(self._state.out_of_time())
        else:
            message = f"{step.name} took longer than {self._limit:g} s"
            self._fail(step, AttemptFailure(step.kind, step.code, message))
            self._watch.interrupt(self._patience.grace)

    def _left(self, step: _Step) -> float:
        """Seconds until the step under way has taken too long, but for what it waited; 0 when it waited for nothing."""
        state = self._state
        if state.waited == 0.0:
            return 0.0
        if step.limit is None:
            return state.remaining() or 0.0
        return self._ends_at + state.waited - state.services.clock.monotonic()

    def _cancelled(self) -> None:
        """The worker cancelled the attempt; cleaning up goes on all the same."""
        if self._step is None or not self._step.cleanup:
            self._break_off(AttemptFailure(FailureKind.CANCELLED, "CANCELLED", self._control.reason or "cancelled"))

    def _lane_cancelled(self) -> None:
        self._control.cancel("the worker is stopping")

    def _stuck(self, failure: AttemptFailure) -> None:
        """A send ignored the cancellation at its own deadline: nothing more is to be had from this body."""
        self._break_off(failure)
        self._watch.give_up()

    def _break_off(self, failure: AttemptFailure) -> None:
        self._state.fail(failure)
        self._state.break_off(f"{failure.code}: {failure}")
        self._watch.interrupt(self._patience.grace)
