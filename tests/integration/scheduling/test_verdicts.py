"""Verdicts that stand: each command's exit code counts, and a case that is decided stays so without its evidence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import evalfleet
from evalfleet.api.options import ResumeOptions
from evalfleet.api.starting import resume
from evalfleet.errors import ConfigurationError, StoreError

AGENT = """
import os

from evalfleet import COMPLETE_COVERAGE, Turn, sandbox_agent


@sandbox_agent(coverage=COMPLETE_COVERAGE)
async def bulky(turn, ctx):
    return Turn(reply=os.urandom(4_000_000).hex())
"""

EVALS = """
from evalfleet import command_succeeded, define_eval

LINES = {lines!r}


@define_eval
async def commands(t):
    for line in LINES:
        t.check(await t.sandbox.run("bash", "-o", "pipefail", "-c", line), command_succeeded())


@define_eval
async def bulky(t):
    (await t.send("x")).succeeded()


evals = {{"commands": commands, "bulky": bulky}}
"""


@pytest.fixture
def experiment(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVALFLEET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EVALFLEET_DATABASE_URL", database)
    monkeypatch.setenv("EVALFLEET_ARTIFACTS", str(tmp_path / "artifacts"))
    module = f"bulky_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(AGENT)
    (tmp_path / "evals").mkdir()
    lines = ("true", "false", "true", "false | cat")
    (tmp_path / "evals" / "both.eval.py").write_text(EVALS.format(lines=lines))
    arms = {"mine": {"adapter": "python", "entry": f"{module}:bulky"}}
    document = {"schema_version": 1, "name": "verdicts", "arms": arms, "sandbox": {"backend": "local"}}
    (tmp_path / "experiment.yaml").write_text(json.dumps(document))
    return tmp_path / "experiment.yaml"


async def test_each_exit_code_counts_in_a_pipe_too(experiment: Path) -> None:
    with await evalfleet.run(experiment, select=["both/commands"]) as run:
        (case,) = run.cases(evidence=True)
        assert [row.holds for row in case.assertions] == [True, False, True, False]
        assert case.status == "failed"


async def test_a_case_that_is_decided_stays_so_without_its_evidence(experiment: Path) -> None:
    with await evalfleet.run(experiment, select=["both/bulky"], overrides={"repetitions": "2"}) as run:
        before = run.summary["totals"]
        assert before["passed"] == 2
        lost = [file for file in (experiment.parent / "artifacts").rglob("*") if file.is_file()]
        assert len(lost) >= 2
        for file in lost:
            file.unlink()
        for _ in range(2):
            assert run.summary["totals"] == before
        with pytest.raises(ConfigurationError, match="is completed"):
            await resume(run.id, ResumeOptions(inline=True))
        assert [case.status for case in run.cases()] == ["passed"] * 2
        with pytest.raises(StoreError):  # told as what it is
            next(run.cases(evidence=True))
