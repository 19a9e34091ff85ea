"""The report of a run as one value, from which every format is rendered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalfleet.model.report import ArmCounts, CaseView, RunAggregate, RunInfo
from evalfleet.model.verdict import Style
from evalfleet.reports.accept import Accepted, accept_rule, decide_acceptance
from evalfleet.reports.classes import LEAVING, CaseClass, add_classes, class_of, classes_of
from evalfleet.reports.figures import counted, part_of
from evalfleet.reports.headline import Headline, headline, reliability, solved_within
from evalfleet.reports.repetitions import PerEval, per_eval


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmReport:
    """One arm: its counters, its exclusive classes, its headline and what has to be said beside it.

    `reliability` is the share of the counted cases that formed a verdict. `per_eval` is None for a score-style
    arm and when the counters were not grouped by eval.
    """

    counts: ArmCounts
    classes: Mapping[CaseClass, int]
    headline: Headline
    reliability: float | None
    per_eval: PerEval | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportModel:
    """A run's report. `notable` are cases that count and did not pass, as many as the builder was given.

    `budget` is as `RunProgress` has it.
    """

    run: RunInfo
    arms: tuple[ArmReport, ...]
    totals: Mapping[CaseClass, int]
    accepted: Accepted
    budget: Mapping[str, Any]
    notable: tuple[CaseView, ...] = ()

    @property
    def judges(self) -> tuple[Mapping[str, Any], ...]:
        """The judges that the run's evals ask, as it recorded them."""
        return tuple(self.run.lock.get("judges", ()))

    @property
    def planned(self) -> int:
        return sum(self.totals.values())

    @property
    def not_passed(self) -> int:
        """How many cases count and did not pass."""
        return sum(n for each, n in self.totals.items() if each not in LEAVING | {CaseClass.PASSED})


def build_report(aggregate: RunAggregate, notable: tuple[CaseView, ...] = ()) -> ReportModel:
    """The report of a run. `notable` are cases worth showing one by one; passed ones among them are dropped.

    Raises StoreError when an arm's counts don't add up, DefinitionError when the accept rule is invalid.
    """
    within = solved_within(aggregate.run.experiment)
    arms = tuple(_arm_report(counts, within) for counts in aggregate.arms)
    return ReportModel(
        run=aggregate.run,
        arms=arms,
        totals=add_classes(arm.classes for arm in arms),
        accepted=decide_acceptance(aggregate, accept_rule(aggregate.run.experiment)),
        budget=aggregate.budget,
        notable=tuple(case for case in notable if class_of(case) not in LEAVING | {CaseClass.PASSED}),
    )


def _arm_report(counts: ArmCounts, within: int | None) -> ArmReport:
    classes = classes_of(counts)
    figures = headline(counts, within)
    return ArmReport(
        counts=counts,
        classes=classes,
        headline=figures,
        reliability=reliability(classes),
        per_eval=_per_eval(counts, stopped_early=within is not None or counts.not_needed > 0),
        notes=(*figures.notes, *_notes(counts)),
    )


def _per_eval(counts: ArmCounts, *, stopped_early: bool) -> PerEval | None:
    if counts.by_eval is None or counts.style is Style.SCORE:
        return None
    return per_eval(counts.by_eval, stopped_early=stopped_early)


def _notes(counts: ArmCounts) -> tuple[str, ...]:
    notes: list[str] = []
    if counts.retried_verdict:
        again = counted(counts.retried_verdict, "case")
        notes.append(f"{again} tried again after failing: the first verdict counts")
    if counts.carried:
        notes.append(f"{counted(counts.carried, 'case')} carried from an earlier run")
    if counts.contradicted:
        turns = f"turns of {part_of(counts.contradicted, counts.attempts, 'attempt')}"
        notes.append(f"{turns} contradict the coverage that the adapter declares: show a case with --diagnostics")
    # where nothing at all is known, the figure itself is a dash
    for what, unknown in (("cost", counts.unknown_cost), ("token usage", counts.unknown_usage)):
        if 0 < unknown < counts.attempts:
            notes.append(f"the {what} of {part_of(unknown, counts.attempts, 'attempt')} is unknown")
    return tuple(notes)
