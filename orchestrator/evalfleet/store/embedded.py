"""A Postgres server of our own for machines without one: started by the first client, gone after the last.

Any number of processes share it. Who starts or looks holds `start.lock`; who uses it holds a shared lock on
`clients.lock`, which a kill releases too; the watchdog stops the server once nobody does.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

from evalfleet import processes
from evalfleet.errors import StoreError
from evalfleet.settings import Settings
from evalfleet.store import watchdog
from evalfleet.store.server import Server

_LOCK_SECONDS = 90.0
_LOOK_SECONDS = 2.0


@asynccontextmanager
async def embedded(settings: Settings) -> AsyncGenerator[str]:
    """The URL of the running embedded server, kept up while the block runs.

    Raises StoreError when it can't be started, ConfigurationError when this machine can't run one.
    """
    server = Server.below(settings.state_dir)
    with _opened(server.directory / "start.lock") as start, _opened(server.directory / "clients.lock") as clients:
        await _ensure_up(server, start, clients)
        keeper = asyncio.create_task(_keep_up(server, start, clients), name="embedded-postgres")
        try:
            yield _url(server)
        finally:
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper
            with contextlib.suppress(OSError):
                _watch(server)  # who else would replace one that was killed just now?


def _url(server: Server) -> str:
    password = quote(server.password(), safe="")
    return f"postgresql://{server.user}:{password}@/postgres?host={quote(str(server.sockets), safe='')}"


async def _ensure_up(server: Server, start: int, clients: int) -> None:
    """Start server and watchdog unless they run, and hold the client's share. The order of locks is fixed."""
    await _flock(start, fcntl.LOCK_EX, server.directory)
    try:
        await _flock(clients, fcntl.LOCK_SH, server.directory)
        _watch(server)  # first: should we be killed, it stops what we began to start
        if not server.ready():
            await server.start()
    finally:
        fcntl.flock(start, fcntl.LOCK_UN)


async def _keep_up(server: Server, start: int, clients: int) -> None:
    """Start server and watchdog again should they be killed under us."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        with contextlib.suppress(StoreError, OSError):  # who uses the connection reports it; the next look tries again
            _watch(server)
            if not watchdog.answers(server.socket):
                await _ensure_up(server, start, clients)


def _watch(server: Server) -> None:
    """Start the watchdog unless it runs."""
    with _opened(server.directory / "watchdog.lock") as lock:
        if not watchdog.try_lock(lock):
            return
    argv = (sys.executable, "-I", "-S", watchdog.__file__, str(server.directory), server.socket)
    processes.start_daemon(argv, env={}, log=server.log)


@contextlib.contextmanager
def _opened(path: Path) -> Generator[int, None, None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def _flock(descriptor: int, how: int, directory: Path) -> None:
    """Take a lock without blocking the loop. Raises StoreError when it stays taken."""
    try:
        async with asyncio.timeout(_LOCK_SECONDS):
            while True:
                try:
                    return fcntl.flock(descriptor, how | fcntl.LOCK_NB)
                except BlockingIOError:
                    await asyncio.sleep(0.02)
    except TimeoutError as error:
        raise StoreError(f"another process has been starting or stopping the server in {directory} for long") from error
