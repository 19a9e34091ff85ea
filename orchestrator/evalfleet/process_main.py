"""What runs beside each worker: a launcher whose children are supervisors, and wardens of enclosures."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys

from evalfleet.process_children import shrug
from evalfleet.process_launcher import Launcher
from evalfleet.process_protocol import WARDEN, User
from evalfleet.process_supervisor import supervise
from evalfleet.process_warden import be_warden


def main(worker: int) -> None:
    """Serve the worker's requests, which come through standard input, until it ends them or dies."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # whatever a library of the worker left inheritable
    death = _death_of(worker)
    signal.signal(signal.SIGCHLD, shrug)  # all forks inherit it

    def serve(control: socket.socket, kind: bytes, _user: User) -> None:
        if kind == WARDEN:
            be_warden(control, death)
        else:
            supervise(control, death)

    launcher = Launcher(socket.socket(fileno=0), death, serve)
    gc.disable()  # forks live for a moment, and make no cycles
    gc.freeze()
    launcher.run()


def _death_of(worker: int) -> int | None:
    """A descriptor that becomes readable when the worker dies, even while a fork of it holds our sockets open."""
    if sys.platform != "linux":
        return None
    try:
        descriptor = os.pidfd_open(worker)
    except OSError:
        return None  # refused by an old kernel or a filter: the end of the socket has to do
    if os.getppid() != worker:
        sys.exit()  # it died before we looked
    return descriptor
