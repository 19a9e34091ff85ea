"""A script: becomes a program whose stdin and stdout are a socket of a directory.

    python -I -S relay_start.py SOCKET PROGRAM ARGUMENTS…

It imports the standard library only. `container_relay` runs it.
"""

from __future__ import annotations

import os
import socket
import sys


def main(path: str, argv: list[str]) -> None:
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.connect(path)
    os.dup2(stream.fileno(), 0)
    os.dup2(stream.fileno(), 1)
    stream.close()
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
