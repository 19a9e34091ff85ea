"""`python -m evalfleet.api.child FILE`: one attempt alone in this process, its job on standard input.

The sealed attempt is written to FILE whole or not at all; whatever the agent prints stays on its own streams.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from evalfleet.api.blueprint import RunBlueprint
from evalfleet.api.budgets import attempt_purse
from evalfleet.api.building import open_workshop
from evalfleet.api.hidden_output import hide_in_output
from evalfleet.api.lanes import LaneAttempt, begun_file
from evalfleet.processes import limit_memory
from evalfleet.scheduling.messages import Grant


async def run(result: Path, job: bytes) -> None:
    """Run the attempt and leave it, sealed, in `result`."""
    blueprint, grant = msgspec.msgpack.decode(job, type=tuple[RunBlueprint, Grant])
    if blueprint.memory is not None:
        limit_memory(blueprint.memory)
    workshop = await open_workshop(blueprint, port=False)
    hide_in_output(workshop.secrets)
    begun_file(result).touch()
    lane = LaneAttempt(
        grant, workshop.executor, workshop.encoder, workshop.clock, workshop.failpoint, workshop.recordings
    )
    lane.tell_when_over(None if workshop.own is None else workshop.own.tell)
    lane.pay_with(attempt_purse(blueprint, grant, workshop.price, None))
    sealed = await lane.run()
    partial = result.with_suffix(".part")
    partial.write_bytes(msgspec.msgpack.encode(sealed))
    partial.replace(result)
    await workshop.close()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), sys.stdin.buffer.read()))
    # Author code may have left threads behind that would keep the interpreter from ending.
    sys.stdout.flush()
    os._exit(0)
