"""Which scores may be ranked among those of successful results. Pure."""

from __future__ import annotations

from evalfleet.model.verdict import ScoreState, Verdict


def is_ranked(verdict: Verdict | None, state: ScoreState) -> bool:
    """Whether a score enters a ranking of successful results: it is wholly known, and its attempt passed.

    A failed gate keeps what was earned, and a partial score is a lower bound: both are shown and never ranked.
    """
    return verdict is Verdict.PASSED and state is ScoreState.COMPLETE
