"""Who holds a run: this process, and what can be known of another one."""

from __future__ import annotations

import os
import socket
from dataclasses import replace

from evalfleet.model.ids import run_id_from
from evalfleet.model.report import RunInfo
from evalfleet.model.verdict import RunStatus
from evalfleet.ports import Holder, Random
from evalfleet.processes import process_alive


def this_process(random: Random) -> Holder:
    """A new holder for runs of this process."""
    return Holder(id=run_id_from(random.bits(50)), host=socket.gethostname(), pid=os.getpid())


def is_dead(info: RunInfo) -> bool:
    """Whether the run's holder is known to be dead: its process was on this machine and is gone."""
    holder = info.holder
    return (
        holder is not None
        and holder.get("host") == socket.gethostname()
        and not process_alive(int(holder.get("pid", 0)))
    )


def seen_from_here(info: RunInfo) -> RunInfo:
    """The run with `interrupted` set at once when its holder died on this machine, not only by a stale heartbeat."""
    if info.status is RunStatus.RUNNING and not info.interrupted and is_dead(info):
        return replace(info, interrupted=True)
    return info
