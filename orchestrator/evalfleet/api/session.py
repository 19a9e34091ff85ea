"""One opened record store and everything that is read through it; handles close it when they are done."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Self

from evalfleet.settings import Settings
from evalfleet.store.artifacts import FileArtifacts
from evalfleet.store.opening import open_store
from evalfleet.store.reader import Reader


class Session:
    """An open record store. `url` is where it listens; `close` releases reader and server."""

    def __init__(self, settings: Settings, url: str, stack: AsyncExitStack) -> None:
        self.settings = settings
        self.url = url
        self.artifacts = FileArtifacts(settings.artifacts)
        self.reader = Reader(url, self.artifacts)
        self._stack = stack

    @classmethod
    async def open(cls, settings: Settings | None = None) -> Self:
        """Open the store that the environment names, or the embedded one.

        Raises StoreError when it can't be reached, ConfigurationError when this machine can't run a server.
        """
        chosen = Settings.from_environment() if settings is None else settings
        stack = AsyncExitStack()
        url = await stack.enter_async_context(open_store(chosen))
        return cls(chosen, url, stack)

    async def close(self) -> None:
        await self.reader.close()
        await self._stack.aclose()
