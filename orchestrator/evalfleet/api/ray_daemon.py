"""`python -m evalfleet.api.ray_daemon STANDBY`: keeps a Ray and the record store up until it is told to end.

Beside them it keeps a process of the module STANDBY, which carries the next run out and is replaced after it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence

from evalfleet import processes
from evalfleet.api.ray_engine import joined
from evalfleet.api.warm import WarmRay, keeping, publish
from evalfleet.clock import SystemClock
from evalfleet.errors import EvalfleetError, describe
from evalfleet.handover import standby_socket
from evalfleet.randomness import SystemRandom
from evalfleet.settings import Settings, own_environment, ray_authentication
from evalfleet.store.opening import open_store

_FOR_EVER = 1e9
_PAUSE = 30.0


async def serve(settings: Settings, standby: str) -> None:
    """Hold both until SIGTERM or SIGINT. Raises EvalfleetError when one of them does not come up."""
    told = asyncio.Event()
    given = own_environment()  # Ray adds to it
    with keeping(settings) as place:
        standby_socket(settings).unlink(missing_ok=True)  # of one that was killed
        async with open_store(settings), joined(None) as cluster:
            for number in (signal.SIGTERM, signal.SIGINT):  # now: Ray has put handlers of its own there
                asyncio.get_running_loop().add_signal_handler(number, told.set)
            publish(place, WarmRay.here(cluster.address, cluster.cpus, SystemRandom()))
            attending = asyncio.create_task(
                _attend((sys.executable, "-m", standby, cluster.address), {**given, **ray_authentication()}),
                name="evalfleet-standby",
            )
            await told.wait()
            attending.cancel()
            await asyncio.wait({attending})


async def _attend(standby: Sequence[str], environment: Mapping[str, str]) -> None:
    """One standby after the other, each once the run of the one before is over."""
    clock = SystemClock()
    while True:
        ended = await processes.run(standby, timeout=_FOR_EVER, env=environment)
        if ended.exit_code != 0:
            # Runs do without it, so this is no more than a line of the log.
            sys.stderr.write(f"the standby ended with {ended.exit_code or ended.signal}: {_last_line(ended.stderr)}\n")
            sys.stderr.flush()
            await clock.sleep(_PAUSE)


def _last_line(output: bytes) -> str:
    return output.decode(errors="replace").strip().rpartition("\n")[2]


if __name__ == "__main__":
    try:
        asyncio.run(serve(Settings.from_environment(), sys.argv[1]))
    except EvalfleetError as error:
        sys.stderr.write(f"{describe(error)}\n")
        sys.exit(1)
