"""The one way to a usable record store: the configured server or the embedded one, at this version's schema."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from evalfleet.settings import Settings
from evalfleet.store.embedded import embedded
from evalfleet.store.schema import ensure_schema


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncGenerator[str]:
    """The URL of a record store that is up and migrated while the block runs.

    Raises StoreError when it can't be reached, ConfigurationError when this machine can't run a server.
    """
    if settings.database_url is not None:
        await ensure_schema(settings.database_url)
        yield settings.database_url
        return
    async with embedded(settings) as url:
        await ensure_schema(url)
        yield url
