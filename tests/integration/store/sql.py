"""Looking at a database behind the store's back."""

from __future__ import annotations

from typing import Any

from evalfleet.store.connection import connect


async def execute(url: str, statement: str) -> None:
    async with await connect(url, autocommit=True) as connection:
        await connection.execute(statement.encode())


async def rows(url: str, statement: str) -> list[tuple[Any, ...]]:
    async with await connect(url, autocommit=True) as connection:
        return await (await connection.execute(statement.encode())).fetchall()


async def one(url: str, statement: str) -> tuple[Any, ...]:
    found = await rows(url, statement)
    assert len(found) == 1
    return found[0]
