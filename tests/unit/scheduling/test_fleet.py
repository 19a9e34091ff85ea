"""How many workers a run gets, and how many lanes each."""

from __future__ import annotations

import pytest

from evalfleet.scheduling.fleet import Fleet, fleet

CASES = {
    "one case needs one worker": ((100, 1, 2), Fleet(1, 100)),
    "a small machine": ((10, 1_000, 2), Fleet(1, 10)),
    "a machine with one CPU": ((1_000, 1_000, 1), Fleet(1, 1_000)),
    "a crowd is shared": ((200, 1_000, 2), Fleet(2, 100)),
    "no more workers than CPUs": ((1_000, 10_000, 2), Fleet(2, 500)),
    "a worker for two CPUs": ((64, 1_000, 64), Fleet(32, 2)),
    "more when they are crowded": ((6_000, 10_000, 64), Fleet(60, 100)),
    "no more workers than cases": ((100, 3, 64), Fleet(3, 34)),
    "no more workers than lanes": ((5, 1_000, 64), Fleet(5, 1)),
    "no case at all": ((5, 0, 64), Fleet(1, 5)),
    "workers as asked": ((100, 1, 2, 3, None), Fleet(3, 34)),
    "lanes as asked": ((100, 1_000, 2, None, 7), Fleet(1, 7)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_fleet(case: str) -> None:
    given, expected = CASES[case]
    assert fleet(*given) == expected  # type: ignore[arg-type]
