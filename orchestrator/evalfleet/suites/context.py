"""What criteria are evaluated on, and what evaluates those that no operator can. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from evalfleet.model.suite import JudgedAssertion
from evalfleet.suites.frozen_json import frozen_json
from evalfleet.suites.observation import Observation

R = TypeVar("R")


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationContext:
    """The evidence of one list of criteria, as JSON in the names of a suite's document.

    `evidence` is the observation with its coverage: a step's own, a scenario's last, a suite's summary and status.
    `history` holds the turns before it, at scenario scope all; `cases` all of a run's, at suite scope only. `step_id`
    and `input` are a step's. `cancellation` says whether the attempt should end.
    """

    evidence: Observation
    scope: Literal["turn", "scenario", "suite"] = "turn"
    history: Sequence[Mapping[str, Any]] = ()
    cases: Sequence[Mapping[str, Any]] = ()
    scenario: Mapping[str, Any] | None = None
    step_id: str | None = None
    input: Mapping[str, Any] | None = None
    case_id: str | None = None
    repetition: int | None = None
    variants: Mapping[str, str] = field(default_factory=dict[str, str])
    cancellation: Callable[[], bool] = _never

    @property
    def observation(self) -> Mapping[str, Any]:
        return self.evidence.value

    @property
    def cancelled(self) -> bool:
        return self.cancellation()

    def frozen(self) -> EvaluationContext:
        """A copy that nobody can change at any depth, for evaluators."""
        return replace(
            self,
            evidence=replace(self.evidence, value=frozen_json(self.evidence.value)),
            history=frozen_json(self.history),
            cases=frozen_json(self.cases),
            scenario=frozen_json(self.scenario),
            input=frozen_json(self.input),
            variants=frozen_json(self.variants),
        )


#: Gets the context and a criterion's parameters; gives `{"passed": bool, "evidence": {…}}`, or an awaitable of it.
Evaluator: TypeAlias = Callable[[EvaluationContext, Mapping[str, Any]], Any]


class RunBlocking(Protocol):
    """Runs what may block, away from the loop."""

    def __call__(self, call: Callable[[], R], /) -> Awaitable[R]: ...


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge says of a criterion: a score in [0, 1], None with the reason when it gave none."""

    score: float | None
    reason: str | None = None
    evidence: Mapping[str, Any] | None = None


class AskJudge(Protocol):
    """Asks the experiment's judge about what stands at a criterion's path."""

    async def __call__(self, assertion: JudgedAssertion, material: Any, context: EvaluationContext, /) -> Judgement: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluators:
    """What criteria may call: functions by name, where synchronous ones run, and the judge, None when there is none."""

    functions: Mapping[str, Evaluator]
    run_blocking: RunBlocking
    judge: AskJudge | None = None
