"""W2, latent agent: 200 ms a row. Does the harness hide the waiting, and what does it cost meanwhile?"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg

from bench.check import check_run
from bench.figures import PRODUCT, Figure, figure
from bench.products import OPEN_RAY, Project, run_id, running_ray, up
from bench.workloads.setting import Setting

NAME = "W2"
LATENCY = 0.2

# from the first attempt's start until the run was finished, its last commit included
_PHASE = """
SELECT extract(epoch FROM r.finished_at - min(a.started_at))::float8
FROM runs r JOIN attempts a USING (run_key) WHERE r.id = %s GROUP BY r.run_key
"""


async def latent_agent(setting: Setting, number: int) -> AsyncIterator[Figure]:
    temporary = setting.fresh("ray")
    for n, lanes in setting.latent:
        ideal = LATENCY * n / lanes
        project = Project.write(
            setting.fresh("latent", n), n, lanes=lanes, arm=f"{{adapter: scripted, latency: {LATENCY}}}"
        )
        yield await _submitted(setting, project, ideal, number, "submit")
        if (n, lanes) == setting.latent[0]:
            with running_ray(setting.bench, temporary) as address:
                yield await _submitted(setting, project, ideal, number, "submit --address", address)
                yield _floor(setting, n, ideal, number, address)
            with up(setting.bench, setting.env):
                yield await _submitted(setting, project, ideal, number, "submit after up")
            for item in _peers(setting, n, lanes, ideal, number):
                yield item


async def _submitted(
    setting: Setting, project: Project, ideal: float, number: int, case: str, address: str | None = None
) -> Figure:
    joining = () if address is None else ("--address", address)
    # a cluster has to be able to reach the store, so it is named instead of found
    env = setting.env if address is None else {**setting.env, **OPEN_RAY, "EVALFLEET_DATABASE_URL": setting.url}
    argv = project.submit(*joining)
    measured = setting.bench.run(argv, project.folder, env)
    run = run_id(measured.stdout)
    await check_run(setting.url, run, project.n)
    shown = setting.shown(argv).replace(address or "\0", "HOST:PORT")
    return figure(
        (NAME, PRODUCT, case),
        project.n,
        number,
        shown,
        measured,
        ideal=ideal,
        run_phase=_run_phase(setting.url, run),
    )


def _floor(setting: Setting, n: int, ideal: float, number: int, address: str) -> Figure:
    """A driver that joins the same Ray, has two actors idle for the ideal time, and does nothing else."""
    argv = (sys.executable, "-m", "bench.floors", address, str(ideal))
    measured = setting.bench.run(argv, Path.cwd(), OPEN_RAY)
    named = (NAME, "floor", "ray --address")
    return figure(named, n, number, f"python -m bench.floors HOST:PORT {ideal}", measured, ideal=ideal)


def _peers(setting: Setting, n: int, lanes: int, ideal: float, number: int) -> Iterator[Figure]:
    for peer in setting.peers:
        command = peer.latent(n, lanes, setting.fresh("latent", peer.name))
        measured = setting.run(command)
        shown = setting.shown(command.argv)
        yield figure((NAME, peer.name, "latent"), n, number, shown, measured, ideal=ideal)


def _run_phase(url: str, run: str) -> float:
    with psycopg.connect(url) as connection:
        row = connection.execute(_PHASE, (run,)).fetchone()
    if row is None:
        raise LookupError(f"run {run} has no attempts")
    return float(row[0])
