"""Playing a declared scenario: its steps in order, what is checked after each, and what is checked at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeGuard

from evalfleet.errors import AttemptFailure, FailureKind, boundary
from evalfleet.execution.context import open_line
from evalfleet.execution.judging import Judged, JudgedParts
from evalfleet.execution.ledger import Entry, Ledger, Snapshot
from evalfleet.execution.seal import recording
from evalfleet.execution.suite_rows import SUITE_ASSERTION, described, result_of
from evalfleet.execution.tracebacks import Place
from evalfleet.grading.judge_prompts import Question
from evalfleet.model.assertion import ScopeKind
from evalfleet.model.canonical import canonical_bytes
from evalfleet.model.events import MISSING
from evalfleet.model.suite import DeclaredScenario, JudgedAssertion, Severity, Step, SuiteAssertion, SuiteOutcome
from evalfleet.model.turn import StopKind, TurnInput, TurnRecord
from evalfleet.ports import Resumes
from evalfleet.suites.calling import NOT_ASKED
from evalfleet.suites.context import EvaluationContext, Evaluators, Judgement
from evalfleet.suites.deferred import is_broken, waiting
from evalfleet.suites.evaluate import evaluate, unevaluated
from evalfleet.suites.matrix import case_id
from evalfleet.suites.observation import Observation, observe
from evalfleet.suites.outcome_json import outcome_value
from evalfleet.suites.paths import look
from evalfleet.suites.registry import calls_out, scenario_calls_out

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
        self._calls_out = scenario_calls_out(declared.scenario)
        self._questions: list[Question] = []

    async def play(self) -> None:
        scenario = self._declared.scenario
        observation: Observation | None = None
        for step in scenario.steps:
            value = self._input(step)
            record = await self._line.send(TurnInput(_text(value), value=value))
            observation = observe(record)
            context = self._context(observation, "turn", step.id, value)
            outcomes = await self._judge(step.assertions, context, self._snapshot(record))
            if self._calls_out:
                self._history.append(_remembered(step, value, observation, outcomes))
            if any(is_broken(each) and each.severity is Severity.REQUIRED for each in outcomes):
                return
            last = step is scenario.steps[-1]
            if self._stopped(record, last=last):
                return
            if not last:
                await self._record_beginning(record)
        if observation is not None and scenario.assertions:
            seen = Snapshot(ScopeKind.ATTEMPT, "t", tuple(self._state.turns), False)
            await self._judge(scenario.assertions, self._context(observation, "scenario"), seen)

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

    def _context(
        self,
        observation: Observation,
        scope: Literal["turn", "scenario"],
        step_id: str | None = None,
        value: Mapping[str, Any] | None = None,
    ) -> EvaluationContext:
        case, scenario = self._state.job.case, self._declared.scenario
        return EvaluationContext(
            evidence=observation,
            scope=scope,
            history=tuple(self._history),
            scenario=scenario.document,
            step_id=step_id,
            input=value,
            case_id=case_id(scenario.id, case.variants, case.repetition) if self._calls_out else None,
            repetition=case.repetition,
            variants=case.variants,
            cancellation=self._cancelled,
        )

    def _cancelled(self) -> bool:
        return self._state.broken_off is not None

    def _snapshot(self, record: TurnRecord) -> Snapshot:
        label = f"turn/{record.session}/{record.index}"
        return Snapshot(ScopeKind.TURN, label, (record,), False, self._state.turns)

    async def _judge(
        self, assertions: Sequence[SuiteAssertion], context: EvaluationContext, seen: Snapshot
    ) -> tuple[SuiteOutcome, ...]:
        """Evaluate the criteria of one scope, and keep what they came to.

        What a judge is to say it is asked later, like any eval's: when all that the agent did is recorded.
        """
        asked: list[JudgedAssertion] = [each for each in assertions if _is_asked(each, context)]
        own = tuple(each for each in assertions if each not in asked) if asked else assertions
        if not any(map(calls_out, own)):  # nothing waits, so nothing can take too long
            outcomes = await evaluate(own, context, self._evaluators())
        else:
            outcomes = await self._evaluated(own, context)
        for outcome in outcomes:
            questions = tuple([self._questions.pop(0) for _ in waiting(outcome)])
            self._ledger.keep(self._entry(outcome, context.step_id, seen, questions))
        self._questions.clear()
        for each in asked:
            self._ledger.keep(self._question(each, context, seen))
        return outcomes

    async def _evaluated(
        self, assertions: Sequence[SuiteAssertion], context: EvaluationContext
    ) -> tuple[SuiteOutcome, ...]:
        """The outcomes of criteria that call what is not ours, within the time of a turn."""
        try:
            async with asyncio.timeout(self._state.job.turn_timeout):
                with self._ledger.telling():
                    return await evaluate(assertions, context, self._evaluators())
        except TimeoutError:
            return unevaluated(assertions, TIMEOUT)

    def _evaluators(self) -> Evaluators:
        """What criteria may call. (Kept in a field it would be a cycle, and keep the attempt from being let go.)"""
        run_blocking = self._state.services.threads.run
        return Evaluators(functions=self._declared.evaluators, run_blocking=run_blocking, judge=self._put_off)

    async def _put_off(self, asked: JudgedAssertion, material: Any, context: EvaluationContext) -> Judgement:
        """Keep the question of a criterion inside of another one for later."""
        if self._state.services.judging is None or self._state.job.judge is None:
            return Judgement(None, "judge:not-declared")
        self._questions.append(_judged(asked, material, context).question)
        return Judgement(None, NOT_ASKED)

    def _entry(self, outcome: SuiteOutcome, step: str | None, seen: Snapshot, questions: tuple[Question, ...]) -> Entry:
        """The row of a criterion; with `questions` it waits for a judge."""
        criterion, required = described(outcome, step), outcome.severity is Severity.REQUIRED
        return Entry(
            SUITE_ASSERTION,
            JudgedParts(questions, criterion) if questions else None,
            seen,
            () if step is None else (step,),
            self._place,
            criterion,
            label=outcome.label or outcome.id,
            key=outcome.id,
            gate=required,
            optional=not required,
            outcome=None if questions else result_of(outcome),
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
    """A turn as later evaluators see it, without what a judge has still to say."""
    known = [outcome_value(outcome) for outcome in outcomes if not any(waiting(outcome))]
    return {
        "stepId": step.id,
        "input": value,
        "observation": observation.value,
        "assertions": known,
    }
