"""The installed command over a database of its own on the server that all tests share: no command has to start one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import Orchestrate
from tests.acceptance.forks import Forked, Forks
from tests.postgres import create_database, database_url, drop_database

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with Forks() as forks:
        yield forks


@pytest.fixture(scope="module")
def orchestrate(
    postgres: str, forks: Forks, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Orchestrate]:
    """`orchestrate("submit", …)`; what a module's tests record stays until its end."""
    home = tmp_path_factory.mktemp("home")
    name = asyncio.run(create_database(postgres, f"{request.node.nodeid}{home}"))
    yield Forked(home, database_url(postgres, name), forks=forks)
    asyncio.run(drop_database(postgres, name))


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT
