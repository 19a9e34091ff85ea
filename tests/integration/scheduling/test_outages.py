"""The record store goes away under a run that goes on: nothing is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from evalfleet.ports import Holder
from evalfleet.store import watchdog
from evalfleet.store.creation import create_run
from evalfleet.store.schema import ensure_schema
from evalfleet.store.server import Server
from tests.integration.scheduling.working import LANES, SECONDS, Starts, work
from tests.integration.store.samples import a_run
from tests.integration.store.sql import execute, one
from tests.postgres import database_url

pytestmark = pytest.mark.xdist_group("outages")  # one server for all

CASES = 80
ME = Holder(id="me", host="here", pid=1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that stays down when it is stopped: nobody watches over it."""
    server = Server.below(tmp_path_factory.mktemp("state"))
    asyncio.run(server.start())
    yield server
    watchdog.stop(server.directory, server.socket)


@pytest.fixture
async def url(server: Server, request: pytest.FixtureRequest) -> str:
    """The URL of a new database of that server."""
    name = "t_" + hashlib.sha256(request.node.name.encode()).hexdigest()[:8]
    main = f"postgresql://{server.user}:{server.password()}@/postgres?host={quote(str(server.sockets), safe='')}"
    await execute(main, f"CREATE DATABASE {name}")
    url = database_url(main, name)
    await ensure_schema(url)
    return url


async def stop(server: Server) -> None:
    await asyncio.to_thread(watchdog.stop, server.directory, server.socket)


async def survives(url: str, starts: Starts, outage: Callable[[], Awaitable[None]], *, lease: float) -> None:
    """Run `outage` in the middle of a run and see it complete, each case started and settled once."""
    await create_run(url, a_run(CASES))
    running = asyncio.create_task(work(url, starts, ME, lease=lease))
    while len(starts) < CASES // 3:
        assert not running.done(), "the run ended before the outage"
        await asyncio.sleep(0.01)
    await outage()
    assert not running.done(), "the run ended during the outage"
    end = await running
    assert (end.fenced, end.status) == (False, "completed")
    assert await one(url, "SELECT status::text, epoch, attempts FROM runs") == ("completed", 1, CASES)
    assert await one(url, "SELECT count(*), count(DISTINCT ordinal) FROM settlements") == (CASES, CASES)
    assert await one(url, "SELECT count(*) FROM attempts WHERE outcome <> 'completed'") == (0,)
    assert sorted(start.case for start in starts.all()) == list(range(CASES))


async def test_a_restarted_server_is_waited_for(server: Server, url: str, tmp_path: Path) -> None:
    async def restart() -> None:
        await stop(server)
        await server.start()

    await survives(url, Starts(tmp_path / "starts"), restart, lease=30.0)


@pytest.mark.parametrize(
    ("seconds", "lease"),
    [
        pytest.param(3.0, 30.0, id="shorter than a lease"),
        pytest.param(3.0, 2.0, id="longer than a lease"),
        pytest.param(20.0, 30.0, id="twenty seconds", marks=pytest.mark.soak),
    ],
)
async def test_grants_pause_while_the_server_is_away(
    server: Server, url: str, tmp_path: Path, seconds: float, lease: float
) -> None:
    starts = Starts(tmp_path / "starts")

    async def outage() -> None:
        await stop(server)
        stopped_at = time.time()
        await asyncio.sleep(seconds)
        # A lane is taken until its attempt is committed, so no more can start than there are lanes.
        late = [start for start in starts.all() if start.at > stopped_at]
        assert len(late) <= LANES
        assert not [start for start in late if start.at > stopped_at + 4 * SECONDS]
        await server.start()

    await survives(url, starts, outage, lease=lease)
