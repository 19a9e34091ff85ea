"""How far a judge agrees with people: accuracy, kappa and the sides it errs to, undefined where they are."""

from __future__ import annotations

import pytest

from evalfleet.grading.agreement import Agreement, agree


@pytest.mark.parametrize(
    ("pairs", "accuracy", "kappa", "confusion"),
    [
        ([(1, 1.0), (0, 0.0)], 1.0, 1.0, (1, 0, 1, 0)),
        ([(1, 0.0), (0, 1.0)], 0.0, -1.0, (0, 1, 0, 1)),
        # the textbook's: 20 and 15 of 50 agree, chance agrees on half
        ([(1, 1)] * 20 + [(0, 1)] * 10 + [(1, 0)] * 5 + [(0, 0)] * 15, 0.7, 0.4, (20, 10, 15, 5)),
        ([(1, 1.0), (1, 1.0)], 1.0, None, (2, 0, 0, 0)),
        ([(1, 1.0), (0, 1.0)], 0.5, 0.0, (1, 1, 0, 0)),
        ([(0.5, 0.5), (0.49, 0.5)], 0.5, 0.0, (1, 1, 0, 0)),
        ([(1, None)], None, None, (0, 0, 0, 0)),
        ([(1, None), (1, 1.0), (0, 0.0)], 1.0, 1.0, (1, 0, 1, 0)),
        ([], None, None, (0, 0, 0, 0)),
    ],
)
def test_agreement(
    pairs: list[tuple[float, float | None]],
    accuracy: float | None,
    kappa: float | None,
    confusion: tuple[int, int, int, int],
) -> None:
    found = agree(pairs)
    assert found.accuracy == accuracy
    assert found.kappa == (None if kappa is None else pytest.approx(kappa))
    assert (found.true_yes, found.false_yes, found.true_no, found.false_no) == confusion
    assert found.examples == len(pairs)


def test_scores_have_a_mean_error() -> None:
    assert agree([(0.5, 0.7), (1.0, 0.9)]).mean_error == pytest.approx(0.15)
    assert agree([(1.0, None)]) == Agreement(
        examples=1, unread=1, true_yes=0, false_yes=0, true_no=0, false_no=0, mean_error=None
    )
