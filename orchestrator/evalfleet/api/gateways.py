"""The gateway of a worker, made when the first attempt needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from evalfleet.model.model_route import ModelUpstream
from evalfleet.plugins import gateway_room, model_route
from evalfleet.ports import ModelDesk, Random
from evalfleet.sandbox_ports import App, Gateway, Listening, OpenGateway, Routes


class GatewayOnDemand:
    """A `Gateway` whose server is imported beside the loop, when it is first needed."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._room: Gateway | None = None
        self._making = asyncio.Lock()

    async def open(self, sandbox: Listening, allow: Sequence[str], routes: Routes) -> OpenGateway:
        """See `Gateway.open`."""
        async with self._making:
            if self._room is None:
                self._room = await asyncio.to_thread(gateway_room, self._random)
        return await self._room.open(sandbox, allow, routes)


def model_app(upstream: ModelUpstream, desk: ModelDesk) -> App:
    """The route of an attempt's model, imported beside the loop when it is first asked."""
    route: App | None = None

    async def app(
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        nonlocal route
        if route is None:
            make = await asyncio.to_thread(model_route)
            route = route or make(upstream, desk)  # several may have asked at once
        await route(scope, receive, send)

    return app
