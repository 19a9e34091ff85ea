"""`--seed N` runs one schedule of the simulation."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="run this one seed of the simulation")
