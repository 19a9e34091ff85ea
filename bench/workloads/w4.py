"""W4, kill and resume: SIGKILL half-way through 5 ms attempts, ten at a time, then the ordinary way to go on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.accounts import kill_all
from bench.check import check_run
from bench.figures import PRODUCT, Figure, figure
from bench.measure import Measurement, Running
from bench.products import ORCHESTRATE, Project, warm_server
from bench.workloads.executions import Execution, executions, told_of_kill, wait_lines
from bench.workloads.setting import Setting

NAME = "W4"
LANES = 10


@dataclass(frozen=True, slots=True)
class _Killed:
    """A run that was killed: seconds from its start to its first row, when it was killed, and what it printed."""

    first_row: float
    at: float
    said: str


async def kill_and_resume(setting: Setting, number: int) -> AsyncIterator[Figure]:
    yield await _product(setting, number, "kill everything", everything=True)
    yield await _product(setting, number, "kill the driver", everything=False)
    for item in _peers(setting, number):
        yield item


async def _product(setting: Setting, number: int, case: str, *, everything: bool) -> Figure:
    """With `everything` Ray, workers and the Postgres server die as well."""
    log = setting.fresh("kill", "executions")
    home = setting.fresh("kill", "home")
    n = setting.kill_n
    project = Project.with_logging_agent(setting.fresh("kill", "project"), n, log, LANES)
    env = {"EVALFLEET_HOME": str(home)}
    setting.bench.run((ORCHESTRATE, "runs", "--json"), project.folder, env)  # makes the database
    running = setting.bench.start(project.submit(), project.folder, env)
    killed = _kill_half_way(running, log, n, everything=everything)
    run = killed.said.split("run ", 1)[1].split()[0]
    argv = [str(ORCHESTRATE), "resume", run]
    resumed_at = time.time()
    measured = setting.bench.run(argv, project.folder, env)
    setting.bench.end(running.account)
    with warm_server(setting.bench, home) as url:
        counts = await check_run(url, run, n, exact=False)
    return _figure(
        (NAME, PRODUCT, case),
        n,
        number,
        "orchestrate resume RUN",
        measured,
        (executions(log), killed, resumed_at),
        lost=n - counts.settled,
        doubled=counts.passed - counts.settled,
        attempts=counts.attempts,
    )


def _kill_half_way(running: Running, log: Path, n: int, *, everything: bool) -> _Killed:
    wait_lines(log, n // 2, lambda: running.account.ended() is None)
    at = time.time()
    if everything:
        kill_all(running.account)
    else:
        os.kill(running.pid, signal.SIGKILL)
        while running.account.ended() is None:
            time.sleep(0.01)
    first = executions(log)[0].at - running.began
    return _Killed(first, at, running.err.read_text("utf-8", "replace"))


def _peers(setting: Setting, number: int) -> Iterator[Figure]:
    n = setting.peer_kill_n
    for peer in setting.peers:
        log, folder = setting.fresh("kill", "executions"), setting.fresh("kill", peer.name)
        slow, resume = peer.slow(n, log, folder), peer.resume(n, log, folder)
        if slow is None or resume is None:
            continue
        running = setting.bench.start(slow.argv, slow.cwd or setting.bench.work, slow.env)
        killed = _kill_half_way(running, log, n, everything=True)
        setting.bench.end(running.account)
        resumed_at = time.time()
        measured = setting.run(resume)
        shown = setting.shown(resume.argv)
        seen = (executions(log), killed, resumed_at)
        yield _figure((NAME, peer.name, "kill everything"), n, number, shown, measured, seen)


def _figure(
    named: tuple[str, str, str],
    n: int,
    number: int,
    command: str,
    measured: Measurement,
    seen: tuple[Sequence[Execution], _Killed, float],
    **stored: float,
) -> Figure:
    found, killed, resumed_at = seen
    told: Mapping[str, float] = told_of_kill(found, killed.at, n)
    before = {item.pid for item in found if item.at <= killed.at}
    fresh = [item.at for item in found if item.at > resumed_at and item.pid not in before]
    return figure(
        named,
        n,
        number,
        command,
        measured,
        first_row_fresh=killed.first_row,
        first_row_resumed=min(fresh, default=resumed_at) - resumed_at,
        **told,
        **stored,
    )
