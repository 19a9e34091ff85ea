"""W3, sandbox: a fresh sandbox a row, and three commands in it. What does the place cost beside the commands?"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from bench.check import check_run
from bench.figures import PRODUCT, Figure, figure
from bench.peers.inspect_ai import InspectAI
from bench.products import Project, run_id
from bench.workloads.setting import Setting

NAME = "W3"
LANES = 10


async def sandboxes(setting: Setting, number: int) -> AsyncIterator[Figure]:
    """One row and all of them: bare, in each backend that was chosen, and in Inspect's own."""
    for n in (1, setting.sandbox_n):
        yield _bare(setting, n, number)
        for backend in setting.backends:
            yield await _submitted(setting, backend, n, number)
        for item in _inspect(setting, n, number):
            yield item


def _bare(setting: Setting, n: int, number: int) -> Figure:
    argv = (sys.executable, "-m", "bench.bare_commands", str(n), str(LANES))
    measured = setting.bench.run(argv, Path.cwd())
    return figure((NAME, "floor", "bare commands"), n, number, f"python -m bench.bare_commands N {LANES}", measured)


async def _submitted(setting: Setting, backend: str, n: int, number: int) -> Figure:
    folder = setting.fresh("sandboxes", backend, n)
    image = setting.image if backend == "container" else None
    project = Project.with_shell_agent(folder, n, LANES, backend, image)
    argv = project.submit("--inline")
    measured = setting.bench.run(argv, project.folder, setting.env)
    await check_run(setting.url, run_id(measured.stdout), n)
    return figure((NAME, PRODUCT, backend), n, number, setting.shown(argv), measured)


def _inspect(setting: Setting, n: int, number: int) -> Iterator[Figure]:
    peer = setting.peer("inspect")
    if isinstance(peer, InspectAI):
        command = peer.shell(n, LANES, setting.fresh("sandboxes", peer.name))
        measured = setting.run(command)
        yield figure((NAME, peer.name, "local"), n, number, setting.shown(command.argv), measured)
