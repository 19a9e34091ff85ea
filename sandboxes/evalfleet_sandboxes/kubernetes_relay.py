"""How the inner end of a relay is started for a Pod: in the container beside the sandbox's, through the API server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from evalfleet_sandboxes.kubernetes_api import Cluster, Refused
from evalfleet_sandboxes.kubernetes_pods import RELAY
from evalfleet_sandboxes.relay import Start
from evalfleet_sandboxes.relay_session import CutError, Pipe


def relay_of(cluster: Cluster, pod: str) -> Start:
    """Starts relays of a Pod."""

    @asynccontextmanager
    async def start(argv: tuple[str, ...]) -> AsyncGenerator[Pipe]:
        try:
            async with cluster.attach(pod, RELAY, argv) as attached:
                yield attached
        except Refused as error:  # the node may have been busy, and a Pod that is gone is told by others
            raise CutError(str(error)) from error

    return start
