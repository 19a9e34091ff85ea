"""Each planted bug is caught within 500 schedules: the simulation would notice if the product had it."""

from __future__ import annotations

import pytest

from tests.simulation.planted import BUGS
from tests.simulation.world import World

SEEDS = 500


@pytest.mark.parametrize("name", BUGS)
def test_caught(name: str, monkeypatch: pytest.MonkeyPatch, record_property: pytest.RecordProperty) -> None:
    BUGS[name](monkeypatch)
    for seed in range(SEEDS):
        try:
            World(seed).run()
        except (AssertionError, KeyError) as error:
            record_property("caught", f"seed {seed}: {error}")
            return
    pytest.fail(f"{name}: not caught in {SEEDS} seeds")
