"""A relay in front of the API server whose connections can be cut, at once or after so many bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from ruamel.yaml import YAML

from tests.kubernetes.cluster import load

_CHUNK = 1 << 14


class Relay:
    """Passes bytes on, both ways. `cuts` counts the connections that it cut."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._open: set[asyncio.StreamWriter] = set()
        self._left: int | None = None
        self._times = 0
        self.cuts = 0

    def cut(self) -> None:
        """Cut everything that is open."""
        for writer in self._open:
            writer.transport.abort()
            self.cuts += 1
        self._open.clear()

    def cut_uploads(self, *, after: int, times: int) -> None:
        """Cut the next so many connections that carry more than so many bytes to the server."""
        self._left, self._times = after, times

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(*self._target)
        self._open.add(writer)
        up = asyncio.create_task(self._pass(reader, there_writer, writer))
        down = asyncio.create_task(self._pass(there_reader, writer, None))
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        for task in (up, down):
            task.cancel()
        await asyncio.wait((up, down))
        self._open.discard(writer)
        for end in (writer, there_writer):
            end.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: asyncio.StreamWriter | None
    ) -> None:
        passed = 0
        with contextlib.suppress(ConnectionError, OSError):
            while data := await reader.read(_CHUNK):
                passed += len(data)
                if client is not None and self._times and self._left is not None and passed > self._left:
                    self._times -= 1
                    self.cuts += 1
                    return
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def relayed(kubeconfig: Path, folder: Path) -> AsyncGenerator[tuple[Relay, dict[str, str]]]:
    """A relay to the cluster of a kubeconfig, and the environment that leads through it."""
    config = load(kubeconfig)
    cluster = config["clusters"][0]["cluster"]
    host, _, port = cluster["server"].removeprefix("https://").partition(":")
    relay = Relay(host, int(port))
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    cluster["server"] = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    through = folder / "through-relay"
    with through.open("w", encoding="utf-8") as file:
        YAML(typ="safe", pure=True).dump(config, file)
    try:
        yield relay, {"KUBECONFIG": str(through)}
    finally:
        server.close()
        relay.cut()
        await server.wait_closed()
