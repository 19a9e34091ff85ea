"""How far a judge agrees with the people who labelled examples: accuracy, Cohen's kappa, and where it errs. PURE."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

#: From this score on a label and a ruling count as a yes.
YES = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Rulings against labels, both taken as yes from `YES` on. `false_yes` are examples that people said no to.

    `unread` are examples without a ruling; no figure counts them. `accuracy`, `kappa` and `mean_error`, which is over
    the scores themselves, are None where they are undefined.
    """

    examples: int
    unread: int
    true_yes: int
    false_yes: int
    true_no: int
    false_no: int
    mean_error: float | None

    @property
    def ruled(self) -> int:
        return self.examples - self.unread

    @property
    def accuracy(self) -> float | None:
        return (self.true_yes + self.true_no) / self.ruled if self.ruled else None

    @property
    def kappa(self) -> float | None:
        """Agreement beyond that of two who answer yes as often, each for himself; undefined when both always do."""
        if not self.ruled:
            return None
        labelled = (self.true_yes + self.false_no) / self.ruled
        ruled = (self.true_yes + self.false_yes) / self.ruled
        chance = labelled * ruled + (1 - labelled) * (1 - ruled)
        if math.isclose(chance, 1.0):
            return None
        return ((self.accuracy or 0.0) - chance) / (1 - chance)


def agree(pairs: Iterable[tuple[float, float | None]]) -> Agreement:
    """The agreement over pairs of a label and a ruling, each in [0, 1]; None is an example without a ruling."""
    given = list(pairs)
    ruled = [(label, score) for label, score in given if score is not None]
    sides = [(label >= YES, score >= YES) for label, score in ruled]
    errors = [abs(label - score) for label, score in ruled]
    return Agreement(
        examples=len(given),
        unread=len(given) - len(ruled),
        true_yes=sides.count((True, True)),
        false_yes=sides.count((False, True)),
        true_no=sides.count((False, False)),
        false_no=sides.count((True, False)),
        mean_error=math.fsum(errors) / len(errors) if errors else None,
    )
