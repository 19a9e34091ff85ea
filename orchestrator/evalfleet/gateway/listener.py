"""Opening the gateway in a sandbox's network: the attempt's routes, and its tunnel when its plan allows hosts."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

import uvicorn
from starlette.types import ASGIApp

from evalfleet.gateway.app import attempt_app
from evalfleet.gateway.tunnel import Tunnel
from evalfleet.model.destination import Destination
from evalfleet.ports import Random
from evalfleet.sandbox_ports import Listening, Routes

#: Seconds that answers under way may take once an attempt is over.
_FAREWELL = 1
TOKEN_BITS = 192


class AttemptGateway:
    """The gateway of one attempt. `environment` is what commands in the sandbox are to find it by."""

    def __init__(
        self, environment: Mapping[str, str], server: uvicorn.Server, listener: socket.socket, tunnel: Tunnel | None
    ) -> None:
        self.environment = environment
        self._server: uvicorn.Server | None = server
        self._listener = listener
        self._tunnel = tunnel

    @property
    def refused(self) -> Sequence[str]:
        """The hosts that the attempt asked for and did not get."""
        return () if self._tunnel is None else self._tunnel.refused

    async def close(self) -> None:
        """Answer nothing more. May be called twice."""
        server, self._server = self._server, None
        if server is not None:
            await server.shutdown(sockets=[self._listener])
        if self._tunnel is not None:
            await self._tunnel.close()


class GatewayRoom:
    """The `Gateway` of this process's attempts."""

    def __init__(self, random: Random) -> None:
        self._random = random

    async def open(self, sandbox: Listening, allow: Sequence[str], routes: Routes) -> AttemptGateway:
        """See `Gateway.open`."""
        allowed = [Destination.of(each) for each in allow]
        token = f"{self._random.bits(TOKEN_BITS):048x}"
        async with AsyncExitStack() as opened:
            inlet = await sandbox.listen()
            listener = opened.enter_context(socket.socket(fileno=inlet.descriptor))
            environment = {"EVALFLEET_GATEWAY": f"http://127.0.0.1:{inlet.port}/{token}"}
            tunnel: Tunnel | None = None
            if allowed:
                inlet = await sandbox.listen()
                way_out = opened.enter_context(socket.socket(fileno=inlet.descriptor))
                environment |= _proxied(f"http://evalfleet:{token}@127.0.0.1:{inlet.port}")
                tunnel = Tunnel(way_out, token, allowed)
                opened.push_async_callback(tunnel.close)
                await tunnel.start()
            server = await serve(listener, attempt_app(token, routes))
            opened.pop_all()  # all of it stands, and is the gateway's to close
        return AttemptGateway(environment, server, listener, tunnel)


async def serve(listener: socket.socket, app: ASGIApp) -> uvicorn.Server:
    """Answer requests on a socket that is bound, until the server's `shutdown`."""
    listener.setblocking(False)
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=_FAREWELL,
    )
    config.load()
    server = uvicorn.Server(config)
    # not `serve`, which takes over the signals of the process
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    return server


def _proxied(proxy: str) -> dict[str, str]:
    variables = {"http_proxy": proxy, "https_proxy": proxy, "no_proxy": "127.0.0.1,localhost"}
    return variables | {name.upper(): value for name, value in variables.items()}
