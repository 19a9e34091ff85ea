"""From outcomes to a status: of one list of criteria, and of a case with its turns. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evalfleet.model.suite import Severity, SuiteOutcome
from evalfleet.model.turn import Stop, StopKind
from evalfleet.suites.evaluate import CANCELLED

EARLY_COMPLETION = "EVALUATION_EARLY_COMPLETION"
INCOMPLETE = "EVALUATION_INCOMPLETE"


class ScenarioStatus(StrEnum):
    """How a turn or a case of a scenario ended; a turn is never skipped or blocked."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something could not be judged: the code, and where it stands (`turns.1.assertions.total`), by ids."""

    code: str
    pointer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFold:
    """What is known of one executed step. `error_code` says why its send gave nothing to look at."""

    step_id: str
    outcomes: tuple[SuiteOutcome, ...] = ()
    error_code: str | None = None

    @property
    def status(self) -> ScenarioStatus:
        if self.error_code is None:
            return fold(self.outcomes)
        return ScenarioStatus.CANCELLED if self.error_code == CANCELLED else ScenarioStatus.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFold:
    """How a case ended. `cause` is the first that kept it from being judged, or the rule that blocked it.

    `stop` is the agent's word that ended it early, which stays beside a failure or an error.
    """

    status: ScenarioStatus
    cause: Cause | None = None
    stop: Stop | None = None


def fold(outcomes: Sequence[SuiteOutcome]) -> ScenarioStatus:
    """The status of one list: an error before a failure before a pass; no criteria pass, advisory ones don't count."""
    required = [outcome for outcome in outcomes if outcome.severity is Severity.REQUIRED]
    if any(outcome.error_code is not None for outcome in required):
        return ScenarioStatus.ERROR
    passed = all(outcome.passed for outcome in required)
    return ScenarioStatus.PASSED if passed else ScenarioStatus.FAILED


def fold_case(
    turns: Sequence[TurnFold], outcomes: Sequence[SuiteOutcome], *, steps: int, stop: Stop | None = None
) -> CaseFold:
    """The status of a case of `steps` steps from its turns and the outcomes of its scenario's own criteria.

    Cancelled before error before failed, wherever they stand; a stop can't hide any of them. What was not judged is
    no failure, so an evaluator's error dominates a failed turn.
    """
    ends = [turn.status for turn in turns] + [fold(outcomes)]
    early = stop if stop is not None and (stop.kind is StopKind.SKIPPED or len(turns) < steps) else None
    for status in (ScenarioStatus.CANCELLED, ScenarioStatus.ERROR, ScenarioStatus.FAILED):
        if status in ends:
            cause = None if status is ScenarioStatus.FAILED else next(_causes(turns, outcomes, status), None)
            return CaseFold(status=status, cause=cause, stop=early)
    if early is not None and early.kind is StopKind.SKIPPED:
        return CaseFold(status=ScenarioStatus.SKIPPED, stop=early)
    if len(turns) < steps:
        code = INCOMPLETE if early is None else EARLY_COMPLETION
        return CaseFold(status=ScenarioStatus.BLOCKED, cause=Cause(code, f"turns.{len(turns)}"), stop=early)
    return CaseFold(status=ScenarioStatus.PASSED)


def _causes(turns: Sequence[TurnFold], outcomes: Sequence[SuiteOutcome], status: ScenarioStatus) -> Iterator[Cause]:
    for index, turn in enumerate(turns):
        if turn.status is status:
            if turn.error_code is not None:
                yield Cause(turn.error_code, f"turns.{index}")
            yield from _broken(turn.outcomes, f"turns.{index}.assertions")
    if status is ScenarioStatus.ERROR:
        yield from _broken(outcomes, "assertions")


def _broken(outcomes: Sequence[SuiteOutcome], place: str) -> Iterator[Cause]:
    """The criteria that could not be judged, each by the innermost one that it comes from."""
    for outcome in outcomes:
        if outcome.error_code is not None and outcome.severity is Severity.REQUIRED:
            pointer = f"{place}.{outcome.id}"
            yield next(_broken(outcome.children, pointer), Cause(outcome.error_code, pointer))
