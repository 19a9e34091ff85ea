"""Is the database at this version's schema? One small query, without SQLAlchemy and Alembic when it is."""

from __future__ import annotations

import sys

from evalfleet import processes
from evalfleet.errors import StoreError
from evalfleet.settings import environment_for
from evalfleet.store.connection import Connection, connect

#: The newest migration; a test holds it against the migrations themselves.
HEAD = "0014"

_MIGRATION_SECONDS = 600.0


async def ensure_schema(url: str) -> None:
    """Bring the database at `url` to this version's schema when it isn't there yet.

    Raises StoreError when it can't be reached, was written by a newer version, or a migration fails.
    """
    async with await connect(url, autocommit=True) as connection:
        if await current_revision(connection) == HEAD:
            return
    # a process of its own: the migration's libraries cost a second that no later command should pay for
    argv = (sys.executable, "-m", "evalfleet.store.migrate")
    done = await processes.run(argv, timeout=_MIGRATION_SECONDS, env=environment_for(url))
    if not done.ok:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise StoreError(f"the record store could not be migrated: {lines[-1] if lines else 'it was interrupted'}")


async def current_revision(connection: Connection) -> str | None:
    """The migration that the database stands at, None when it holds no record store yet."""
    cursor = await connection.execute("SELECT to_regclass('alembic_version') IS NOT NULL")
    if await cursor.fetchone() == (False,):
        return None
    cursor = await connection.execute("SELECT version_num FROM alembic_version")
    row = await cursor.fetchone()
    return None if row is None else str(row[0])
