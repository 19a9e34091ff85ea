"""What a worker holds of one run: its arms, its evals and its limits; turns a Case into an Attempt's evidence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from evalfleet.errors import AttemptFailure, FailureKind, boundary, describe
from evalfleet.execution.attempt import AttemptControl, AttemptJob, AttemptServices, run_attempt
from evalfleet.execution.judge_recorded import judge_recorded
from evalfleet.execution.paid_calls import AttemptPurse
from evalfleet.execution.regrade import refused, regrade
from evalfleet.execution.seal import never_ran
from evalfleet.grading.judge_prompts import Question
from evalfleet.model.case import Case
from evalfleet.model.definition import EvalDefinition, SandboxSpec
from evalfleet.model.grading import Regrading
from evalfleet.model.ids import sha256
from evalfleet.model.judge import JudgeConfig
from evalfleet.model.record import KEPT_WORKDIR, AttemptEvidence
from evalfleet.model.sandbox import KeepSandbox
from evalfleet.model.turn import TurnRecord
from evalfleet.ports import Adapter, ArmSettings
from evalfleet.redacted_values import redacted
from evalfleet.sandbox_ports import BringsImages, SandboxProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltArm:
    """One arm, built: its settings, its adapter and, when its attempts have one, its sandbox provider and plan.

    An eval's own sandbox plan is laid over the arm's by whoever builds this: `sandbox` gives the plan of a definition.
    """

    settings: ArmSettings
    adapter: Adapter
    sandbox: Callable[[EvalDefinition], tuple[SandboxProvider, SandboxSpec] | None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSettings:
    """What an executor needs of its run. Timeouts are in seconds; an eval's own attempt timeout comes first.

    Without `deadlines` none of them counts: somebody is debugging.

    `definitions` finds an eval by id, and `decode` reads a case's row for it; both may raise DefinitionError or
    AuthoringError. `judges` holds the judge of each definition that asks one, `judges_away` what it said instead of
    an answer when it was tried before the run.
    """

    run: str
    project: Path
    arms: Mapping[str, BuiltArm]
    definitions: Callable[[str], EvalDefinition]
    decode: Callable[[EvalDefinition, bytes], Any]
    attempt_timeout: float | None = None
    turn_timeout: float | None = None
    deadlines: bool = True
    judges: Mapping[str, JudgeConfig] = field(default_factory=dict[str, JudgeConfig])
    judges_away: Mapping[str, str] = field(default_factory=dict[str, str])
    grading_timeout: float = 600.0
    keep_sandbox: KeepSandbox = KeepSandbox.NONE


class Executor:
    """Runs the attempts of one run in this process; many at a time."""

    def __init__(self, settings: ExecutorSettings, services: AttemptServices) -> None:
        self._settings = settings
        self._services = services
        self._definitions: dict[str, EvalDefinition] = {}

    async def execute(
        self,
        attempt: int,
        case: Case,
        control: AttemptControl,
        begun: tuple[TurnRecord, ...] = (),
        begun_by: int | None = None,
    ) -> AttemptEvidence:
        """Run one attempt of `case`, after the turns of the conversation that the attempt `begun_by` began.

        Always returns evidence, also when the eval can't be loaded here.
        """
        try:
            job = replace(self._job(attempt, case), begun=begun, begun_by=begun_by, purse=control.purse)
        except AttemptFailure as failure:
            return redacted(never_ran(attempt, case, failure, self._services.clock.wall()), self._services.hidden)
        await _bring_image(job, control)
        return await run_attempt(job, self._services, control)

    async def regrade(self, case: Case, recorded: AttemptEvidence, control: AttemptControl) -> Regrading:
        """Judge a recorded attempt of `case` again, without its agent, by its eval as it is loaded here."""
        try:
            job = self._job(recorded.summary.attempt, case, placed=KEPT_WORKDIR in recorded.attachments)
        except AttemptFailure as failure:
            return redacted(refused(case.style, recorded, failure), self._services.hidden)
        return await regrade(job, self._services, control, recorded)

    async def judge(
        self,
        attempt: int,
        case: Case,
        recorded: AttemptEvidence,
        questions: Mapping[int, Sequence[Question]],
        purse: AttemptPurse | None = None,
    ) -> AttemptEvidence:
        """Judge what an earlier attempt of `case` recorded, as this attempt: its agent is done."""
        try:
            job = replace(self._job(attempt, case), begun_by=recorded.begun_by, purse=purse)
        except AttemptFailure as failure:
            return redacted(never_ran(attempt, case, failure, self._services.clock.wall()), self._services.hidden)
        return await judge_recorded(job, self._services, recorded, questions)

    async def close(self) -> tuple[str, ...]:
        """Close all adapters, and what models were asked with; what went wrong with any of them, as texts."""
        if self._services.judging is not None:
            await self._services.judging.close()
        if self._services.models is not None:
            await self._services.models.close()
        closing = {asyncio.ensure_future(arm.adapter.close()): name for name, arm in self._settings.arms.items()}
        self._services.threads.close()
        if not closing:
            return ()
        done, hanging = await asyncio.wait(closing, timeout=self._services.patience.cleanup)
        for task in hanging:
            task.cancel()
        problems = [f"arm {closing[task]}: its adapter did not close in time" for task in hanging]
        for task in done:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                text = f"arm {closing[task]}: its adapter did not close: {type(error).__name__}: {describe(error)}"
                problems.append(text)
        return tuple(problems)

    def _job(self, attempt: int, case: Case, *, placed: bool = True) -> AttemptJob:
        settings = self._settings
        arm = settings.arms.get(case.arm)
        if arm is None:
            known = ", ".join(settings.arms)
            raise AttemptFailure(FailureKind.INFRASTRUCTURE, "UNKNOWN_ARM", f"no arm {case.arm!r} here, only {known}")
        if case.definition in settings.judges_away:
            message = settings.judges_away[case.definition]
            raise AttemptFailure(FailureKind.JUDGE, "JUDGE_PRECHECK_FAILED", message)
        with boundary(FailureKind.AUTHORING, "EVAL_NOT_LOADED"):
            definition = self._definition(case.definition)
            row = None if case.row is None else settings.decode(definition, case.row)
        with boundary(FailureKind.SANDBOX, "SANDBOX_FAILED"):
            sandbox = arm.sandbox(definition) if placed else None
        return AttemptJob(
            run=settings.run,
            attempt=attempt,
            case=case,
            definition=definition,
            row=row,
            arm=arm.settings,
            adapter=arm.adapter,
            sandbox=sandbox,
            attempt_timeout=(definition.timeout or settings.attempt_timeout) if settings.deadlines else None,
            turn_timeout=settings.turn_timeout if settings.deadlines else None,
            seed=seed_of(case),
            judge=settings.judges.get(case.definition),
            grading_timeout=settings.grading_timeout,
            keep_sandbox=settings.keep_sandbox,
        )

    def _definition(self, identifier: str) -> EvalDefinition:
        known = self._definitions.get(identifier)
        if known is None:
            known = self._definitions[identifier] = self._settings.definitions(identifier)
        return known


def seed_of(case: Case) -> int:
    """A 63-bit seed, the same for every attempt of a case and repetition, wherever it stands in the run."""
    return int(sha256(f"{case.content}/{case.repetition}".encode())[:16], 16) >> 1


@cache
def _brings_images(provider: type) -> bool:
    """To ask for the protocol takes 20 µs, and most providers are none such."""
    return issubclass(provider, BringsImages)


async def _bring_image(job: AttemptJob, control: AttemptControl) -> None:
    """Wait for the image of the attempt's sandbox before the attempt begins: that counts for no deadline of it."""
    if job.sandbox is None or control.reason is not None:
        return
    provider, spec = job.sandbox
    if _brings_images(type(provider)) and isinstance(provider, BringsImages):
        bringing = asyncio.gather(provider.bring(spec), return_exceptions=True)

        def give_up() -> None:
            bringing.cancel()

        control.listen(give_up)
        try:
            await asyncio.wait((bringing,))
        finally:
            control.listen(None)
            give_up()
