"""A real Postgres for tests: one embedded server for the whole call, one fresh migrated database per test."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from evalfleet.settings import Settings
from evalfleet.store.connection import connect
from evalfleet.store.embedded import embedded
from evalfleet.store.schema import ensure_schema

_TEMPLATE = "evalfleet_template"
_UNCOMPRESSED = """
SELECT set_config('wal_compression', 'off', false) FROM pg_user WHERE usename = current_user AND usesuper
"""


def database_url(server: str, name: str) -> str:
    """The URL of another database of the same server."""
    return make_conninfo(server, dbname=name)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[str]:
    """The URL of a running server that all workers of this call share; it goes with the last of them.

    EVALFLEET_TEST_SERVER names another one, whose user may create databases: for other versions of Postgres.
    """
    base = tmp_path_factory.getbasetemp()
    state = (base if worker_id == "master" else base.parent) / "postgres-for-tests"
    ready, done = threading.Event(), threading.Event()
    found: list[str | BaseException] = []

    async def serve() -> None:
        try:
            async with _server(state) as url:
                async with await connect(url, autocommit=True) as connection:
                    await connection.execute("SELECT pg_advisory_lock(1)")
                    cursor = await connection.execute("SELECT FROM pg_database WHERE datname = %s", (_TEMPLATE,))
                    if await cursor.fetchone() is None:
                        await connection.execute(f"CREATE DATABASE {_TEMPLATE}")
                    await ensure_schema(database_url(url, _TEMPLATE))
                found.append(url)
                ready.set()
                await asyncio.to_thread(done.wait)
        except BaseException as error:
            found.append(error)
            raise
        finally:
            ready.set()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    ready.wait()
    if isinstance(found[0], BaseException):
        raise found[0]
    yield found[0]
    done.set()
    thread.join()


@asynccontextmanager
async def _server(state: Path) -> AsyncGenerator[str]:
    given = os.environ.get("EVALFLEET_TEST_SERVER")
    if given is not None:
        yield given
        return
    async with embedded(Settings(state_dir=state, artifacts=str(state / "artifacts"))) as url:
        yield url


@pytest.fixture
async def database(postgres: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a fresh database at the newest schema, dropped after the test."""
    name = await create_database(postgres, f"{request.node.nodeid} {tmp_path}")
    yield database_url(postgres, name)
    await drop_database(postgres, name)


@pytest.fixture
async def other_database(postgres: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """A second one beside it."""
    name = await create_database(postgres, f"{request.node.nodeid} {tmp_path} other")
    yield database_url(postgres, name)
    await drop_database(postgres, name)


async def create_database(server: str, seed: str) -> str:
    """The name of a new database at the newest schema, the same for the same seed."""
    name = "t_" + hashlib.sha256(seed.encode()).hexdigest()[:16]
    async with await connect(server, autocommit=True) as connection:
        # the copy goes through the log, and compressing it there would be most of what it costs
        await connection.execute(_UNCOMPRESSED)
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}".encode())
    return name


async def drop_database(server: str, name: str) -> None:
    """Drop it under whoever is still connected."""
    async with await connect(server, autocommit=True) as connection:
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
