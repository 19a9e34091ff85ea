"""Two sides held against each other: how they differ, how sure that is, and what would have to be known to tell.

Of repeated evals the eval is the unit: its pairs are reduced to one difference first. The difference is always the
second side less the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum

from evalfleet.errors import ConfigurationError
from evalfleet.model.comparison import Finding, Side, SideCase
from evalfleet.model.verdict import ScoreState, Style
from evalfleet.reports.classes import LEAVING, MISSING_CLASSES, CaseClass, class_of
from evalfleet.reports.independence import SharedResponses, is_shared, shared_responses
from evalfleet.reports.pair_tests import Tested, tested
from evalfleet.reports.pairing import Pair, pair_sides
from evalfleet.reports.statistics import CONFIDENCE, Interval, holm


@dataclass(frozen=True, slots=True)
class SideName:
    """Which side it is: an arm of a run, as its grading says."""

    run: str
    arm: str
    grading: int = 0


@dataclass(frozen=True, slots=True)
class Flip:
    """A pair that came out differently: the case's ordinal and value on either side.

    Values are 1 and 0 for passed and not passed, points for scores.
    """

    eval_id: str
    repetition: int
    ordinals: tuple[int, int]
    values: tuple[float, float]

    @property
    def gained(self) -> bool:
        """Whether the second side did better."""
        return self.values[1] > self.values[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCounts:
    """What became of the planned cases: all counts are of cases, or of pairs of them.

    `pairs` = `compared` + `missing` + `left`. A pair is missing when either side has no answer (`missing_first`,
    `missing_second`), and leaves when either was skipped or not needed. `alone_…` have no counterpart, some of them
    since their definition is judged otherwise: `changed` names the fields.
    """

    pairs: int
    compared: int
    missing: int
    missing_first: int
    missing_second: int
    left: int
    alone_first: int
    alone_second: int
    changed: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What came of two sides. Shares are in [0, 1], scores in points; each mean is over the `evals` with a compared
    pair, `difference` is the second's mean less the first's.

    `bounds` hold the difference whatever the missing cases would have given; None for scores with missing ones, which
    nothing bounds. `tested` is None when there is no independent pair; `reason` says why a finding is inconclusive.
    """

    first: SideName
    second: SideName
    style: Style
    counts: PairCounts
    evals: int
    first_mean: float | None
    second_mean: float | None
    difference: float | None
    bounds: Interval | None
    shared: SharedResponses
    tested: Tested | None
    flips: tuple[Flip, ...]
    finding: Finding = Finding.INCONCLUSIVE
    reason: str | None = None


@dataclass(slots=True)
class _Eval:
    """One eval while its pairs are summed: those compared, those that count, and those that may be tested."""

    compared: int = 0
    first: float = 0.0
    second: float = 0.0
    counted: int = 0
    low: float = 0.0
    high: float = 0.0
    independent: int = 0
    difference: float = 0.0


def compare_sides(sides: Sequence[tuple[Side, Side]]) -> tuple[Comparison, ...]:
    """A comparison of each two sides, their p-values corrected for being several.

    Raises ConfigurationError where one is read as a verdict and the other as a score.
    """
    found = [_compare(first, second) for first, second in sides]
    corrected = holm([None if each.tested is None else each.tested.p for each in found])
    return tuple(
        _concluded(each if each.tested is None else replace(each, tested=replace(each.tested, corrected=p)))
        for each, p in zip(found, corrected, strict=True)
    )


def _compare(first: Side, second: Side) -> Comparison:
    style = _style(first, second)
    pairing = pair_sides(first, second)
    classes = [(pair, _missing(pair.first, style), _missing(pair.second, style)) for pair in pairing.pairs]
    counting = [each for each in classes if not _leaves(each[0])]
    compared = [pair for pair, *missing in counting if not any(missing)]
    evals = _summed(counting, style)
    answered = [each for each in evals if each.compared]
    first_mean = _mean([each.first / each.compared for each in answered])
    second_mean = _mean([each.second / each.compared for each in answered])
    independent = [each.difference / each.independent for each in evals if each.independent]
    return Comparison(
        first=SideName(first.run, first.arm, first.grading),
        second=SideName(second.run, second.arm, second.grading),
        style=style,
        counts=PairCounts(
            pairs=len(pairing.pairs),
            compared=len(compared),
            missing=len(counting) - len(compared),
            missing_first=sum(missing for _, missing, _ in counting),
            missing_second=sum(missing for _, _, missing in counting),
            left=len(classes) - len(counting),
            alone_first=pairing.alone_first,
            alone_second=pairing.alone_second,
            changed=pairing.changed,
        ),
        evals=len(answered),
        first_mean=first_mean,
        second_mean=second_mean,
        difference=None if first_mean is None or second_mean is None else second_mean - first_mean,
        bounds=_bounds(evals) if style is Style.PASS or len(compared) == len(counting) else None,
        shared=shared_responses((pair.first.origin, pair.second.origin) for pair in compared),
        tested=tested(independent, in_units=style is Style.PASS),
        flips=tuple(_flips(compared, style)),
    )


def _style(first: Side, second: Side) -> Style:
    styles = {case.style for side in (first, second) for case in side.cases}
    if len(styles) > 1:
        names = f"arm {first.arm} of run {first.run} and arm {second.arm} of run {second.run}"
        raise ConfigurationError(f"{names} hold evals of pass and of score style, which can't be compared")
    return styles.pop() if styles else Style.PASS


def _leaves(pair: Pair) -> bool:
    return class_of(pair.first) in LEAVING or class_of(pair.second) in LEAVING


def _missing(case: SideCase, style: Style) -> bool:
    if style is Style.SCORE:
        return case.score_state is not ScoreState.COMPLETE
    return class_of(case) in MISSING_CLASSES


def _value(case: SideCase, style: Style) -> float:
    return (case.earned or 0.0) if style is Style.SCORE else float(class_of(case) is CaseClass.PASSED)


def _summed(counting: Sequence[tuple[Pair, bool, bool]], style: Style) -> list[_Eval]:
    """The pairs that count by eval."""
    evals: dict[int, _Eval] = {}
    for pair, first_missing, second_missing in counting:
        each = evals.setdefault(pair.number, _Eval())
        first, second = _value(pair.first, style), _value(pair.second, style)
        each.counted += 1
        # a missing answer could be a pass or not
        each.low += (0.0 if second_missing else second) - (1.0 if first_missing else first)
        each.high += (1.0 if second_missing else second) - (0.0 if first_missing else first)
        if first_missing or second_missing:
            continue
        each.compared += 1
        each.first += first
        each.second += second
        if not is_shared(pair.first.origin, pair.second.origin):
            each.independent += 1
            each.difference += second - first
    return list(evals.values())


def _mean(values: Sequence[float]) -> float | None:
    return fsum(values) / len(values) if values else None


def _bounds(evals: Sequence[_Eval]) -> Interval | None:
    low = _mean([each.low / each.counted for each in evals])
    high = _mean([each.high / each.counted for each in evals])
    return None if low is None or high is None else Interval(low, high)


def _flips(compared: Sequence[Pair], style: Style) -> list[Flip]:
    """Those that differ, gains first, in planned order."""
    found: list[Flip] = []
    for pair in compared:
        values = (_value(pair.first, style), _value(pair.second, style))
        if values[0] != values[1]:
            ordinals = (pair.first.ordinal, pair.second.ordinal)
            found.append(Flip(pair.first.eval_id, pair.first.repetition, ordinals, values))
    return sorted(found, key=lambda flip: not flip.gained)


def _concluded(found: Comparison) -> Comparison:
    """The comparison with its finding."""
    reason = _undecided(found)
    if reason is not None or found.tested is None:
        return replace(found, finding=Finding.INCONCLUSIVE, reason=reason)
    if found.tested.corrected is None or found.tested.corrected >= 1 - CONFIDENCE:
        return replace(found, finding=Finding.NO_DIFFERENCE)
    return replace(found, finding=Finding.BETTER if found.tested.difference > 0 else Finding.WORSE)


def _undecided(found: Comparison) -> str | None:
    """Why nothing can be concluded, None when something can."""
    if not found.counts.compared:
        return "no case has an answer on both sides"
    if found.tested is None:
        return f"{found.shared.note}: there is nothing to test"
    if not found.counts.missing:
        return None
    if found.bounds is None:
        return "nothing bounds the scores that are missing"
    if found.bounds.low <= 0 <= found.bounds.high:
        return "the missing cases could turn the sign"
    return None
