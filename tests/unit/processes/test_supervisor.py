"""What a supervisor tells of the deaths that it hears of."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from evalfleet.process_protocol import encode_command
from evalfleet.process_supervisor import Supervisor


@pytest.fixture
def talk() -> Iterator[tuple[socket.socket, Supervisor]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reading, writing = os.pipe()
    yield ours, Supervisor(theirs, reading)
    for descriptor in (reading, writing):
        os.close(descriptor)
    ours.close()
    theirs.close()


def said(ours: socket.socket) -> bytes:
    try:
        return ours.recv(1000)
    except BlockingIOError:
        return b""


def test_a_death_between_two_commands_is_not_told(talk: tuple[socket.socket, Supervisor]) -> None:
    ours, supervisor = talk
    supervisor.report([(999_999, 0)], False)  # a supervisor beside it that was let go, when no command runs
    assert said(ours) == b""
    null = os.open(os.devnull, os.O_RDWR)
    request = encode_command(("sh", "-c", "exit 3"), "/", {"PATH": os.defpath})
    socket.send_fds(ours, [request], [null] * 3)
    assert supervisor.hear()
    pid, status = os.waitpid(-1, 0)
    supervisor.report([(999_998, 0)], True)  # another one, while the command runs
    assert said(ours) == b""
    supervisor.report([(pid, status)], False)
    assert said(ours) == b"exit 3\ngone\n"
    supervisor.report([(999_997, 0)], False)
    assert said(ours) == b""
    os.close(null)
