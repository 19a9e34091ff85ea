"""Rows of sandboxes: written before there is one, known as ours for good, and safe to write twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from evalfleet.errors import StoreError
from evalfleet.model.ids import sha256
from evalfleet.model.sandbox import SandboxEntry, SandboxState
from evalfleet.store.artifacts import FileArtifacts
from evalfleet.store.lifecycle import delete_run
from evalfleet.store.sandboxes import SandboxRows
from tests.integration.store.samples import started
from tests.integration.store.sql import execute, one

ENTRY = SandboxEntry(
    backend="container",
    owner="r1/101",
    run="r1",
    attempt=101,
    case=1,
    eval_id="sql/0001",
    template=sha256(b"image"),
    ttl=3600.0,
)


@pytest.fixture
async def rows(database: str) -> AsyncGenerator[SandboxRows]:
    found = SandboxRows(database, "here", 4711)
    yield found
    await found.close()


async def states(rows: SandboxRows, *owners: str) -> dict[str, tuple[SandboxState, str | None]]:
    return {row.owner: (row.state, row.id) for row in await rows.known(owners)}


async def test_a_row_says_who_made_what_for_whom(database: str, rows: SandboxRows) -> None:
    _, recorder = await started(database)
    await rows.announce(ENTRY)
    (row,) = await rows.known(())
    assert (row.state, row.id, row.expired, row.ownerless) == (SandboxState.ANNOUNCED, None, False, False)
    named = ("backend", "owner", "run", "attempt", "case", "eval_id")
    assert [getattr(row, name) for name in named] == [getattr(ENTRY, name) for name in named]
    assert (row.host, row.pid) == ("here", 4711)
    assert row.expires_at - row.created_at == pytest.approx(3600, abs=5)
    await rows.made(ENTRY, "c0ffee")
    (row,) = await rows.known(())
    assert (row.state, row.id) == (SandboxState.MADE, "c0ffee")
    assert await one(database, "SELECT starts, made_at IS NOT NULL FROM sandboxes") == (1, True)
    await recorder.close()


async def test_what_has_ended_is_only_known_to_who_asks_for_it(rows: SandboxRows) -> None:
    await rows.announce(ENTRY)
    await rows.made(ENTRY, "c0ffee")
    await rows.ended("container", ENTRY.owner, SandboxState.GONE)
    assert await states(rows) == {}
    assert await states(rows, "r1/101", "r1/999") == {"r1/101": (SandboxState.GONE, "c0ffee")}


async def test_no_statement_undoes_a_later_one(rows: SandboxRows) -> None:
    """Each may come twice and late: a connection that breaks does not say what it has done."""
    await rows.announce(ENTRY)
    await rows.made(ENTRY, "c0ffee")
    await rows.announce(ENTRY)
    assert await states(rows) == {"r1/101": (SandboxState.MADE, "c0ffee")}
    await rows.ended("container", ENTRY.owner, SandboxState.LOST)
    for late in (rows.announce(ENTRY), rows.made(ENTRY, "other"), rows.kept(ENTRY, "other", 60.0)):
        await late
    await rows.ended("container", ENTRY.owner, SandboxState.GONE)
    assert await states(rows, "r1/101") == {"r1/101": (SandboxState.LOST, "c0ffee")}


async def test_one_that_is_kept_lives_on_for_its_own_time(database: str, rows: SandboxRows) -> None:
    await rows.announce(ENTRY)
    await rows.made(ENTRY, "c0ffee")
    local = replace(ENTRY, backend="local", owner="r1/102", attempt=102)
    await rows.kept(ENTRY, "c0ffee", 60.0)
    await rows.kept(local, "r1%2F102", 60.0)  # never announced: it would have died with its maker
    assert await states(rows) == {
        "r1/101": (SandboxState.KEPT, "c0ffee"),
        "r1/102": (SandboxState.KEPT, "r1%2F102"),
    }
    for row in await rows.known(()):
        assert row.expires_at - row.created_at == pytest.approx(60, abs=5)
    await execute(database, "UPDATE sandboxes SET expires_at = clock_timestamp() - interval '1 s'")
    assert [row.expired for row in await rows.known(())] == [True, True]


@pytest.mark.parametrize(
    ("statement", "ownerless"),
    [
        ("UPDATE runs SET status = 'running'", False),
        ("UPDATE runs SET status = 'completed'", True),
        ("UPDATE runs SET status = 'cancelled'", True),
        ("UPDATE runs SET status = 'limited'", True),
        ("UPDATE runs SET status = 'running', deleted_at = now()", True),
    ],
)
async def test_whose_run_has_ended_has_no_owner(
    database: str, rows: SandboxRows, statement: str, ownerless: bool
) -> None:
    _, recorder = await started(database)
    await rows.announce(ENTRY)
    await execute(database, statement)
    assert [row.ownerless for row in await rows.known(())] == [ownerless]
    await recorder.close()


async def test_a_deleted_run_leaves_its_row_until_the_sandbox_is_gone(
    database: str, rows: SandboxRows, tmp_path: Path
) -> None:
    _, recorder = await started(database)
    await recorder.close()
    await rows.announce(ENTRY)
    await delete_run(database, "r1", FileArtifacts(str(tmp_path)))
    await rows.forget()
    assert [row.ownerless for row in await rows.known(())] == [True]
    await rows.ended("container", ENTRY.owner, SandboxState.GONE)
    await rows.forget()
    assert await states(rows, ENTRY.owner) == {}


async def test_two_who_say_the_same_are_one(database: str, rows: SandboxRows) -> None:
    other = SandboxRows(database, "there", 12)
    await asyncio.gather(rows.announce(ENTRY), other.announce(ENTRY))
    await asyncio.gather(
        rows.ended("container", ENTRY.owner, SandboxState.GONE),
        other.ended("container", ENTRY.owner, SandboxState.GONE),
    )
    assert await one(database, "SELECT count(*) FROM sandboxes") == (1,)
    await other.close()


async def test_without_a_store_nothing_is_announced() -> None:
    away = SandboxRows("host=127.0.0.1 port=1 dbname=none connect_timeout=1", "here", 1, patience=0.1)
    with pytest.raises(StoreError, match="cannot be used"):
        await away.announce(ENTRY)


async def test_what_is_gone_goes_with_its_run(database: str, rows: SandboxRows, tmp_path: Path) -> None:
    _, recorder = await started(database)
    await recorder.close()
    await rows.announce(ENTRY)
    await rows.ended("container", ENTRY.owner, SandboxState.GONE)
    await delete_run(database, "r1", FileArtifacts(str(tmp_path)))
    assert await states(rows, ENTRY.owner) == {}
