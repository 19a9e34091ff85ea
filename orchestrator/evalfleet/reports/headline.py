"""Headline figures of an arm. Infrastructure is never a score; what can't be known is None with a note."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from evalfleet.model.report import ArmCounts
from evalfleet.model.verdict import Style
from evalfleet.reports.classes import LEAVING, MISSING_CLASSES, CaseClass, classes_of
from evalfleet.reports.figures import part_of
from evalfleet.reports.statistics import Interval, wilson


@dataclass(frozen=True, slots=True, kw_only=True)
class PassHeadline:
    """How a pass-style arm did.

    `total` is N, the cases that count; `missing` is M, those of them without an answer. `rate` is
    passed / (N - M), `coverage` (N - M) / N, `bounds` [passed / N, (passed + M) / N]: where the rate over all N
    must lie whatever the missing ones would have given. `interval` is Wilson's 95 % interval of `rate`, over
    the N - M answered ones only. Undefined figures are None and `notes` says why.

    With `within`, in a run with early exit, all of it counts evals instead of cases: one is passed that was solved in
    one of so many repetitions, and missing while none has passed and some have no answer.
    """

    passed: int
    total: int
    missing: int
    rate: float | None
    coverage: float | None
    bounds: Interval | None
    interval: Interval | None
    notes: tuple[str, ...] = ()
    within: int | None = None

    @property
    def answered(self) -> int:
        """N - M."""
        return self.total - self.missing


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreHeadline:
    """How a score-style arm did: the mean earned score over `complete` of `total` cases; never a percentage.

    `floor` is a lower bound of the mean over all `total` cases: what is unknown earned nothing or more.
    """

    mean: float | None
    complete: int
    total: int
    floor: float | None
    notes: tuple[str, ...] = ()


Headline = PassHeadline | ScoreHeadline


def solved_within(experiment: Mapping[str, Any]) -> int | None:
    """How many tries an eval has in a run with early exit, by its experiment's snapshot; None in any other."""
    repetitions = int(experiment.get("repetitions") or 1)
    rules: Mapping[str, Any] = experiment.get("stop") or {}
    return repetitions if rules.get("early_exit") and repetitions > 1 else None


def headline(counts: ArmCounts, within: int | None = None) -> Headline:
    """The arm's headline by its style; `within` is `solved_within`. Raises StoreError when its counts don't add up."""
    classes = classes_of(counts)
    if counts.style is Style.SCORE:
        return _score_headline(counts, classes)
    if within is not None and counts.by_eval is not None:
        return _solved_headline(counts.by_eval, within)
    return pass_headline(classes)


def pass_headline(classes: Mapping[CaseClass, int]) -> PassHeadline:
    """The pass-style headline of cases counted by class."""
    missing = sum(classes[each] for each in MISSING_CLASSES)
    return _shares(classes[CaseClass.PASSED], missing, _total(classes))


def _solved_headline(histogram: Mapping[tuple[int, int, int], int], within: int) -> PassHeadline:
    solved = sum(evals for (_, _, passed), evals in histogram.items() if passed)
    open_ = sum(evals for (counted, answered, passed), evals in histogram.items() if not passed and answered < counted)
    total = sum(evals for (counted, _, _), evals in histogram.items() if counted)
    return replace(_shares(solved, open_, total, "eval"), within=within)


def _shares(passed: int, missing: int, total: int, unit: str = "case") -> PassHeadline:
    answered = total - missing
    return PassHeadline(
        passed=passed,
        total=total,
        missing=missing,
        rate=passed / answered if answered else None,
        coverage=answered / total if total else None,
        bounds=Interval(passed / total, (passed + missing) / total) if total else None,
        interval=wilson(passed, answered),
        notes=_pass_notes(total, missing, unit),
    )


def reliability(classes: Mapping[CaseClass, int]) -> float | None:
    """The share of the counted cases that formed a verdict, passed or failed; None when none counts."""
    total = _total(classes)
    return (classes[CaseClass.PASSED] + classes[CaseClass.FAILED]) / total if total else None


def _score_headline(counts: ArmCounts, classes: Mapping[CaseClass, int]) -> ScoreHeadline:
    total = _total(classes)
    complete = counts.score_complete
    if not total:
        notes: tuple[str, ...] = ("no case counts: the mean score is undefined",)
    elif not complete:
        notes = (f"{part_of(0, total, 'score')} complete: the mean score is undefined",)
    elif complete < total:
        notes = (f"{part_of(complete, total, 'score')} complete; the mean is over these",)
    else:
        notes = ()
    return ScoreHeadline(
        mean=counts.earned_sum / complete if complete else None,
        complete=complete,
        total=total,
        floor=counts.earned_sum / total if total else None,
        notes=notes,
    )


def _total(classes: Mapping[CaseClass, int]) -> int:
    return sum(count for each, count in classes.items() if each not in LEAVING)


def _pass_notes(total: int, missing: int, unit: str) -> tuple[str, ...]:
    if not total:
        return (f"no {unit} counts: the pass rate is undefined",)
    if missing == total:
        return (f"{part_of(0, total, unit)} answered: the pass rate is undefined",)
    if missing:
        return (f"{part_of(total - missing, total, unit)} answered; the bounds say what the others could change",)
    return ()
