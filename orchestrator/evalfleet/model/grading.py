"""Judging recorded attempts again: what came of one, and what a run knows of each such pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from evalfleet.model.record import AttemptEvidence
from evalfleet.model.verdict import Verdict


class Basis(StrEnum):
    """What a grading of an attempt stands on.

    `replayed`: the test body ran again on the record; `folded`: only the stored assertions were folded again;
    `kept`: an earlier judgement stands.
    """

    REPLAYED = "replayed"
    FOLDED = "folded"
    KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Regrading:
    """A recorded attempt, judged again. Its turns, times, usage and cost are the recorded ones.

    `reason` says why an earlier judgement was kept.
    """

    evidence: AttemptEvidence
    basis: Basis
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescored:
    """What judging a run again came to. `grading` is its number, None when there was nothing to judge.

    `bases` counts the attempts by what their judgement stands on, `changes` those whose verdict is another now, by
    both; `diverged` those that send on the record what was not recorded.
    """

    run: str
    grading: int | None
    bases: Mapping[Basis, int]
    changes: Mapping[tuple[Verdict, Verdict], int]
    diverged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """One judgement of all settled attempts of a run. `number` counts from 1; 0 is what they were sealed with.

    `evaluation` is the version of the evaluation algorithm; `sources` maps an eval's definition to the digest of its
    source closure; `at` is seconds since the epoch.
    """

    number: int
    at: float
    who: str
    why: str
    evaluation: int
    sources: Mapping[str, str]
