"""A small local HTTP/1.1 server that answers what a function says, and misbehaves on order. For tests and examples."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

_HEAD_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client sent. Header names are lower-case; `target` is the path with its query."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON. Raises ValueError when it is not."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the server answers. A tuple of bytes goes out in chunks of just that size.

    `delay` is seconds before the first byte, `gap` between chunks; `cut` breaks the connection after the last
    chunk; `silent` never answers; `drop` breaks the connection at once.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | tuple[bytes, ...] = b""
    delay: float = 0.0
    gap: float = 0.0
    cut: bool = False
    silent: bool = False
    drop: bool = False


Handler = Callable[[Request], Reply | Awaitable[Reply]]


def json_reply(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """A JSON answer."""
    body = json.dumps(document).encode("ascii")
    return Reply(status=status, headers={"content-type": "application/json", **(headers or {})}, body=body)


class HttpEndpoint:
    """`async with HttpEndpoint(handler) as endpoint:` serves on a free loopback port at `endpoint.url`.

    `requests` keeps every request in order of arrival, unless `keep` is false.
    """

    def __init__(self, handler: Handler, *, keep: bool = True) -> None:
        self._keep = keep
        self.requests: list[Request] = []
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()

    @property
    def url(self) -> str:
        """`http://127.0.0.1:<port>`. Raises RuntimeError before the server listens."""
        if self._server is None:
            raise RuntimeError("the endpoint does not listen; use `async with`")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=_HEAD_LIMIT)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing.set()
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._answer(reader, writer):
                    pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False when the connection ends with it."""
        request = await _read_request(reader)
        if self._keep:
            self.requests.append(request)
        made = self._handler(request)
        reply = await made if isinstance(made, Awaitable) else made
        if reply.drop:
            writer.transport.abort()
            return False
        await self._pause(reply.delay)
        if reply.silent:
            await self._closing.wait()
            return False
        writer.write(_head(reply))
        if isinstance(reply.body, bytes):
            writer.write(reply.body)
        else:
            await self._stream(reply, reply.body, writer)
        await writer.drain()
        return not reply.cut

    async def _stream(self, reply: Reply, chunks: tuple[bytes, ...], writer: asyncio.StreamWriter) -> None:
        for chunk in filter(None, chunks):
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            await writer.drain()
            await self._pause(reply.gap)
        if not reply.cut:
            writer.write(b"0\r\n\r\n")

    async def _pause(self, seconds: float) -> None:
        """Wait, but not for an endpoint that closes."""
        if seconds > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), seconds)


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    start, *lines = head.split("\r\n")
    method, target, _ = start.split(" ", 2)
    headers: dict[str, str] = {}
    for line in filter(None, lines):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method=method, target=target, headers=headers, body=body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    chunks: list[bytes] = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(chunks)


def _head(reply: Reply) -> bytes:
    headers = dict(reply.headers)
    if isinstance(reply.body, bytes):
        headers["content-length"] = str(len(reply.body) + reply.cut)  # one more than comes: the cut shows
    else:
        headers["transfer-encoding"] = "chunked"
    lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
