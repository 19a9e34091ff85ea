"""What a newcomer does is done by the installed command, its imports and a hash seed of its own included."""

from __future__ import annotations

import pytest

from tests.acceptance.cli.conftest import Orchestrate


@pytest.fixture(scope="module")
def orchestrate(orchestrate: Orchestrate) -> Orchestrate:
    return Orchestrate(orchestrate.home, orchestrate.database_url)
