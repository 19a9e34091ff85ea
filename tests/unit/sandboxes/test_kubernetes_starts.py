"""The window on starts: how it grows, and how it gives way."""

from __future__ import annotations

import asyncio

import pytest

from evalfleet_sandboxes.kubernetes_starts import Starts


async def go(starts: Starts, count: int, *, fail: bool = False) -> int:
    """Start so many together; how many were under way at once."""
    running = most = 0

    async def one() -> None:
        nonlocal running, most
        async with starts.one() as push_back:
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            if fail:
                push_back()
                raise RuntimeError("no room")

    await asyncio.gather(*(one() for _ in range(count)), return_exceptions=True)
    return most


async def test_no_more_start_at_once_than_the_window_has() -> None:
    assert await go(Starts(first=3, most=3), 10) == 3


async def test_it_grows_while_it_is_full_and_starts_go_well() -> None:
    starts = Starts(first=2, most=5)
    await go(starts, 20)
    assert starts.window == 5


async def test_it_does_not_grow_when_it_is_not_needed() -> None:
    starts = Starts(first=4, most=8)
    await go(starts, 2)
    assert starts.window == 4


async def test_it_halves_once_for_all_that_fail_together_and_never_closes() -> None:
    starts = Starts(first=8, most=8)
    await go(starts, 8, fail=True)
    assert starts.window == 4
    for _ in range(5):
        await go(starts, 1, fail=True)
    assert starts.window == 1


async def test_a_failure_that_is_no_push_back_changes_nothing() -> None:
    starts = Starts(first=4, most=8)
    with pytest.raises(RuntimeError):
        async with starts.one():
            raise RuntimeError("no such image")
    assert starts.window == 4


async def test_giving_up_a_start_is_no_push_back_and_frees_its_place() -> None:
    starts = Starts(first=1, most=1)

    async def hold() -> None:
        async with starts.one():
            await asyncio.Event().wait()

    holder = asyncio.create_task(hold())
    await asyncio.sleep(0)
    holder.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holder
    assert starts.window == 1
    assert await go(starts, 1) == 1
