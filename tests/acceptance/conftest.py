"""The installed command over a database of its own on the server that all tests share: no command has to start one."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalfleet.store.connection import connect
from tests.acceptance.cli.conftest import Orchestrate
from tests.acceptance.forks import Forked, Forks
from tests.postgres import database_url

ROOT = Path(__file__).parents[2]


async def _execute(server: str, statement: str) -> None:
    async with await connect(server, autocommit=True) as connection:
        await connection.execute(statement)  # pyright: ignore - built from a digest


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
    name = "t_" + hashlib.sha256(f"{request.node.nodeid}{home}".encode()).hexdigest()[:16]
    asyncio.run(_execute(postgres, f"CREATE DATABASE {name}"))
    yield Forked(home, database_url(postgres, name), forks=forks)
    asyncio.run(_execute(postgres, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT
