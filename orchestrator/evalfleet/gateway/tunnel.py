"""The way out of a closed sandbox to the hosts that its plan allows: an HTTP proxy that knows CONNECT only."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import socket
from collections.abc import Sequence

import h11

from evalfleet.model.destination import Destination, admitted, is_ours

#: Seconds until a host has to answer, and for the client to say what it wants.
_PATIENCE = 30.0
_PIECE = 1 << 16
_HEAD_LIMIT = 1 << 14


class Tunnel:
    """One attempt's proxy on a listening socket. Clients show the attempt's token as the proxy's password."""

    def __init__(self, listener: socket.socket, token: str, allowed: Sequence[Destination]) -> None:
        self._listener = listener
        self._token = token
        self._allowed = tuple(allowed)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        #: What was refused, as `host:port`, the first hundred.
        self.refused: list[str] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, sock=self._listener, limit=_PIECE)

    async def close(self) -> None:
        """Cut every connection. May be called twice."""
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        self._listener.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_LIMIT)
                status, upstream = await self._answer(await _request(connection, reader))
                writer.write(connection.send(h11.Response(status_code=status, headers=_headers(status))) or b"")
                if upstream is None:
                    writer.write(connection.send(h11.EndOfMessage()) or b"")
                    await writer.drain()
                    return
            early, _ = connection.trailing_data
            await _join((reader, writer), upstream, early)
        except (OSError, TimeoutError, h11.ProtocolError):
            return  # a client that says nothing sensible, or is gone, hears nothing
        finally:
            writer.close()

    async def _answer(
        self, request: h11.Request
    ) -> tuple[int, tuple[asyncio.StreamReader, asyncio.StreamWriter] | None]:
        if not hmac.compare_digest(_password(request), self._token.encode()):
            return 407, None
        if request.method != b"CONNECT":
            return 405, None
        host, _, port = request.target.decode("ascii", "replace").rpartition(":")
        host = host.strip("[]")
        if not port.isdecimal() or not admitted(self._allowed, host, int(port)):
            if len(self.refused) < 100:
                self.refused.append(request.target.decode("ascii", "replace")[:200])
            return 403, None
        try:
            return 200, await _connect(host, int(port))
        except PermissionError:
            return 403, None
        except OSError:
            return 502, None


async def _request(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request:
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is not h11.NEED_DATA:
            raise h11.RemoteProtocolError("no request")
        connection.receive_data(await reader.read(_PIECE))


def _password(request: h11.Request) -> bytes:
    for name, value in request.headers:
        if name == b"proxy-authorization" and value.lower().startswith(b"basic "):
            with contextlib.suppress(ValueError):
                return base64.b64decode(value[6:], validate=True).rpartition(b":")[2]
    return b""


def _headers(status: int) -> list[tuple[str, str]]:
    if status == 200:
        return []
    authenticate = [("Proxy-Authenticate", "Basic")] if status == 407 else []
    return [*authenticate, ("Content-Length", "0"), ("Connection", "close")]


async def _connect(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises PermissionError when the name stands for this machine, OSError when it can't be reached."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    address = str(found[0][4][0])
    if is_ours(address, host):
        raise PermissionError(f"{host} is {address}")
    return await asyncio.open_connection(address, port)


async def _join(
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    early: bytes,
) -> None:
    """Carry bytes both ways until one side is done with both, or breaks."""
    upstream[1].write(early)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_pump(client[0], upstream[1]))
            group.create_task(_pump(upstream[0], client[1]))
    except* OSError:
        pass
    finally:
        upstream[1].close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while piece := await source.read(_PIECE):
        sink.write(piece)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()
