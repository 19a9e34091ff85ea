"""Test bodies with a plain `assert` that fails, in a module whose asserts pytest leaves as they are."""

from __future__ import annotations

import asyncio
from typing import Any

from evalfleet.assertions.matchers import equals


def helper(reply: str) -> None:
    wanted = "sun"
    assert reply == wanted, "the helper's words"


async def compares(t: Any) -> None:
    reply = (await t.send("rain")).reply
    assert reply == "sun"


async def compares_attribute(t: Any) -> None:
    turn = await t.send("rain")
    assert turn.status != "completed", f"it was {turn.status}"


async def negates(t: Any) -> None:
    found = [1, 2]
    assert not found


async def calls(t: Any) -> None:
    assert len([1]) > 2


async def spans_lines(t: Any) -> None:
    left = {"a": 1}
    assert left == {
        "a": 2,
    }


async def from_a_helper(t: Any) -> None:
    helper("rain")


def plain_compares(t: Any) -> None:
    reply = t.send("rain").reply
    assert reply == "sun"


async def two_in_a_group(t: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(is_zero(1))
        group.create_task(is_zero(2))


async def is_zero(value: int) -> None:
    await asyncio.sleep(0)
    assert value == 0


async def after_a_check(t: Any) -> None:
    t.check(1, equals(1)).score(2)
    assert await t.send("x") is None
    t.check(1, equals(1)).score(5)
