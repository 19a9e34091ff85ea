"""A script: listens in another network of this machine, a file of /proc, and hands the socket over. Linux.

    python -I -S listener.py NETWORK   connects to the socket `listener` of its directory, and sends one descriptor

A process of its own, since a user namespace can't be entered by one thread of many. It imports the standard library
only. `listening` runs it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import sys

_NS_GET_USERNS = 0xB701
_BACKLOG = 128
#: Where it hands the socket over, in its directory.
NAME = "listener"


def main(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as receiver:
        receiver.connect(NAME)
        network = os.open(path, os.O_RDONLY)
        owner = fcntl.ioctl(network, _NS_GET_USERNS)
        if not os.path.samestat(os.fstat(owner), os.stat("/proc/self/ns/user")):
            _enter(owner)
        _enter(network)
        with socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) as server:
            socket.send_fds(receiver, [b"+"], [server.fileno()])


def _enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except OSError as error:
        sys.exit(error.strerror)
