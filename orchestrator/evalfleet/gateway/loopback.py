"""A listener on this machine's loopback, for agents that run in the worker or beside it: one for all its attempts."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from evalfleet.gateway.app import attempt_app, attempts_app
from evalfleet.gateway.listener import TOKEN_BITS, serve
from evalfleet.ports import Random
from evalfleet.sandbox_ports import Routes


class LoopbackGateway:
    """`async with LoopbackGateway(random) as gateway:` listens on a free port until the block ends."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._attempts: dict[str, ASGIApp] = {}
        self._listener: socket.socket | None = None
        self._server: uvicorn.Server | None = None

    async def __aenter__(self) -> LoopbackGateway:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._server = await serve(self._listener, attempts_app(self._attempts))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None and self._listener is not None
        await self._server.shutdown(sockets=[self._listener])

    @contextmanager
    def serving(self, routes: Routes) -> Generator[str]:
        """Serve an attempt's routes while the block runs: the address that they lie below, with its token."""
        assert self._listener is not None
        token = f"{self._random.bits(TOKEN_BITS):048x}"
        self._attempts[token] = attempt_app(token, routes)
        try:
            yield f"http://127.0.0.1:{self._listener.getsockname()[1]}/{token}"
        finally:
            del self._attempts[token]
