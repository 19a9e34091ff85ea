"""A project of agents on the import path, as the composition root puts it there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent / "project"


@pytest.fixture(scope="session")
def project() -> Iterator[Path]:
    sys.path.insert(0, str(PROJECT))
    yield PROJECT
    sys.path.remove(str(PROJECT))
