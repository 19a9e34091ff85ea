"""Playing a declared scenario: its steps in order, what is checked after each, and what is checked at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from evalfleet.errors import AttemptFailure, FailureKind, boundary
from evalfleet.execution.context import open_line
from evalfleet.execution.judging import Judged
from evalfleet.execution.ledger import Entry, Ledger, Snapshot
from evalfleet.execution.seal import recording
from evalfleet.execution.tracebacks import Place
from evalfleet.grading.judge_prompts import Question
from evalfleet.model.assertion import AssertionResult, Result, ScopeKind
from evalfleet.model.canonical import canonical_bytes
from evalfleet.model.events import MISSING
from evalfleet.model.suite import DeclaredScenario, JudgedAssertion, Severity, Step, SuiteAssertion, SuiteOutcome
from evalfleet.model.turn import StopKind, TurnInput, TurnRecord
from evalfleet.ports import Resumes
from evalfleet.suites.context import EvaluationContext, Evaluators, Judgement
from evalfleet.suites.evaluate import NOT_COVERED, evaluate, unevaluated
from evalfleet.suites.matrix import case_id
from evalfleet.suites.observation import Observation, observe
from evalfleet.suites.outcome_json import outcome_value, wanted_value
from evalfleet.suites.paths import look

#: The name of the row that a criterion of a suite leaves.
SUITE_ASSERTION = "suite"

#: The evaluation of a step's criteria took longer than a turn may.
TIMEOUT = "EVALUATION_TIMEOUT"

#: What the criterion is to recipes that ask about a text beside the output.
_MATERIAL = {"factuality": "reference", "summarizes": "source", "compare": "other"}

#: The agent ended the conversation before its last step was played.
EARLY_COMPLETION = "EVALUATION_EARLY_COMPLETION"


async def run_scenario(ledger: Ledger, declared: DeclaredScenario) -> None:
    """Play the scenario and put every criterion on the record. Raises AttemptFailure when a send got no turn.

    A criterion that is not met never ends the conversation; one that can't be judged does, as does an agent that wants
    no further input. What the scenario asks at the end is only asked of a conversation that was played to its end.
    """
    await _Playing(ledger, declared).play()


class _Playing:
    def __init__(self, ledger: Ledger, declared: DeclaredScenario) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._declared = declared
        self._line = open_line(ledger.state)
        self._history: list[Mapping[str, Any]] = []
        self._evaluators = Evaluators(
            functions=declared.evaluators, run_blocking=ledger.state.services.threads.run, judge=self._ask
        )

    async def play(self) -> None:
        scenario = self._declared.scenario
        observation: Observation | None = None
        for step in scenario.steps:
            value = self._input(step)
            record = await self._line.send(TurnInput(_text(value), value=value))
            observation = observe(record)
            context = replace(self._context(observation), scope="turn", step_id=step.id, input=value)
            outcomes = await self._judge(step.assertions, context, self._snapshot(record))
            self._history.append(_remembered(step, value, observation, outcomes))
            if any(each.error_code is not None and each.severity is Severity.REQUIRED for each in outcomes):
                return
            last = step is scenario.steps[-1]
            if self._stopped(record, last=last):
                return
            if not last:
                await self._record_beginning(record)
        if observation is not None:
            seen = Snapshot(ScopeKind.ATTEMPT, "t", tuple(self._state.turns), False)
            await self._judge(scenario.assertions, self._context(observation), seen)

    async def _record_beginning(self, record: TurnRecord) -> None:
        """Have the conversation so far made durable, if another attempt could go on from here."""
        job, control = self._state.job, self._state.control
        if control is None or control.record_beginning is None or record.session_state is None or job.case.external:
            return
        if len(self._state.turns) > len(job.begun) and isinstance(job.adapter, Resumes):
            with boundary(FailureKind.INFRASTRUCTURE, "RECORDING_FAILED"):
                await control.record_beginning(recording(self._ledger, control))

    def _input(self, step: Step) -> dict[str, Any]:
        """The input of a step by the case's choice of variants."""
        chosen = self._state.job.case.variants.get(step.id)
        return dict(next((each.input for each in step.variants if each.id == chosen), step.input))

    def _context(self, observation: Observation) -> EvaluationContext:
        case, scenario = self._state.job.case, self._declared.scenario
        return EvaluationContext(
            evidence=observation,
            scope="scenario",
            history=tuple(self._history),
            scenario=scenario.document,
            case_id=case_id(scenario.id, case.variants, case.repetition),
            repetition=case.repetition,
            variants=case.variants,
            cancellation=lambda: self._state.broken_off is not None,
        )

    def _snapshot(self, record: TurnRecord) -> Snapshot:
        label = f"turn/{record.session}/{record.index}"
        return Snapshot(ScopeKind.TURN, label, (record,), False, self._state.turns)

    async def _judge(
        self, assertions: Sequence[SuiteAssertion], context: EvaluationContext, seen: Snapshot
    ) -> tuple[SuiteOutcome, ...]:
        """Evaluate the criteria of one scope, and keep what they came to.

        What a judge is to say by itself it is asked later, like any eval's: when all that the agent did is recorded.
        """
        asked: list[JudgedAssertion] = [each for each in assertions if _is_asked(each, context)]
        own = tuple(each for each in assertions if each not in asked)
        try:
            async with asyncio.timeout(self._state.job.turn_timeout):
                with self._ledger.telling():
                    outcomes = await evaluate(own, context, self._evaluators)
        except TimeoutError:
            outcomes = unevaluated(own, TIMEOUT)
        for outcome in outcomes:
            self._ledger.keep(self._entry(outcome, context.step_id, seen))
        for each in asked:
            self._ledger.keep(self._question(each, context, seen))
        return outcomes

    async def _ask(self, asked: JudgedAssertion, material: Any, context: EvaluationContext) -> Judgement:
        """Ask the judge about a criterion inside of another one."""
        judging = self._state.services.judging
        if judging is None or self._state.job.judge is None:
            return Judgement(None, "judge:not-declared")
        found = await judging.measured(_judged(asked, material, context), len(self._ledger.entries), self._state)
        return Judgement(found.measurement, found.reason)

    def _entry(self, outcome: SuiteOutcome, step: str | None, seen: Snapshot) -> Entry:
        described = {
            "criterion": SUITE_ASSERTION,
            "step": step,
            "expression": wanted_value(outcome),
            "result": outcome_value(outcome),
        }
        required = outcome.severity is Severity.REQUIRED
        return Entry(
            SUITE_ASSERTION,
            None,
            seen,
            () if step is None else (step,),
            self._place,
            described,
            label=outcome.label or outcome.id,
            key=outcome.id,
            gate=required,
            optional=not required,
            outcome=_result(outcome),
        )

    def _question(self, asked: JudgedAssertion, context: EvaluationContext, seen: Snapshot) -> Entry:
        step, required = context.step_id, asked.severity is Severity.REQUIRED
        return Entry(
            f"judge.{asked.recipe}",
            _judged(asked, look(context.observation, asked.path), context),
            seen,
            () if step is None else (step,),
            self._place,
            label=asked.label,
            key=asked.id,
            gate=True if required else None,
            gate_min=asked.minimum if required else None,
            at_least=None if required else asked.minimum,
            optional=not required,
        )

    @property
    def _place(self) -> Place:
        place = self._state.job.definition.place
        return ("", 0) if place is None else (str(place.file), place.line)

    def _stopped(self, record: TurnRecord, *, last: bool) -> bool:
        """Whether the agent wants no further input, and what that makes of the case. It can't hide a failed turn."""
        stop = record.stop
        if stop is None or (stop.kind is StopKind.COMPLETED and last):
            return False
        self._state.note(f"the agent ended the conversation at turn {record.index + 1} ({stop.kind}): {stop.reason}")
        if any(self._ledger.holds(entry) is False and entry.gate for entry in self._ledger.entries):
            return True
        if stop.kind is StopKind.SKIPPED:
            self._state.skip_reason = stop.reason or "the agent left this case out"
            return True
        steps = len(self._declared.scenario.steps)
        message = f"the agent ended the conversation after {record.index + 1} of {steps} steps"
        raise AttemptFailure(FailureKind.ADAPTER, EARLY_COMPLETION, message)


def _text(value: Mapping[str, Any]) -> str:
    """What an agent that only reads text is given of an input."""
    text = value.get("text")
    return text if isinstance(text, str) else canonical_bytes(dict(value)).decode("ascii")


def _is_asked(assertion: SuiteAssertion, context: EvaluationContext) -> TypeGuard[JudgedAssertion]:
    """Whether a judge has something to say of it: a criterion of its own, with something at its path."""
    is_judged = isinstance(assertion, JudgedAssertion)
    return is_judged and look(context.observation, assertion.path) is not MISSING


def _judged(asked: JudgedAssertion, material: Any, context: EvaluationContext) -> Judged:
    """The question to a judge: what was sent, and what stands at the criterion's path."""
    output = material if isinstance(material, str) else canonical_bytes(material).decode("ascii")
    given = {"input": _text(context.input or {}), "output": output}
    name = _MATERIAL.get(asked.recipe)
    if name is None:
        return Judged(Question(recipe=asked.recipe, text=asked.criterion, material=given))
    return Judged(Question(recipe=asked.recipe, text="", material={**given, name: asked.criterion}))


def _remembered(
    step: Step, value: Mapping[str, Any], observation: Observation, outcomes: Sequence[SuiteOutcome]
) -> dict[str, Any]:
    """A turn as later evaluators see it."""
    return {
        "stepId": step.id,
        "input": value,
        "observation": observation.value,
        "assertions": [outcome_value(outcome) for outcome in outcomes],
    }


def _result(outcome: SuiteOutcome) -> AssertionResult:
    """The outcome among the assertions of any attempt; a child's expectation is what its criterion wanted."""
    return AssertionResult(
        result=_three_valued(outcome),
        reason=outcome.reason if outcome.reason is not None else outcome.error_code,
        expected=outcome.expected,
        actual=outcome.actual,
        children=tuple(replace(_result(child), expected=wanted_value(child)) for child in outcome.children),
    )


def _three_valued(outcome: SuiteOutcome) -> Result:
    if outcome.error_code == NOT_COVERED:
        return Result.UNAVAILABLE
    if outcome.error_code is not None:
        return Result.ERRORED
    return Result.MATCHED if outcome.passed else Result.MISMATCHED
