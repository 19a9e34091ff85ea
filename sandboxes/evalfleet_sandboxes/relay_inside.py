"""A script: carries the connections of a network that can't be entered from outside, over its stdin and stdout.

    python3 -I -S -c BOOT SIZE PORT   and on its stdin the SIZE bytes of this file, then frames

It listens on 127.0.0.1, on PORT or, where that is 0, on a free one, and ends with its stdin, or when it hears nothing
for a while. It needs Python 3.7 and imports the standard library only. `relay` has the other end of the stream.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import sys
from collections.abc import Iterator

#: What starts this file, which is too long for the line of a request.
BOOT = """import os, sys
text, size = b"", int(sys.argv[1])
while len(text) < size:
    piece = os.read(0, size - len(text))
    text += piece or sys.exit("its script was cut off")
exec(compile(text, "relay", "exec"))
"""

#: A frame: its kind, the connection it is about, and a number, which is a size where DATA follows.
HEAD = struct.Struct(">BII")
#: HELLO has the port. END: this side has said all; RESET: there is nothing more to say or hear. CREDIT: how many
#: bytes more may be sent. PING is answered with one.
HELLO, OPEN, DATA, END, RESET, CREDIT, PING = range(7)
#: How many bytes one side sends of a connection before the other has got rid of some; the most of one frame.
WINDOW, PIECE = 1 << 17, 1 << 14
#: Connections at once; further ones wait to be accepted.
STREAMS = 64
#: Seconds in which nothing that happens means that nobody is there.
SILENCE = 30.0

_BACKLOG = 128
_FULL = 1 << 18
#: Tenths of a second in which whoever had the port before has to leave it.
_PATIENCE = 400


class Frames:
    """Takes what comes of a stream apart: kind, connection, number and bytes. Raises ValueError for what is none."""

    def __init__(self) -> None:
        self._held = bytearray()

    def take(self, data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
        self._held += data
        while len(self._held) >= HEAD.size:
            kind, stream, number = HEAD.unpack_from(self._held)
            size = number if kind == DATA else 0
            if kind > PING or size > PIECE:
                raise ValueError("what came is no frame")
            end = HEAD.size + size
            if len(self._held) < end:
                return
            body = bytes(self._held[HEAD.size : end])
            del self._held[:end]
            yield kind, stream, number, body


class Connection:
    """One client. `credit` is what may be sent of it now, `waiting` what it is to hear."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.credit = WINDOW
        self.waiting = bytearray()
        self.said_all = False
        self.heard_all = False

    def fileno(self) -> int:
        return self.client.fileno()

    def reset(self) -> None:
        """End it so that the client can't take it for an end."""
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.client.close()


class Inside:
    """The inner end of a relay: `run` it until the stream of frames ends."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._frames = Frames()
        self._open: dict[int, Connection] = {}
        self._numbers = 0
        self._out = bytearray()

    def run(self) -> None:
        self._say(HELLO, 0, self._listener.getsockname()[1])
        while self._turn():
            pass
        for connection in self._open.values():
            connection.reset()

    def _turn(self) -> bool:
        """Wait for something to do and do it; whether the stream goes on."""
        sources: list[int | socket.socket | Connection] = [0]
        if len(self._open) < STREAMS:
            sources.append(self._listener)
        if len(self._out) < _FULL:
            sources += [each for each in self._open.values() if each.credit and not each.said_all]
        sinks: list[int | Connection] = [each for each in self._open.values() if each.waiting]
        if self._out:
            sinks.append(1)
        ready, free, _ = select.select(sources, sinks, [], SILENCE)
        if not ready and not free:
            return False
        if 1 in free:
            self._flush()
        if 0 in ready and not self._hear():
            return False
        if self._listener in ready:
            self._accept()
        for number, connection in list(self._open.items()):
            try:
                if connection in free:
                    self._tell(number, connection)
                if connection in ready:
                    self._read(number, connection)
            except OSError:
                self._drop(number)
        return True

    def _hear(self) -> bool:
        data = os.read(0, 1 << 16)
        for kind, number, count, body in self._frames.take(data):
            connection = self._open.get(number)
            if kind == PING:
                self._say(PING, 0, 0)
            elif connection is None:
                continue  # it was reset meanwhile
            elif kind == DATA:
                connection.waiting += body
            elif kind == CREDIT:
                connection.credit += count
            elif kind == END:
                connection.heard_all = True
                self._settle(number, connection)
            elif kind == RESET:
                self._open.pop(number).reset()
        return bool(data)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return  # it went away again
        client.setblocking(False)
        self._numbers += 1
        self._open[self._numbers] = Connection(client)
        self._say(OPEN, self._numbers, 0)

    def _read(self, number: int, connection: Connection) -> None:
        data = connection.client.recv(min(PIECE, connection.credit))
        connection.credit -= len(data)
        if data:
            self._say(DATA, number, len(data), data)
        else:
            connection.said_all = True
            self._say(END, number, 0)
            self._settle(number, connection)

    def _tell(self, number: int, connection: Connection) -> None:
        told = connection.client.send(connection.waiting[:WINDOW])
        del connection.waiting[:told]
        self._say(CREDIT, number, told)
        self._settle(number, connection)

    def _settle(self, number: int, connection: Connection) -> None:
        """Pass on that one side has said all, once all of it was told; and forget a connection that is over."""
        if connection.heard_all and not connection.waiting:
            if connection.said_all:
                self._open.pop(number).client.close()
            else:
                try:
                    connection.client.shutdown(socket.SHUT_WR)
                except OSError:
                    self._drop(number)

    def _drop(self, number: int) -> None:
        connection = self._open.pop(number, None)
        if connection is not None:
            connection.reset()
            self._say(RESET, number, 0)

    def _say(self, kind: int, number: int, count: int, body: bytes = b"") -> None:
        self._out += HEAD.pack(kind, number, count) + body
        self._flush()

    def _flush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            del self._out[: os.write(1, self._out)]


def listening(port: int) -> socket.socket:
    """A socket that listens on 127.0.0.1. Raises OSError when the port is not free for long."""
    tries = 0
    while True:
        server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port))
            server.listen(_BACKLOG)
            server.setblocking(False)
            return server
        except OSError:
            server.close()
            tries += 1
            if tries > _PATIENCE:
                raise
            select.select((), (), (), 0.1)


def main(port: int) -> None:
    os.set_blocking(1, False)
    Inside(listening(port)).run()


if __name__ == "__main__":
    try:
        main(int(sys.argv[2]))
    except OSError as error:
        sys.exit(str(error))
