"""Sides that share responses: told by where a case's attempt was made, never by what came out of it."""

from __future__ import annotations

import pytest

from evalfleet.model.comparison import Origin
from evalfleet.reports.independence import SharedResponses, shared_responses

ALL = "100.0 % shared responses, not independent"


@pytest.mark.parametrize(
    ("first", "second", "found", "independent", "note"),
    [
        ([("r1", 1), ("r1", 2)], [("r1", 1), ("r1", 2)], (2, 2), False, ALL),
        ([("r1", 1), ("r1", 2)], [("r1", 1), ("r2", 2)], (1, 2), True, "50.0 % shared responses, not independent"),
        ([("r0", 7), ("r1", 2)], [("r0", 7), ("r1", 2)], (2, 2), False, ALL),  # both carried from a third
        ([("r0", 7)], [("r0", 8)], (0, 1), True, None),
        ([("r1", 1), ("r1", 2)], [("r2", 1), ("r2", 2)], (0, 2), True, None),  # equal numbers of attempts, in two runs
        ([("r1", 1), None], [("r1", 1), ("r1", 2)], (1, 1), False, ALL),
        ([("", "w|1.5|0.25")], [("", "w|1.5|0.25")], (1, 1), False, ALL),  # copies of an attempt whose run is gone
        ([None], [None], (0, 0), False, None),
    ],
)
def test_what_two_sides_share(
    first: list[Origin | None],
    second: list[Origin | None],
    found: tuple[int, int],
    independent: bool,
    note: str | None,
) -> None:
    shared = shared_responses(zip(first, second, strict=True))
    assert shared == SharedResponses(*found)
    assert (shared.independent, shared.note) == (independent, note)
