"""A run whose recorded experiment this version does not know any more is refused in a line, also by `rescore`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from evalfleet.store.connection import connect

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

EVAL = """
from evalfleet import define_eval

@define_eval
async def greeting(t):
    (await t.send("hello")).succeeded()
"""
EXPERIMENT = "schema_version: 1\nname: stale\narms: {parrot: {adapter: scripted}}\n"


async def grow_old(url: str, run: str) -> None:
    """Make the run's experiment one that another version wrote."""
    async with await connect(url, autocommit=True) as connection:
        await connection.execute(
            "UPDATE runs SET experiment = jsonb_set(experiment::jsonb, '{limits,patience}', '3')::text WHERE id = %s",
            (run,),
        )


def test_the_field_and_what_to_do_are_said(orchestrate: Orchestrate, tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals/greeting.eval.py").write_text(EVAL, encoding="utf-8")
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT, encoding="utf-8")
    submitted = orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=tmp_path)
    assert submitted.code == 0, submitted.err
    run = submitted.values[-1]["run"]["id"]
    asyncio.run(grow_old(orchestrate.database_url, run))
    ended = orchestrate("rescore", run, cwd=tmp_path)
    assert ended.code == 2
    (line,) = ended.err.splitlines()
    place = f"{tmp_path}/experiment.yaml: limits.patience"
    said = "extra inputs are not permitted (that is what the run recorded: use the version that planned it)"
    assert line == f"error: {place}: {said} [INVALID_VALUE]"
