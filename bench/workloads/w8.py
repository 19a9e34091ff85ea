"""W8, suite sweep: as many scenarios as W1 has rows, each with one step and one criterion, and their report."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bench.check import check_run
from bench.figures import PRODUCT, Figure, figure
from bench.products import ORCHESTRATE, Project, run_id
from bench.workloads.setting import Setting

NAME = "W8"

#: What is measured: a row as an eval's and as a scenario, and the report document of each.
CASES = ("rows", "rows, report", "scenarios", "scenarios, report")


async def suite_sweep(setting: Setting, number: int) -> AsyncIterator[Figure]:
    """One and all of them, inline: rows of an eval beside the same as scenarios of a suite."""
    for n in (1, max(setting.sizes)):
        for kind, write in (("rows", Project.write), ("scenarios", Project.with_suite)):
            project = write(setting.fresh("suite", kind, n, number), n)
            argv = project.submit("--inline")
            measured = setting.bench.run(argv, project.folder, setting.env)
            run = run_id(measured.stdout)
            await check_run(setting.url, run, n)
            yield figure((NAME, PRODUCT, kind), n, number, setting.shown(argv), measured)
            argv = [str(ORCHESTRATE), "report", run, "--format", "json", "-o", "report.json"]
            measured = setting.bench.run(argv, project.folder, setting.env)
            yield figure((NAME, PRODUCT, f"{kind}, report"), n, number, setting.shown(argv), measured)
