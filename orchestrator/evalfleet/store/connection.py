"""Connections to the record store, with errors that say what to do."""

from __future__ import annotations

from typing import Any, TypeAlias

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict

from evalfleet.errors import ConfigurationError, StoreError

Connection: TypeAlias = AsyncConnection[tuple[Any, ...]]

# a peer that is gone is noticed within half a minute, also in the middle of a statement
PARAMETERS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "evalfleet",
}


async def connect(url: str, *, autocommit: bool = False) -> Connection:
    """A new connection. Raises StoreError naming the database, never its password."""
    try:
        return await AsyncConnection.connect(url, autocommit=autocommit, **PARAMETERS)
    except psycopg.OperationalError as error:
        raise StoreError(f"cannot reach the record store at {place(url)}: {first_line(error)}") from error
    except psycopg.ProgrammingError as error:
        message = "EVALFLEET_DATABASE_URL is no Postgres URL (postgresql://user:password@host:5432/database)"
        raise ConfigurationError(message) from error


def place(url: str) -> str:
    """Host and database of a URL, for people."""
    known = conninfo_to_dict(url)
    return f"{known.get('host', 'localhost')}:{known.get('port', 5432)}/{known.get('dbname', '')}"


def first_line(error: Exception) -> str:
    """The first line of a database error, for a message of one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
