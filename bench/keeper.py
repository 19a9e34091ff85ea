"""`python -m bench.keeper`: holds the record store that the environment names open, and prints its URL."""

import asyncio
import sys

from evalfleet.settings import Settings
from evalfleet.store.opening import open_store


async def hold() -> None:
    async with open_store(Settings.from_environment()) as url:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


asyncio.run(hold())
