"""W1, null sweep: an agent that answers at once, one `includes` a row, the full record kept."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg

from bench.check import check_run
from bench.figures import PRODUCT, Figure, figure
from bench.products import ORCHESTRATE, Project, run_id
from bench.workloads.setting import Setting, folder_size

NAME = "W1"
SUBMITS = ("submit", "submit --inline")
_DATABASE = """
SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""


class NullSweep:
    """Projects and peers' logs of one bench; `runs` and `logs` keep the last ones by size for W5."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._projects: dict[int, Project] = {}
        self.runs: dict[int, str] = {}
        self.logs: dict[str, dict[int, Path]] = {}

    def project(self, n: int) -> Project:
        if n not in self._projects:
            self._projects[n] = Project.write(self._setting.fresh("null", n), n)
        return self._projects[n]

    async def warm_up(self) -> None:
        """Run everything once unmeasured: no tool pays for its first compilation or cache."""
        setting, project = self._setting, self.project(1)
        setting.bench.run(project.submit(), project.folder, setting.env)
        for peer in setting.peers:
            command = peer.null(1, setting.fresh("warm", peer.name))
            setting.run(command)

    async def round(self, number: int) -> AsyncIterator[Figure]:
        async for item in self._starts(number):
            yield item
        for n in self._setting.sizes:
            for case in SUBMITS:
                yield await self._sweep(case, n, number)
        for item in self._peers(number):
            yield item

    async def _starts(self, number: int) -> AsyncIterator[Figure]:
        """One row each: what starting costs."""
        setting, project = self._setting, self.project(1)
        for case in SUBMITS:
            yield await self._sweep(case, 1, number)
        trying = [str(ORCHESTRATE), "try", "experiment.yaml", "--json"]
        measured = setting.bench.run(trying, project.folder, setting.env)
        yield figure((NAME, PRODUCT, "try"), 1, number, setting.shown(trying), measured)
        measured = setting.bench.run((sys.executable, "-m", "bench.floors"), Path.cwd())
        yield figure((NAME, "floor", "ray"), 1, number, "python -m bench.floors", measured)

    async def _sweep(self, case: str, n: int, number: int) -> Figure:
        setting, project = self._setting, self.project(n)
        argv = project.submit(*case.split()[1:])
        before = _stored(setting.url)
        measured = setting.bench.run(argv, project.folder, setting.env)
        run = run_id(measured.stdout)
        counts = await check_run(setting.url, run, n)
        store = _stored(setting.url) - before
        if case == "submit":
            self.runs[n] = run
        named = (NAME, PRODUCT, case)
        shown = setting.shown(argv)
        return figure(named, n, number, shown, measured, store=store, events=counts.events)

    def _peers(self, number: int) -> Iterator[Figure]:
        setting = self._setting
        for peer in setting.peers:
            for n in (1, setting.peer_n):
                folder = setting.fresh("null", peer.name, n)
                command = peer.null(n, folder)
                measured = setting.run(command)
                shown = setting.shown(command.argv)
                store = folder_size(folder)
                yield figure((NAME, peer.name, "null"), n, number, shown, measured, store=store)
                self.logs.setdefault(peer.name, {})[n] = folder


def _stored(url: str) -> int:
    """Bytes of all tables with their indexes."""
    with psycopg.connect(url) as connection:
        row = connection.execute(_DATABASE).fetchone()
    return int(row[0]) if row and row[0] else 0
