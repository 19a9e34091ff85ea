"""The embedded server where processes are killed: nothing committed is lost, and nothing of it stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import psutil
import pytest

from evalfleet.store import watchdog
from evalfleet.store.embedded import embedded
from evalfleet.store.server import Server
from tests.integration.store.clients import client, gone_within, leave, settings, up, up_again
from tests.integration.store.sql import execute, one

_WITHOUT_REAPING = Path(__file__).with_name("without_reaping.py")


async def until(happened: Callable[[], bool]) -> None:
    for _ in range(6000):
        if happened():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it does not happen")


def users(state: Path) -> list[str]:
    """The command lines of all processes that name the state directory."""
    found: list[str] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(state) in word for word in process.cmdline()):
                found.append(" ".join(process.cmdline()))
    return found


def server_process(server: Server) -> psutil.Process:
    pid = watchdog.postmaster(server.directory)
    assert pid is not None
    return psutil.Process(pid)


async def test_a_server_killed_with_everything_starts_again_though_nobody_reaps_the_dead(tmp_path: Path) -> None:
    server = Server.below(tmp_path)
    parent = client(tmp_path, sys.executable, str(_WITHOUT_REAPING))
    try:
        await up(parent)
        async with embedded(settings(tmp_path)) as url:
            await execute(url, "CREATE TABLE kept AS SELECT 42 AS n")
        dead = server_process(server)
        adopting = psutil.Process(parent.pid)
        adopting.children()[0].kill()  # the client: while it lives it reaps what it started
        await until(lambda: dead in adopting.children())
        for process in adopting.children(recursive=True):
            process.kill()
        await until(lambda: dead.status() == psutil.STATUS_ZOMBIE)
        async with embedded(settings(tmp_path)) as url:
            assert await one(url, "SELECT n FROM kept") == (42,)
            assert dead.status() == psutil.STATUS_ZOMBIE, "it was started beside the zombie, not after it"
    finally:
        await leave(parent, signal.SIGKILL)
    assert await gone_within(server, 6.0)


async def test_no_server_starts_beside_a_living_child_of_a_killed_one(tmp_path: Path) -> None:
    server = Server.below(tmp_path)
    async with embedded(settings(tmp_path)):
        dead = server_process(server)
        child = dead.children()[0]
        child.suspend()
        try:
            dead.kill()
            await until(lambda: "is still in use" in server.log.read_text())
            assert not server.ready()
        finally:
            child.kill()
        await until(server.ready)
        assert server_process(server) != dead
    assert await gone_within(server, 6.0)


async def test_a_server_whose_starter_was_killed_is_waited_for(tmp_path: Path) -> None:
    server = Server.below(tmp_path)
    async with embedded(settings(tmp_path)) as url:
        # so much that its recovery takes a while
        await execute(url, "CREATE TABLE kept AS SELECT n, repeat('x', 200) FROM generate_series(1, 200000) AS n")
        os.kill(server_process(server).pid, signal.SIGKILL)
    await until(lambda: not users(tmp_path))
    starting = asyncio.create_task(server.start())
    await until(lambda: watchdog.answers(server.socket))
    begun = server_process(server)
    starting.cancel()
    async with embedded(settings(tmp_path)) as url:
        assert server_process(server) == begun
        assert await one(url, "SELECT count(*) FROM kept") == (200_000,)
    assert await gone_within(server, 6.0)


async def test_a_server_goes_though_its_starter_was_killed_before_it_was_up(tmp_path: Path) -> None:
    async with embedded(settings(tmp_path)) as url:
        await execute(url, "SELECT 1")
    server = Server.below(tmp_path)
    assert await gone_within(server, 6.0)
    starter = client(tmp_path)
    await until(lambda: watchdog.postmaster(server.directory) is not None)
    await leave(starter, signal.SIGKILL)
    assert await gone_within(server, 6.0)
    await until(lambda: not users(tmp_path))


async def test_a_killed_watchdog_is_replaced(tmp_path: Path) -> None:
    server = Server.below(tmp_path)

    def watchdogs() -> list[psutil.Process]:
        mine = {watchdog.__file__, str(server.directory)}
        found: list[psutil.Process] = []
        for each in psutil.Process().children():
            with contextlib.suppress(psutil.Error):  # one that has just ended
                if mine.issubset(each.cmdline()):
                    found.append(each)
        return found

    async with embedded(settings(tmp_path)):
        await until(lambda: len(watchdogs()) == 1)
        watchdogs()[0].kill()
        await until(lambda: not watchdogs())
        await until(lambda: len(watchdogs()) == 1)
    assert await gone_within(server, 6.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory that goes from one interleaving to the next."""
    return tmp_path_factory.mktemp("made")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(50))
async def test_the_server_is_up_when_needed_and_goes_whenever_its_clients_are_killed(
    tmp_path: Path, made: Path, seed: int
) -> None:
    random = Random(seed)
    state = made if seed % 5 else tmp_path  # at times the database itself is made meanwhile
    await asyncio.gather(*[_use_at_random(state, Random(random.random())) for _ in range(2)])
    assert await gone_within(Server.below(state), 5.0)
    await until(lambda: not users(state))


async def _use_at_random(state: Path, random: Random) -> None:
    """Come, perhaps be killed before the server is up, use it a few times, and leave or be killed."""
    await asyncio.sleep(random.uniform(0, 1.5))
    process = client(state)
    if random.random() < 0.5:
        await asyncio.sleep(random.uniform(0, 1.5))
        return await leave(process, signal.SIGKILL)
    await up(process)
    for _ in range(3):
        await asyncio.sleep(random.uniform(0, 0.5))
        await up_again(process)
    await leave(process, random.choice((None, signal.SIGKILL)))
