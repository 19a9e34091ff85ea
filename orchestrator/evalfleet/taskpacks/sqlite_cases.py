"""Case stores as SQLite files: a file a snapshot, and one an attempt that begins as a copy of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from evalfleet.taskpacks.owned_folder import OwnedFolder

R = TypeVar("R")

_CREATE = "CREATE TABLE records (collection TEXT, key TEXT, body TEXT NOT NULL, PRIMARY KEY (collection, key))"
_PUT = "INSERT OR REPLACE INTO records VALUES (?, ?, ?)"
_REMOVE = "DELETE FROM records WHERE collection = ? AND key = ?"


class SqliteCases:
    """Keeps snapshots and attempts below `folder`; without one in a folder of its own, which ends with the process.

    What a process that was killed left of those goes when the next one makes its own.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._own = OwnedFolder("evalfleet-cases-")

    async def keep(self, snapshot_id: str, rows: Sequence[tuple[str, str, str]]) -> None:
        """Keep a snapshot: written aside and put in place whole, whoever else does the same."""
        await asyncio.to_thread(self._keep, snapshot_id, rows)

    async def snapshots(self) -> Sequence[str]:
        """The ids of all snapshots, in order."""
        found = await asyncio.to_thread(lambda: list(self._place("snapshots").glob("*.sqlite")))
        return sorted(file.stem for file in found)

    async def open(self, name: str) -> SqliteRows:
        """An empty file for an attempt."""
        file = await asyncio.to_thread(lambda: self._place("attempts") / f"{name}.sqlite")
        rows = SqliteRows(file, self._place("snapshots"))
        await rows.begin()
        return rows

    async def close(self) -> None:
        """Nothing is shared; the files stay in the folder that was given."""

    def _place(self, kind: str) -> Path:
        place = (self._folder or self._own.path()) / kind
        place.mkdir(parents=True, exist_ok=True)
        return place

    def _keep(self, snapshot_id: str, rows: Sequence[tuple[str, str, str]]) -> None:
        place = self._place("snapshots")
        target = place / f"{snapshot_id}.sqlite"
        if target.exists():
            return
        handle, aside = tempfile.mkstemp(dir=place, suffix=".part")
        os.close(handle)
        with closing(_connect(Path(aside))) as connection, connection:
            connection.execute(_CREATE)
            connection.executemany(_PUT, rows)
        os.replace(aside, target)


class SqliteRows:
    """One attempt's file. Its calls run in threads, one after the other."""

    def __init__(self, file: Path, snapshots: Path) -> None:
        self._file = file
        self._snapshots = snapshots
        self._lock = asyncio.Lock()
        self._guard = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    async def begin(self) -> None:
        """Make the file, empty."""
        await self._in_turn(self._begin)

    async def restore(self, snapshot_id: str) -> bool:
        """Become a copy of the snapshot's file; False when there is none."""
        template = self._snapshots / f"{snapshot_id}.sqlite"
        return await self._in_turn(lambda: self._restore(template))

    async def read(self) -> Sequence[tuple[str, str, str]]:
        """All rows."""
        return await self._in_turn(lambda: self._open().execute("SELECT collection, key, body FROM records").fetchall())

    async def write(self, writes: Sequence[tuple[str, str, str | None]]) -> None:
        """Put and remove rows in one transaction."""
        await self._in_turn(lambda: self._write(writes))

    async def close(self) -> None:
        """Remove the file."""
        await self._in_turn(self._remove)

    async def _in_turn(self, call: Callable[[], R]) -> R:
        async with self._lock:
            return await asyncio.to_thread(self._alone, call)

    def _alone(self, call: Callable[[], R]) -> R:
        """Also beside a call whose caller was cancelled, and which still runs."""
        with self._guard:
            return call()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = _connect(self._file)
        return self._connection

    def _shut(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _begin(self) -> None:
        self._file.unlink(missing_ok=True)
        with self._open() as connection:
            connection.execute(_CREATE)

    def _restore(self, template: Path) -> bool:
        aside = self._file.with_suffix(".part")
        try:
            shutil.copyfile(template, aside)
        except FileNotFoundError:
            return False
        self._shut()
        os.replace(aside, self._file)
        return True

    def _write(self, writes: Sequence[tuple[str, str, str | None]]) -> None:
        with self._open() as connection:
            for collection, key, body in writes:
                if body is None:
                    connection.execute(_REMOVE, (collection, key))
                else:
                    connection.execute(_PUT, (collection, key, body))

    def _remove(self) -> None:
        self._shut()
        self._file.unlink(missing_ok=True)


def _connect(file: Path) -> sqlite3.Connection:
    """A connection for one thread at a time. What an attempt loses by a crash it does again, so nothing is synced."""
    connection = sqlite3.connect(file, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = MEMORY")
    connection.execute("PRAGMA synchronous = OFF")
    return connection
