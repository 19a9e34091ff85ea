"""The criteria of whole suites: evaluated over the cases of each arm when a run has ended, and kept with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from evalfleet.api.session import Session
from evalfleet.model.report import CaseView, RunInfo
from evalfleet.model.suite import DeclaredScenario, Suite, SuiteOutcome
from evalfleet.model.verdict import RunStatus
from evalfleet.planning.plan import Plan
from evalfleet.reports.document_case import Planned, case_entry, case_state
from evalfleet.reports.document_models import CASE_STATES
from evalfleet.store.reader import CaseFilter
from evalfleet.store.suites import beat, is_open, suite_results, write_suite_results
from evalfleet.suites.context import EvaluationContext, Evaluators
from evalfleet.suites.evaluate import evaluate
from evalfleet.suites.observation import Observation
from evalfleet.suites.outcome_json import outcome_value
from evalfleet.suites.registry import evaluator_names

_PAGE = 500
#: Who follows a run takes three silent beats for its death.
_BEAT_SECONDS = 5.0

#: The result that stands for all of a suite's when evaluating them broke off.
_WHOLE = "evaluation.suite"

_ENDED = frozenset({RunStatus.COMPLETED, RunStatus.CANCELLED, RunStatus.LIMITED})


async def judge_suites(session: Session, plan: Plan, run: str) -> None:
    """Evaluate what the suites of a run ask of all their cases, for each arm, unless the run has not ended."""
    suites = [suite for suite in plan.suites if suite.assertions]
    if not suites:
        return
    info = await session.reader.find_run(run)
    if info.status not in _ENDED:
        return
    judging = _Judging(session, info, plan)
    async with _beating(session, run):
        found = {
            (suite.id, arm.name): [outcome_value(each) for each in await judging.outcomes(suite, arm.name)]
            for suite in suites
            for arm in plan.arms
        }
    await write_suite_results(session.url, run, found)


async def lacks_suite_results(session: Session, plan: Plan, run: str) -> bool:
    """Whether a run ended without what its suites come to: whoever was to evaluate them went away."""
    if not any(suite.assertions for suite in plan.suites):
        return False
    return await is_open(session.url, run) or not await suite_results(session.url, run)


@asynccontextmanager
async def _beating(session: Session, run: str) -> AsyncGenerator[None]:
    """Tell those who follow the run that it is worked on, however long an evaluator takes."""

    over = asyncio.Event()

    async def work() -> None:
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), _BEAT_SECONDS)
                return
            await beat(session.url, run)

    beating = asyncio.create_task(work())
    try:
        yield
    finally:
        over.set()  # a cancellation would leave its connection open
        await asyncio.gather(beating, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Judging:
    session: Session
    info: RunInfo
    plan: Plan

    async def outcomes(self, suite: Suite, arm: str) -> Sequence[SuiteOutcome]:
        """What a suite's criteria come to over the cases of an arm; never raises for what an evaluator does."""
        functions = self._functions(suite)
        whole = bool(evaluator_names(suite.assertions))
        counts: dict[str, int] = dict.fromkeys(CASE_STATES, 0)
        cases: list[Mapping[str, Any]] = []
        async for view, entry in self._cases(suite, arm, whole=whole):
            counts[case_state(view)] += 1
            if entry is not None:
                cases.append(entry)
        summary = {"total": sum(counts.values()), **counts}
        evidence = Observation(value={"summary": summary, "status": self.info.status.value})
        context = EvaluationContext(evidence=evidence, scope="suite", cases=cases)
        evaluators = Evaluators(functions=functions, run_blocking=asyncio.to_thread)
        try:
            async with asyncio.timeout(self.plan.experiment.limits.turn_timeout):
                return await evaluate(suite.assertions, context, evaluators)
        except TimeoutError:
            return [SuiteOutcome(id=_WHOLE, kind="all", passed=False, error_code="EVALUATION_TIMEOUT")]

    def _functions(self, suite: Suite) -> Mapping[str, Callable[..., Any]]:
        bodies = (definition.body for definition in self.plan.definitions.values())
        own = (body for body in bodies if isinstance(body, DeclaredScenario) and body.suite.id == suite.id)
        return next(own).evaluators

    async def _cases(
        self, suite: Suite, arm: str, *, whole: bool
    ) -> AsyncIterator[tuple[CaseView, dict[str, Any] | None]]:
        """The suite's cases of an arm; `whole` with all that reports say of each, which only evaluators look at."""
        planned = {
            f"{suite.id}/{each.id}": Planned(scenario_id=each.id, name=each.name, scenario=each.document)
            for each in suite.scenarios
        }
        chosen, after = CaseFilter(arm=arm, prefix=f"{suite.id}/"), -1
        while page := await self.session.reader.cases(self.info.id, chosen, after, _PAGE):
            own = [view for view in page if view.eval_id in planned]
            if whole:
                async for view, detail in self.session.reader.records(self.info.id, own):
                    yield view, case_entry(self.info.id, view, detail, planned[view.eval_id])
            else:
                for view in own:
                    yield view, None
            after = page[-1].ordinal
