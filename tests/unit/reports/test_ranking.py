"""A score enters a ranking of successful results only when nothing of it is unknown and its attempt passed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from evalfleet.model.report import CaseView
from evalfleet.model.verdict import ScoreState, Style, Verdict
from evalfleet.reports.json_report import case_value
from evalfleet.reports.ranking import is_ranked


@pytest.mark.parametrize(
    ("verdict", "complete", "partial", "unavailable"),
    [
        ("passed", True, False, False),
        ("failed", False, False, False),
        ("errored", False, False, False),
        ("skipped", False, False, False),
        (None, False, False, False),
    ],
)
def test_what_is_ranked(verdict: str | None, complete: bool, partial: bool, unavailable: bool) -> None:
    found = {state.value: is_ranked(None if verdict is None else Verdict(verdict), state) for state in ScoreState}
    assert found == {"complete": complete, "partial": partial, "unavailable": unavailable}


@pytest.mark.parametrize(("verdict", "ranked"), [(Verdict.PASSED, True), (Verdict.FAILED, False)])
def test_a_listed_score_says_whether_it_is_ranked(
    make_case: Callable[..., CaseView], verdict: Verdict, ranked: bool
) -> None:
    case = make_case(style=Style.SCORE, verdict=verdict, score_state=ScoreState.COMPLETE, earned=0.0)
    assert case_value(case)["score"] == {"state": "complete", "earned": 0.0, "ranked": ranked}
