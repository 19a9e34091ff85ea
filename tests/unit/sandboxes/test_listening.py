"""Listening in the network of a process: of one that is there, and of one that is not."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.processes import SystemSpawner
from evalfleet_sandboxes.listening import listen_in

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="networks of other processes are entered on Linux only")


async def test_a_network_that_is_gone_is_unreachable(tmp_path: Path) -> None:
    ended = await asyncio.create_subprocess_exec("true")
    await ended.wait()
    spawner = SystemSpawner()
    try:
        with pytest.raises(AttemptFailure, match="can't be entered from here: No such file or directory") as caught:
            await listen_in(f"/proc/{ended.pid}/ns/net", spawner, tmp_path)
    finally:
        await spawner.close()
    assert (caught.value.kind, caught.value.code) == (FailureKind.SANDBOX, "SANDBOX_UNREACHABLE")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may enter its own network again")
async def test_what_listens_there_is_a_socket_of_ours(tmp_path: Path) -> None:
    spawner = SystemSpawner()
    try:
        inlet = await listen_in("/proc/self/ns/net", spawner, tmp_path)
        with socket.socket(fileno=inlet.descriptor) as server:
            with socket.create_connection(("127.0.0.1", inlet.port)) as client:
                client.sendall(b"hello")
                accepted, _ = server.accept()
                with accepted:
                    assert accepted.recv(5) == b"hello"
            assert not os.get_inheritable(server.fileno())
    finally:
        await spawner.close()
