"""Processes that use the embedded server, to be ended in every way, and what is left of it then."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from evalfleet.settings import Settings
from evalfleet.store import watchdog
from evalfleet.store.server import Server

_CLIENT = """
import asyncio, sys
from pathlib import Path
from evalfleet.settings import Settings
from evalfleet.store.embedded import embedded
from evalfleet.store.connection import connect

async def main():
    async with embedded(Settings(state_dir=Path(sys.argv[1]), artifacts="")) as url:
        asked = True
        while asked:
            async with await connect(url) as connection:
                await connection.execute("SELECT 1")
            print("up", flush=True)
            asked = await asyncio.to_thread(sys.stdin.readline) == "again\\n"

asyncio.run(main())
"""


def settings(state: Path) -> Settings:
    return Settings(state_dir=state, artifacts="")


def client(state: Path, *before: str) -> subprocess.Popen[str]:
    """Another process that uses the server until it is told to leave by a line, or killed."""
    argv = [*before, sys.executable, "-c", _CLIENT, str(state)]
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


async def up(process: subprocess.Popen[str]) -> None:
    """Wait until the server answered the client."""
    assert process.stdout is not None
    assert await asyncio.to_thread(process.stdout.readline) == "up\n"


async def up_again(process: subprocess.Popen[str]) -> None:
    """Let a client that was up ask the server once more."""
    assert process.stdin is not None
    process.stdin.write("again\n")
    process.stdin.flush()
    await up(process)


async def leave(process: subprocess.Popen[str], how: signal.Signals | None = None) -> None:
    if how is not None:
        process.send_signal(how)
    await asyncio.to_thread(process.communicate, "\n" if how is None else None)


async def gone_within(server: Server, seconds: float) -> bool:
    for _ in range(int(seconds / 0.05)):
        if not watchdog.answers(server.socket) and watchdog.postmaster(server.directory) is None:
            return True
        await asyncio.sleep(0.05)
    return False
