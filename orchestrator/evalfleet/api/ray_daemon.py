"""`python -m evalfleet.api.ray_daemon`: keeps a Ray and the record store up until it is told to end."""

from __future__ import annotations

import asyncio
import signal
import sys

from evalfleet.api.ray_engine import joined
from evalfleet.api.warm import WarmRay, keeping, publish
from evalfleet.errors import EvalfleetError, describe
from evalfleet.randomness import SystemRandom
from evalfleet.settings import Settings
from evalfleet.store.opening import open_store


async def serve(settings: Settings) -> None:
    """Hold both until SIGTERM or SIGINT. Raises EvalfleetError when one of them does not come up."""
    told = asyncio.Event()
    with keeping(settings) as place:
        async with open_store(settings), joined(None) as cluster:
            for number in (signal.SIGTERM, signal.SIGINT):  # now: Ray has put handlers of its own there
                asyncio.get_running_loop().add_signal_handler(number, told.set)
            publish(place, WarmRay.here(cluster.address, cluster.cpus, SystemRandom()))
            await told.wait()


if __name__ == "__main__":
    try:
        asyncio.run(serve(Settings.from_environment()))
    except EvalfleetError as error:
        sys.stderr.write(f"{describe(error)}\n")
        sys.exit(1)
