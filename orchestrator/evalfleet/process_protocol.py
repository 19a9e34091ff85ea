"""What a worker, its launcher, and the processes that the launcher forks say to each other.

    worker -> launcher, warden   an ask of fixed length, with the socket to talk on about what is asked for
    worker -> supervisor         a request for a command, with its three streams; `END`
    worker -> warden             a request for an enclosure, with the files through which control groups are entered
    back                         reports, a line each

Requests are marshalled: both ends are the same interpreter. It stands on the standard library alone and little of
that, since the launcher is forked with it.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import socket
import struct
import sys
from collections.abc import Mapping, Sequence

#: What a supervisor reports: `exit 0`, `signal 9`, `error 2 program` (an errno, and what it is about: program, cwd,
#: supervisor or namespaces), and `gone` once nothing of the command's tree is left.
EXIT, SIGNAL, ERROR, GONE = "exit", "signal", "error", "gone"
#: What a warden and an enclosure report when they are ready, the latter with descriptors of its root and its network.
UP = "up"

#: What is asked for, and for a supervisor in an enclosure of what user and group.
ASK = struct.Struct("!cqq")
SUPERVISOR, WARDEN, ENCLOSURE = b"+", b"@", b"#"
_LENGTH = struct.Struct("!I")
_INT = struct.Struct("i")
#: `recv_fds` of the standard library ignores its flags.
_NOT_INHERITED = socket.MSG_CMSG_CLOEXEC if sys.platform == "linux" else 0
#: Sent in place of a request: end what is left of the last one.
END = _LENGTH.pack(0)
#: The length of what announces a request.
HEADER = _LENGTH.size

User = tuple[int, int]
#: The fields of `enclosure_ports.Mount`, in their order; no source is b"".
Mount = tuple[bytes, bytes, int, int | None, list[bytes]]
#: The fields of `enclosure_ports.Enclosure`, in their order, but for the control groups.
Enclosure = tuple[User | None, list[Mount], bool, bool]
Request = tuple[list[bytes], bytes, dict[bytes, bytes]]


def encode_ask(kind: bytes, user: User | None = None) -> bytes:
    return ASK.pack(kind, *(user or (-1, -1)))


def encode_template(pid: int) -> bytes:
    """For a warden: after which process it makes namespaces."""
    return _with_length(marshal.dumps(pid))


def encode_enclosure(enclosure: Enclosure) -> bytes:
    return _with_length(marshal.dumps(enclosure))


def encode_command(argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> bytes:
    environment = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    request: Request = ([os.fsencode(part) for part in argv], os.fsencode(cwd), environment)
    return _with_length(marshal.dumps(request))


def _with_length(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def receive(sender: socket.socket, size: int, descriptors: int) -> tuple[bytes, list[int]]:
    """Up to `size` bytes and the descriptors that came with them, not to be inherited by what we start."""
    message, control, _, _ = sender.recvmsg(size, socket.CMSG_LEN(descriptors * _INT.size), _NOT_INHERITED)
    received = [
        descriptor
        for level, kind, data in control
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS
        for (descriptor,) in _INT.iter_unpack(data[: len(data) // _INT.size * _INT.size])
    ]
    if not _NOT_INHERITED:
        for descriptor in received:
            os.set_inheritable(descriptor, False)
    return message, received


def receive_body(sender: socket.socket, header: bytes) -> bytes | None:
    """What a header announces; None when the sender is gone."""
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    body = bytearray()
    while len(body) < length:
        chunk = sender.recv(length - len(body))
        if not chunk:
            return None
        body += chunk
    return bytes(body)


def send_error(receiver: socket.socket, error: OSError, about: str) -> None:
    """Report what kept us from what was asked for."""
    with contextlib.suppress(ConnectionError):  # nobody wants to know any more
        receiver.sendall(f"{ERROR} {error.errno} {about}\n".encode())
