"""What a comparison reads of a run: one side, an arm of it, and each of its cases as it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evalfleet.errors import FailureKind
from evalfleet.model.verdict import CaseStatus, ScoreState, Style

#: What made the replies of a case: a run and an attempt of it, or what stays of an attempt whose run is gone.
Origin = tuple[str, int | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideCase:
    """One case of a side. `row` is the SHA-256 of its row, None without one; `variants` are canonical text.

    `origin` is None of a case without evidence; a carried case has that of the case that it was carried from.
    """

    ordinal: int
    eval_id: str
    definition: str
    row: bytes | None
    variants: str | None
    repetition: int
    style: Style
    status: CaseStatus
    kind: FailureKind | None
    score_state: ScoreState | None
    earned: float | None
    origin: Origin | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One arm of a run. `judged` holds what each definition is judged by, as digests by field.

    `cases` are in planned order.
    """

    run: str
    arm: str
    cases: Sequence[SideCase]
    grading: int = 0
    judged: Mapping[str, Mapping[str, str]]


class Finding(StrEnum):
    """What a comparison says of its second side, held against the first."""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE = "no_difference_found"
    INCONCLUSIVE = "inconclusive"
