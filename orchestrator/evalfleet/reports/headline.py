"""Headline figures of an arm. Infrastructure is never a score; what can't be known is None with a note."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
    """

    passed: int
    total: int
    missing: int
    rate: float | None
    coverage: float | None
    bounds: Interval | None
    interval: Interval | None
    notes: tuple[str, ...] = ()

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


def headline(counts: ArmCounts) -> Headline:
    """The arm's headline by its style. Raises StoreError when its counts don't add up."""
    classes = classes_of(counts)
    if counts.style is Style.SCORE:
        return _score_headline(counts, classes)
    return pass_headline(classes)


def pass_headline(classes: Mapping[CaseClass, int]) -> PassHeadline:
    """The pass-style headline of cases counted by class."""
    passed = classes[CaseClass.PASSED]
    total = _total(classes)
    missing = sum(classes[each] for each in MISSING_CLASSES)
    answered = total - missing
    return PassHeadline(
        passed=passed,
        total=total,
        missing=missing,
        rate=passed / answered if answered else None,
        coverage=answered / total if total else None,
        bounds=Interval(passed / total, (passed + missing) / total) if total else None,
        interval=wilson(passed, answered),
        notes=_pass_notes(total, missing),
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


def _pass_notes(total: int, missing: int) -> tuple[str, ...]:
    if not total:
        return ("no case counts: the pass rate is undefined",)
    if missing == total:
        return (f"{part_of(0, total, 'case')} answered: the pass rate is undefined",)
    if missing:
        return (f"{part_of(total - missing, total, 'case')} answered; the bounds say what the others could change",)
    return ()
