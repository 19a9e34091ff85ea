"""Models and migrations describe one schema, and migrating is safe from many processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Enum, create_engine
from sqlalchemy.pool import NullPool

from evalfleet.errors import StoreError
from evalfleet.store import columns, evidence_tables, migrate, tables
from evalfleet.store.columns import metadata
from evalfleet.store.connection import connect
from evalfleet.store.schema import HEAD, current_revision, ensure_schema
from tests.integration.store.sql import execute, one, rows
from tests.postgres import database_url


def test_the_models_are_what_the_migrations_build(database: str) -> None:
    assert {tables.runs.metadata, evidence_tables.attempts.metadata} == {metadata}
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database), poolclass=NullPool)
    with engine.connect() as connection:
        found = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(found, metadata) == []


async def test_enums_and_checks_are_what_the_migrations_build(database: str) -> None:
    """What Alembic does not compare."""
    labels: dict[str, list[str]] = {}
    for name, label in await rows(
        database,
        "SELECT t.typname, e.enumlabel FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid ORDER BY enumsortorder",
    ):
        labels.setdefault(name, []).append(label)
    declared_enums = (value for value in vars(columns).values() if isinstance(value, Enum))
    assert labels == {str(kind.name): list(kind.enums) for kind in declared_enums}
    checks = {
        name
        for (name,) in await rows(
            database, "SELECT conname FROM pg_constraint WHERE contype = 'c' AND connamespace = 'public'::regnamespace"
        )
    }
    declared = {
        str(check.name)
        for table in metadata.tables.values()
        for check in table.constraints
        if type(check).__name__ == "CheckConstraint"
    }
    assert checks == declared


def test_the_head_that_the_fast_path_knows_is_the_newest_migration() -> None:
    script = ScriptDirectory(str(Path(migrate.__file__).with_name("migrations")))
    assert script.get_heads() == [HEAD]


async def test_many_processes_may_migrate_at_once(postgres: str) -> None:
    name = "t_many_migrations"
    await execute(postgres, f"CREATE DATABASE {name}")
    url = database_url(postgres, name)
    await asyncio.gather(*(ensure_schema(url) for _ in range(3)))
    assert await one(url, "SELECT version_num FROM alembic_version") == (HEAD,)
    await execute(postgres, f"DROP DATABASE {name} WITH (FORCE)")


async def test_a_database_of_a_newer_version_is_refused(database: str) -> None:
    await execute(database, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match=r"schema 9999.*upgrade evalfleet"):
        await ensure_schema(database)


async def test_an_empty_database_has_no_revision(postgres: str) -> None:
    async with await connect(postgres) as connection:
        assert await current_revision(connection) is None


def test_a_migrated_database_costs_no_heavy_import() -> None:
    code = "import sys, evalfleet.store.opening, evalfleet.store.reader, evalfleet.store.writer; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & {"sqlalchemy", "alembic", "fsspec", "ray"}
    assert "psycopg" in loaded
