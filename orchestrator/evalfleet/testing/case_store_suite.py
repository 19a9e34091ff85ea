"""The conformance suite that every backend of case stores passes, ours and anyone's.

    TestMine = case_store_suite("my_backend")

`my_backend` names a pytest fixture that gives a function without arguments, which opens a fresh backend as an async
context manager. Needs pytest (`evalfleet[testing]`).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from evalfleet.clock import SystemClock
from evalfleet.errors import AttemptFailure
from evalfleet.taskpacks.case_store import CaseBackend, CaseStore, keep_state
from evalfleet.taskpacks.cases import Cases
from evalfleet.taskpacks.diff import Actor, compare
from evalfleet.taskpacks.state import CaseState, Collection, RowKey, encoded, read_state, schema_of
from evalfleet.testing.runner import pytest

MakeBackend = Callable[[], AbstractAsyncContextManager[CaseBackend]]

SCHEMA = schema_of([Collection("cases"), Collection("documents", ignored=frozenset({"seen_at"}))])
ODD = "NUL \0, lone \ud800, astral 🙂, e\u0301, {} 'quotes' \"and\" %s"
START = read_state(
    SCHEMA,
    {
        "cases": [{"id": "C-1", "status": "open", "note": None, "amount": 10**30, "share": 0.1}],
        "documents": [
            {"id": "D-1", "text": ODD, "lines": [{"b": 1, "a": [1.0, -0.0, float("nan")]}], "seen_at": 1},
            {"id": "d-1", "text": ""},
            {"id": "D-1 ", "text": " "},
        ],
    },
)


def case_store_suite(fixture: str) -> type:
    """A pytest class with one test a check; `fixture` gives the backends."""
    checks = {
        name: value
        for name, value in globals().items()
        if inspect.iscoroutinefunction(value) and value.__module__ == __name__ and not name.startswith("_")
    }
    tests = {f"test_{name}": _test(check, fixture) for name, check in checks.items()}
    return type("CaseStoreSuite", (), tests)


def _test(check: Callable[[CaseBackend], Awaitable[None]], fixture: str) -> Callable[..., None]:
    async def run(make: MakeBackend) -> None:
        async with make() as backend:
            await check(backend)

    def test(_: object, request: Any) -> None:
        asyncio.run(run(request.getfixturevalue(fixture)))

    return pytest.mark.usefixtures(fixture)(test)


async def _opened(backend: CaseBackend, name: str = "one", state: CaseState | None = START) -> CaseStore:
    """A case store of an attempt, restored from `state`, which is kept first."""
    store = CaseStore(SCHEMA, await backend.open(name), SystemClock())
    if state is not None:
        await store.reset(await keep_state(backend, state))
    return store


async def _write(store: CaseStore, key: str, fields: dict[str, Any] | None) -> None:
    row = RowKey("cases", key)
    await store.write([(row, None if fields is None else encoded(SCHEMA, "cases", {"id": key, **fields})[1])])


async def _failure(call: Awaitable[Any]) -> str | None:
    try:
        await call
    except AttemptFailure as failure:
        return failure.code
    return None


async def a_reset_restores_a_snapshot_exactly(backend: CaseBackend) -> None:
    store = await _opened(backend, state=None)
    restored = await store.reset(await keep_state(backend, START))
    state = await store.state()
    assert (state.rows, state.snapshot_id) == (START.rows, START.snapshot_id)
    assert (restored.snapshot_id, restored.state_digest) == (START.snapshot_id, START.digest)
    assert restored.restored_at.endswith("Z")


async def a_reset_undoes_every_write_and_can_be_repeated(backend: CaseBackend) -> None:
    store = await _opened(backend)
    await _write(store, "C-1", {"status": "closed"})
    await _write(store, "C-2", {"status": "new"})
    assert len(compare(START, await store.state()).changes) == 2
    for _ in range(3):
        await store.reset(START.snapshot_id)
        assert (await store.state()).snapshot_id == START.snapshot_id


async def an_unknown_snapshot_is_told_and_changes_nothing(backend: CaseBackend) -> None:
    store = await _opened(backend)
    await _write(store, "C-2", {"status": "new"})
    for unknown in ("0" * 64, "", "../x", "a'b"):
        assert await _failure(store.reset(unknown)) == "SNAPSHOT_NOT_FOUND"
    assert (await store.state()).record("cases", "C-2") == {"id": "C-2", "status": "new"}


async def a_snapshot_that_is_not_what_its_id_says_is_refused(backend: CaseBackend) -> None:
    store = await _opened(backend)
    await backend.keep("1" * 64, [("cases", "C-1", '{"id":"C-1"}')])
    assert await _failure(store.reset("1" * 64)) == "SNAPSHOT_DAMAGED"
    await store.reset(START.snapshot_id)


async def a_store_that_an_agent_works_on_is_not_reset(backend: CaseBackend) -> None:
    store = await _opened(backend)
    store.active = True
    await _write(store, "C-2", {"status": "new"})
    assert await _failure(store.reset(START.snapshot_id)) == "RESET_WHILE_ACTIVE"
    assert (await store.state()).record("cases", "C-2") is not None
    store.active = False
    await store.reset(START.snapshot_id)


async def an_edit_of_a_snapshot_is_another_snapshot(backend: CaseBackend) -> None:
    text = encoded(SCHEMA, "documents", {"id": "D-1", "text": ODD, "seen_at": 2})[1]
    edited = START.changed([(RowKey("documents", "D-1"), text)])
    first, second = await keep_state(backend, START), await keep_state(backend, edited)
    assert first != second
    assert list(await backend.snapshots()) == sorted([first, second])
    store = await _opened(backend)
    await store.reset(second)
    assert (await store.state()).rows == edited.rows


async def a_snapshot_that_many_keep_at_once_is_one(backend: CaseBackend) -> None:
    ids = await asyncio.gather(*(keep_state(backend, START) for _ in range(8)))
    assert list(await backend.snapshots()) == [ids[0]]


async def parallel_attempts_never_see_each_others_rows(backend: CaseBackend) -> None:
    stores = await asyncio.gather(*(_opened(backend, f"attempt_{number}") for number in range(6)))

    async def work(number: int, store: CaseStore) -> None:
        for step in range(5):
            await _write(store, f"N-{step}", {"by": number})
            await _write(store, "C-1", {"status": f"{number}/{step}"})

    await asyncio.gather(*(work(number, store) for number, store in enumerate(stores)))
    for number, store in enumerate(stores):
        state = await store.state()
        assert [record["by"] for record in state.records("cases") if "by" in record] == [number] * 5
        assert state.record("cases", "C-1") == {"id": "C-1", "status": f"{number}/4"}
    await stores[0].reset(START.snapshot_id)
    assert (await stores[1].state()).record("cases", "N-0") is not None


async def several_writes_are_made_whole_or_not_at_all(backend: CaseBackend) -> None:
    store = await _opened(backend)
    good: tuple[RowKey, str | None] = (RowKey("cases", "C-2"), '{"id":"C-2"}')
    bad: Any = (RowKey("cases", "C-3"), object())
    try:
        await store.write([good, bad])
    except Exception:  # noqa: BLE001 - what a backend raises is its own; that nothing was written counts
        assert (await store.state()).rows == START.rows
    else:
        raise AssertionError("an impossible write was accepted")
    await store.write([good])
    assert (await store.state()).record("cases", "C-2") == {"id": "C-2"}


async def a_removed_row_is_gone_and_removing_nothing_is_nothing(backend: CaseBackend) -> None:
    store = await _opened(backend)
    await _write(store, "C-1", None)
    await _write(store, "C-9", None)
    assert (await store.state()).records("cases") == []
    assert len((await store.state()).records("documents")) == 3


async def clock_counters_and_cursor_are_part_of_a_snapshot(backend: CaseBackend) -> None:
    store = await _opened(backend)
    seen: list[tuple[str, str, Any]] = []
    for _ in range(2):
        cases = Cases(await store.state(), Actor.AGENT, 1)
        seen.append((cases.tick(60), cases.next_id("M"), cases.kept("responder")))
        cases.keep("responder", {"answers": 1})
        await store.write((row, text) for row, text in cases.after.rows.items())
        later = Cases(await store.state(), Actor.AGENT, 2)
        assert (later.now, later.next_id("M")) == (seen[-1][0], "M-0002")
        assert later.kept("responder") == {"id": "responder", "answers": 1}
        await store.reset(START.snapshot_id)
    assert seen[0] == seen[1]


async def a_closed_store_leaves_the_others_and_the_snapshots(backend: CaseBackend) -> None:
    first, second = await _opened(backend, "first"), await _opened(backend, "second")
    await first.close()
    await first.close()
    assert (await second.state()).rows == START.rows
    assert list(await backend.snapshots()) == [START.snapshot_id]
    again = await _opened(backend, "first")
    assert (await again.state()).rows == START.rows


async def thousands_of_records_are_restored(backend: CaseBackend) -> None:
    many = read_state(SCHEMA, {"documents": [{"id": f"D-{number:05d}", "text": "x" * 100} for number in range(3_000)]})
    store = await _opened(backend, state=many)
    assert (await store.state()).digest == many.digest
