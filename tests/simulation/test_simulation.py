"""2,000 schedules of crashes, pauses, lost, repeated and late messages, outages and lost commits.

`make test` takes the first 1,200 of them, `make soak` the others. One seed again: `pytest tests/simulation -k clean
--seed 1234`.
"""

from __future__ import annotations

import pytest

from tests.simulation.world import World

SEEDS = 2000
CHUNK = 100
#: From this seed on they are left to `make soak`.
LATER = 1200


@pytest.mark.parametrize(
    "first", [pytest.param(n, marks=pytest.mark.soak if n >= LATER else ()) for n in range(0, SEEDS, CHUNK)]
)
def test_clean(first: int, request: pytest.FixtureRequest) -> None:
    """No case settles twice or is lost, no lease overlaps its holder, limits and costs hold, the run ends."""
    one = request.config.getoption("--seed")
    for seed in [one] if one is not None else range(first, first + CHUNK):
        try:
            World(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
