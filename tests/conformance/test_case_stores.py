"""Both backends of case stores pass the shipped suite; and the suite refuses backends that are wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from evalfleet.store.case_schemas import PostgresCases, PostgresRows
from evalfleet.store.connection import connect
from evalfleet.taskpacks.sqlite_cases import SqliteCases, SqliteRows
from evalfleet.testing.case_store_suite import MakeBackend, case_store_suite


@pytest.fixture
def sqlite_backend(tmp_path: Path) -> MakeBackend:
    @asynccontextmanager
    async def make() -> AsyncGenerator[SqliteCases]:
        yield SqliteCases(tmp_path / "cases")

    return make


@pytest.fixture
def postgres_backend(database: str) -> MakeBackend:
    @asynccontextmanager
    async def make() -> AsyncGenerator[PostgresCases]:
        cases = PostgresCases(database)
        try:
            yield cases
        finally:
            await cases.close()

    return make


TestSqlite = case_store_suite("sqlite_backend")
TestPostgres = case_store_suite("postgres_backend")


class OneFileForAll(SqliteCases):
    """Wrong: every attempt has the same rows."""

    async def open(self, name: str) -> SqliteRows:
        return await super().open("shared")


class Forgetful(SqliteRows):
    """Wrong: a restore leaves out a row."""

    async def read(self) -> Sequence[tuple[str, str, str]]:
        return (await super().read())[1:]


class ForgetfulCases(SqliteCases):
    async def open(self, name: str) -> SqliteRows:
        rows = await super().open(name)
        rows.__class__ = Forgetful
        return rows


class OneByOne(SqliteRows):
    """Wrong: what was written before a write that fails stays."""

    async def write(self, writes: Sequence[tuple[str, str, str | None]]) -> None:
        for each in writes:
            await super().write([each])


class OneByOneCases(SqliteCases):
    async def open(self, name: str) -> SqliteRows:
        rows = await super().open(name)
        rows.__class__ = OneByOne
        return rows


def checked(backend: Any, check: str, tmp_path: Path) -> None:
    """One check of the suite on a backend of this kind."""

    @asynccontextmanager
    async def make() -> AsyncGenerator[SqliteCases]:
        yield backend(tmp_path / "cases")

    class Given:
        def getfixturevalue(self, name: str) -> MakeBackend:
            return make

    getattr(case_store_suite("any"), f"test_{check}")(None, Given())


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        (OneFileForAll, "parallel_attempts_never_see_each_others_rows"),
        (ForgetfulCases, "a_reset_restores_a_snapshot_exactly"),
        (OneByOneCases, "several_writes_are_made_whole_or_not_at_all"),
    ],
)
def test_the_suite_refuses_what_is_wrong(wrong: Any, check: str, tmp_path: Path) -> None:
    with pytest.raises(Exception):  # noqa: B017 - an assertion, or the failure of a reset
        checked(wrong, check, tmp_path)


@pytest.mark.parametrize(
    "check",
    [
        "an_unknown_snapshot_is_told_and_changes_nothing",
        "a_snapshot_that_is_not_what_its_id_says_is_refused",
        "a_store_that_an_agent_works_on_is_not_reset",
    ],
)
def test_what_is_refused_is_told_by_its_code(check: str, tmp_path: Path) -> None:
    checked(SqliteCases, check, tmp_path)


def test_an_attempt_of_a_name_that_is_taken_or_is_none_is_refused(database: str) -> None:
    async def run() -> list[str]:
        cases, refused = PostgresCases(database), []
        await cases.open("mine")
        for name in ("mine", "", "My", "a-b", "x" * 41):
            try:
                await cases.open(name)
            except Exception as error:
                refused.append(type(error).__name__)
        await cases.close()
        return refused

    assert asyncio.run(run()) == ["StoreError", *["ConfigurationError"] * 4]


def test_a_connection_that_is_lost_is_made_again(database: str) -> None:
    async def run() -> int:
        cases = PostgresCases(database)
        rows: PostgresRows = await cases.open("mine")
        async with await connect(database, autocommit=True) as other:
            await other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        with pytest.raises(Exception, match="case store"):
            await rows.read()
        found = len(await rows.read())
        await cases.close()
        return found

    assert asyncio.run(run()) == 0


def test_no_connection_outlives_the_last_attempt(database: str) -> None:
    async def run() -> list[int]:
        cases, seen = PostgresCases(database), []
        async with await connect(database, autocommit=True) as other:

            async def others() -> int:
                cursor = await other.execute(
                    "SELECT count(*) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                    " AND backend_type = 'client backend'"
                )
                row = await cursor.fetchone()
                return 0 if row is None else row[0]

            await cases.snapshots()
            seen.append(await settled(others, 0))
            first, second = await cases.open("first"), await cases.open("second")
            seen.append(await others())
            await first.close()
            await first.close()
            seen.append(await others())
            await second.close()
            seen.append(await settled(others, 0))
        return seen

    assert asyncio.run(run()) == [0, 1, 1, 0]


async def settled(count: Callable[[], Awaitable[int]], wanted: int) -> int:
    """The count, waited for: the server notices a client's end a moment later."""
    for _ in range(200):
        if await count() == wanted:
            break
        await asyncio.sleep(0.05)
    return await count()
