"""Sockets that listen in the network of a sandbox whose processes are on this machine. Linux."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path

from evalfleet.errors import AttemptFailure, FailureKind, InfrastructureError
from evalfleet.sandbox_ports import Command, Inlet, Spawner
from evalfleet_sandboxes import listener

_SECONDS = 60.0


async def listen_in(network: str, spawner: Spawner, folder: Path) -> Inlet:
    """A TCP socket that listens on 127.0.0.1 of a network, on a free port.

    `network` is its file in /proc, `folder` a directory of this machine that nobody else uses meanwhile. Raises
    AttemptFailure SANDBOX_UNREACHABLE where the network can't be entered from here.
    """
    with contextlib.ExitStack() as opened:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        opened.callback(os.close, directory)
        place = f"/proc/self/fd/{directory}/{listener.NAME}"  # a socket's path may have 107 bytes only
        receiver = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        receiver.bind(place)
        opened.callback(os.unlink, place)
        receiver.listen(1)
        receiver.setblocking(False)
        argv = (sys.executable, "-I", "-S", listener.__file__, network)
        try:
            result = await spawner.run(Command(argv=argv, cwd=str(folder), timeout=_SECONDS), base_env={})
        except (InfrastructureError, OSError) as error:
            raise _unreachable(str(error)) from error
        if not result.ok:
            raise _unreachable(result.stderr.decode("utf-8", "replace").strip() or "no answer")
        sender, _ = receiver.accept()
        with sender:
            _, descriptors, _, _ = socket.recv_fds(sender, 1, 1)
        os.set_inheritable(descriptors[0], False)
        return Inlet(descriptor=descriptors[0], port=_port(descriptors[0]))


def _port(descriptor: int) -> int:
    with socket.socket(fileno=os.dup(descriptor)) as listening:
        return int(listening.getsockname()[1])


def _unreachable(why: str) -> AttemptFailure:
    message = f"the network of the sandbox can't be entered from here: {why}"
    return AttemptFailure(FailureKind.SANDBOX, "SANDBOX_UNREACHABLE", message)
