"""A pack's tools for agents in closed sandboxes: served by MCP at `$EVALFLEET_GATEWAY/mcp` while the world is open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet.execution.gateways import mounted
from evalfleet.execution.state import AttemptState
from evalfleet.plugins import mcp_server
from evalfleet.sandbox_ports import App
from evalfleet.taskpacks.world import World

#: The route of a pack's tools.
MCP = "/mcp"


@asynccontextmanager
async def serving(state: AttemptState, world: World, name: str) -> AsyncGenerator[None]:
    """Serve the tools of a world while the block runs, to the attempt whose eval serves them and nobody else.

    Where `evalfleet[mcp]` is not installed, an agent that asks is told, and its attempt is errored: not its fault.
    """
    if state.gateway is None or MCP not in state.routes:
        yield
        return
    try:
        module = await asyncio.to_thread(mcp_server)
    except ImportError as error:
        with mounted(state, MCP, _missing(world, str(error))):
            yield
        return
    async with module.mcp_app(world, name) as app:
        with mounted(state, MCP, app):
            yield


def _missing(world: World, why: str) -> App:
    async def app(
        _: MutableMapping[str, Any],
        __: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        world.fail(AttemptFailure(FailureKind.AUTHORING, "MISSING_EXTRA", why))
        await send({"type": "http.response.start", "status": 501, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": why.encode() + b"\n"})

    return app
