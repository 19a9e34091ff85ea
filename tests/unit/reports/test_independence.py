"""Runs that share responses: told by where a case's attempt was made, never by what came out of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from evalfleet.model.report import CaseView
from evalfleet.reports.independence import SharedResponses, shared_responses

MADE, NONE = "made here", "nothing"


@pytest.mark.parametrize(
    ("first", "second", "found", "independent", "note"),
    [
        ([MADE, MADE], [("r1", 1), ("r1", 2)], (2, 2), False, "100.0 % shared responses, not independent"),
        ([MADE, MADE], [("r1", 1), MADE], (1, 2), True, "50.0 % shared responses"),
        ([("r0", 7), MADE], [("r0", 7), ("r1", 2)], (2, 2), False, "100.0 % shared responses, not independent"),
        ([("r0", 7)], [("r0", 8)], (0, 1), True, None),
        ([MADE, MADE], [MADE, MADE], (0, 2), True, None),  # the same numbers of attempts, in two runs
        ([MADE, NONE], [("r1", 1), ("r1", 2)], (1, 1), False, "100.0 % shared responses, not independent"),
        ([NONE], [NONE], (0, 0), False, None),
    ],
)
def test_what_two_runs_share(
    make_case: Callable[..., CaseView],
    first: list[str | tuple[str, int]],
    second: list[str | tuple[str, int]],
    found: tuple[int, int],
    independent: bool,
    note: str | None,
) -> None:
    def case(ordinal: int, how: str | tuple[str, int]) -> CaseView:
        carried = how if isinstance(how, tuple) else None
        return make_case(ordinal=ordinal, carried_from=carried, attempt=ordinal + 1 if how == MADE else None)

    pairs = [(case(n, one), case(n, other)) for n, (one, other) in enumerate(zip(first, second, strict=True))]
    shared = shared_responses("r1", "r2", pairs)
    assert shared == SharedResponses(*found)
    assert (shared.independent, shared.note) == (independent, note)
