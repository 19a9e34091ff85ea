"""One connection to the record store that is opened again when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg
from psycopg import AsyncConnection, errors

from evalfleet.errors import StoreError
from evalfleet.store.connection import PARAMETERS, Connection, first_line, place

T = TypeVar("T")

# also a standby that was promoted or demoted under us, a server that is starting, a disk that is full, and a session
# that the server ended because this process had been frozen in a transaction
_LOST = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    errors.ReadOnlySqlTransaction,
    errors.IdleInTransactionSessionTimeout,
)
#: What Postgres says of a row that it can't take; a malformed binary one reads as a violated protocol.
REFUSED = (psycopg.DataError, psycopg.IntegrityError, errors.ProtocolViolation)
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class Lifeline:
    """Runs work on the connection, one at a time, again from its start on a new one when that is lost.

    `prepare` sets a new connection up. Work must be safe to repeat. After `patience` seconds of failures the
    last one is raised as StoreError.
    """

    def __init__(self, url: str, prepare: Callable[[Connection], Awaitable[None]], patience: float) -> None:
        self._url = url
        self._prepare = prepare
        self._patience = patience
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()

    async def run(self, work: Callable[[Connection], Awaitable[T]], *, patience: float | None = None) -> T:
        """The result of `work`. Raises StoreError when the store stays away, else what `work` raises."""
        async with self._lock:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + (self._patience if patience is None else patience)
            pause = _FIRST_PAUSE
            while True:
                try:
                    return await self._once(work)
                except _LOST as error:
                    if isinstance(error, REFUSED):
                        raise
                    if loop.time() + pause > deadline:
                        message = f"the record store at {place(self._url)} cannot be used: {first_line(error)}"
                        raise StoreError(message) from error
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)

    def now(self) -> float:
        """Monotonic seconds."""
        return asyncio.get_running_loop().time()

    async def close(self) -> None:
        async with self._lock:
            await self._drop()

    async def _once(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        usable = False
        try:
            if self._connection is None:
                self._connection = await AsyncConnection.connect(self._url, autocommit=True, **PARAMETERS)
                await self._prepare(self._connection)
            result = await work(self._connection)
            usable = True
            return result
        except psycopg.Error as error:
            usable = not isinstance(error, _LOST)
            raise
        except StoreError:
            usable = True
            raise
        finally:
            if not usable:  # lost, or cancelled in the middle of a transaction
                await self._drop()

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
