"""W5, open results: what W1 left behind, aggregated, shown, read whole and exported."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

from bench.figures import PRODUCT, Figure, figure
from bench.peers.inspect_ai import InspectAI
from bench.products import ORCHESTRATE
from bench.workloads.setting import Setting
from bench.workloads.w1 import NullSweep

NAME = "W5"


async def open_results(setting: Setting, sweep: NullSweep, number: int) -> AsyncIterator[Figure]:
    """Read evalfleet's largest run and the one nearest to Inspect's in size; whole, also what has one row."""
    largest, logs = max(sweep.runs), sweep.logs.get("inspect", {})
    inspect_n = max(logs, default=largest)
    same = min(sweep.runs, key=lambda n: abs(math.log(n / inspect_n)))
    yield _api(setting, "aggregate", largest, sweep.runs[largest], number)
    for case, *argv in (
        ("show", "show", sweep.runs[same], "--limit", "50"),
        ("show all", "show", sweep.runs[same]),
        ("status", "status", sweep.runs[same]),
        ("report", "report", sweep.runs[same]),
    ):
        yield _command(setting, case, argv, same, number)
    for what, n in (*(("full", n) for n in sorted({1, same, largest})), ("export", same)):
        yield _api(setting, what, n, sweep.runs[n], number)
    for item in _inspect(setting, logs, number):
        yield item


def _command(setting: Setting, case: str, argv: list[str], n: int, number: int) -> Figure:
    measured = setting.bench.run((ORCHESTRATE, *argv), setting.bench.work, setting.env, codes=(0, 1))
    shown = " ".join(("orchestrate", argv[0], "RUN", *argv[2:]))
    return figure((NAME, PRODUCT, case), n, number, shown, measured)


def _api(setting: Setting, what: str, n: int, run: str, number: int) -> Figure:
    argv = (sys.executable, "-m", "bench.reading", what, run)
    measured = setting.bench.run(argv, Path.cwd(), setting.env)
    told = json.loads(measured.stdout)
    return figure((NAME, PRODUCT, what), n, number, f"python -m bench.reading {what} RUN", measured, **told)


def _inspect(setting: Setting, logs: Mapping[int, Path], number: int) -> Iterator[Figure]:
    peer = setting.peer("inspect")
    if not isinstance(peer, InspectAI):
        return
    for what, n in (("header", max(logs)), *(("full", n) for n in sorted(logs))):
        command = peer.read(what, logs[n])
        measured = setting.run(command)
        told = json.loads(measured.stdout)
        shown = setting.shown(command.argv)
        yield figure((NAME, peer.name, what), n, number, shown, measured, **told)
