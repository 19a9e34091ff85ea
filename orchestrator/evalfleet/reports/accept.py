"""Whether a run is accepted: the experiment's rule as data, three-valued."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from evalfleet.errors import DefinitionError, Problem
from evalfleet.model.experiment import Accept
from evalfleet.model.report import ArmCounts, RunAggregate, RunInfo
from evalfleet.model.suite import Severity
from evalfleet.model.verdict import RunStatus
from evalfleet.reports.classes import LEAVING, CaseClass, classes_of
from evalfleet.reports.figures import part_of
from evalfleet.reports.headline import PassHeadline, ScoreHeadline, headline, solved_within


@dataclass(frozen=True, slots=True)
class Accepted:
    """The decision: True, False, or None when the evidence can't decide it. `reasons` says why not True."""

    decision: bool | None
    reasons: tuple[str, ...] = ()


def accept_rule(experiment: Mapping[str, Any]) -> Accept:
    """The rule in an experiment's snapshot. Raises DefinitionError naming the field that is wrong."""
    try:
        return Accept.model_validate_json(json.dumps(experiment.get("accept") or {}))
    except ValidationError as error:
        raise DefinitionError("INVALID_ACCEPT", [_problem(each) for each in error.errors()]) from None


def decide_acceptance(aggregate: RunAggregate, rule: Accept) -> Accepted:
    """Apply `rule` to a run. Only a completed run can be accepted; a run still going is undecided."""
    status = aggregate.run.status
    if status in (RunStatus.QUEUED, RunStatus.RUNNING):
        return Accepted(None, (f"the run is {status.value}{_interrupted(aggregate.run)}",))
    if status is not RunStatus.COMPLETED:
        return Accepted(False, (f"the run is {status.value}{_because(aggregate.run)}",))
    arms, unknown = _selected(aggregate.arms, rule.arms)
    if unknown:
        return Accepted(False, tuple(f"accept.arms names {name}, which the run does not have" for name in unknown))
    within = solved_within(aggregate.run.experiment)
    decisions = [_decide_arm(arm, rule, within) for arm in arms] or [Accepted(False, ("the run has no cases",))]
    decisions += [_suites(aggregate, arm.arm) for arm in arms]
    reasons = tuple(reason for each in decisions for reason in each.reasons)
    return Accepted(_all([each.decision for each in decisions]), reasons)


def _decide_arm(arm: ArmCounts, rule: Accept, within: int | None) -> Accepted:
    classes = classes_of(arm)
    checks = [_skips(arm, classes, rule)]
    if rule.pass_rate is not None:
        checks.append(_pass_rate(arm, rule.pass_rate.min, within))
    if rule.mean_score is not None:
        checks.append(_mean_score(arm, rule.mean_score.min))
    if rule.pass_rate is None and rule.mean_score is None:
        checks.append(_every_eval_solved(arm, within) or _every_case_passed(arm, classes))
    reasons = tuple(f"arm {arm.arm}: {reason}" for each in checks for reason in each.reasons)
    return Accepted(_all([each.decision for each in checks]), reasons)


def _suites(aggregate: RunAggregate, arm: str) -> Accepted:
    """Whether every criterion holds that suites ask of all their cases; advisory ones decide nothing."""
    checks: list[Accepted] = []
    for suite in aggregate.run.lock.get("suite_criteria", ()):
        results = aggregate.suite_results.get((suite, arm))
        if results is None:
            hint = f"orchestrate resume {aggregate.run.id} does it"
            checks.append(Accepted(None, (f"arm {arm}: the criteria of suite {suite} were not evaluated: {hint}",)))
        for result in results or ():
            name = f"arm {arm}: suite {suite}: {result.get('label') or result['id']}"
            if result["passed"] or result.get("severity") == Severity.ADVISORY:
                continue
            code = result.get("errorCode")
            said = "does not hold" if code is None else f"can't be judged ({code})"
            checks.append(Accepted(False if code is None else None, (f"{name} {said}",)))
    reasons = tuple(reason for each in checks for reason in each.reasons)
    return Accepted(_all([each.decision for each in checks]), reasons)


def _skips(arm: ArmCounts, classes: Mapping[CaseClass, int], rule: Accept) -> Accepted:
    skipped = classes[CaseClass.SKIPPED]
    if not skipped or rule.allow_skips:
        return Accepted(True)
    return Accepted(False, (f"{skipped} of {arm.planned} cases skipped (write allow_skips: true to accept skips)",))


def _every_case_passed(arm: ArmCounts, classes: Mapping[CaseClass, int]) -> Accepted:
    wanting = {each: count for each, count in classes.items() if count and each not in LEAVING | {CaseClass.PASSED}}
    if wanting:
        parts = ", ".join(f"{count} {each.label}" for each, count in wanting.items())
        return Accepted(False, (f"not every case passed: {parts}",))
    if not classes[CaseClass.PASSED] and not classes[CaseClass.SKIPPED]:
        return Accepted(False, ("no case passed, since none was counted",))
    return Accepted(True)


def _every_eval_solved(arm: ArmCounts, within: int | None) -> Accepted | None:
    """With early exit, whether each eval passed in one of its repetitions; None in any other run."""
    figures = headline(arm, within)
    if not isinstance(figures, PassHeadline) or figures.within is None or not figures.total:
        return None
    if figures.passed == figures.total:
        return Accepted(True)
    solved = part_of(figures.passed, figures.total, "eval")
    return Accepted(False, (f"{solved} solved within {figures.within} repetitions",))


def _pass_rate(arm: ArmCounts, minimum: float, within: int | None) -> Accepted:
    figures = headline(arm, within)
    if not isinstance(figures, PassHeadline):
        return Accepted(False, ("accept.pass_rate does not apply: the arm is score-style (use mean_score)",))
    if figures.bounds is None:
        return Accepted(None, figures.notes)
    if figures.bounds.low >= minimum:
        return Accepted(True)
    if figures.bounds.high < minimum:
        return Accepted(False, (f"pass rate at most {figures.bounds.high:.4f}, below {minimum:g}",))
    low, high = figures.bounds.low, figures.bounds.high
    unit = "case" if figures.within is None else "eval"
    missing = f"{part_of(figures.missing, figures.total, unit)} unanswered"
    return Accepted(None, (f"pass rate lies between {low:.4f} and {high:.4f}, around {minimum:g}: {missing}",))


def _mean_score(arm: ArmCounts, minimum: float) -> Accepted:
    figures = headline(arm)
    if not isinstance(figures, ScoreHeadline):
        return Accepted(False, ("accept.mean_score does not apply: the arm is pass-style (use pass_rate)",))
    if figures.floor is None or figures.mean is None:
        return Accepted(None, figures.notes)
    if figures.floor >= minimum:
        return Accepted(True)
    if figures.complete == figures.total:
        return Accepted(False, (f"mean score {figures.mean:g}, below {minimum:g}",))
    known = f"{part_of(figures.complete, figures.total, 'score')} complete"
    return Accepted(None, (f"mean score at least {figures.floor:g}, {minimum:g} is wanted: {known}",))


def _all(decisions: Sequence[bool | None]) -> bool | None:
    if any(decision is False for decision in decisions):
        return False
    return None if any(decision is None for decision in decisions) else True


def _selected(arms: Sequence[ArmCounts], names: Sequence[str] | None) -> tuple[tuple[ArmCounts, ...], tuple[str, ...]]:
    if names is None:
        return tuple(arms), ()
    known = {arm.arm for arm in arms}
    return tuple(arm for arm in arms if arm.arm in names), tuple(name for name in names if name not in known)


def _interrupted(run: RunInfo) -> str:
    return f" but interrupted (orchestrate resume {run.id})" if run.interrupted else ""


def _because(run: RunInfo) -> str:
    return f": {run.stop_reason}" if run.stop_reason else ""


def _problem(error: Any) -> Problem:
    field = ".".join(("accept", *(str(part) for part in error["loc"])))
    return Problem("INVALID_ACCEPT", str(error["msg"]), field=field, hint="see experiment.yaml, accept")
