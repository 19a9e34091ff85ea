"""A backend that fails to make sandboxes until somebody mends it: the run pauses, says so, and loses no case."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.sandboxes.other_backends import AGENT

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

#: Makes what `local` makes, but fails so many times of five as long as the file `MENDED` is not there.
BACKEND = """
import dataclasses
import itertools
from pathlib import Path

from evalfleet.errors import AttemptFailure, FailureKind
from evalfleet_sandboxes.local import factory as local


class Provider:
    name = "frail"
    isolates = outlives = False

    def __init__(self, inner):
        self.inner = inner
        self.made = itertools.count()

    async def check(self): ...

    async def create(self, spec, owner):
        fails = next(self.made) * 2 % 5 < int(spec.env["FAILURES"])
        if fails and not Path(spec.env["MENDED"]).exists():
            raise AttemptFailure(FailureKind.SANDBOX, "SANDBOX_FAILED", "no space left on device")
        return await self.inner.create(dataclasses.replace(spec, image=None), owner)

    async def found(self):
        return await self.inner.found()

    async def reap(self, sandbox):
        await self.inner.reap(sandbox)

    async def close(self):
        await self.inner.close()


class Factory:
    name = "frail"

    def build(self, place):
        return Provider(local.build(place))


frail = Factory()
"""

EVAL = """
from evalfleet import *

@define_eval(description="Runs a command.")
async def body(t):
    (await t.send("echo fine")).succeeded()
"""


@pytest.fixture(scope="module")
def command(orchestrate: Orchestrate, tmp_path_factory: pytest.TempPathFactory) -> Orchestrate:
    """The command where the package with that backend is installed."""
    folder = tmp_path_factory.mktemp("package")
    described = folder / "frail_backend-1.0.dist-info"
    described.mkdir()
    (folder / "frail_backend.py").write_text(BACKEND)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: frail-backend\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[evalfleet.sandboxes]\nfrail = frail_backend:frail\n")
    path = os.pathsep.join(filter(None, [str(folder), orchestrate.environment.get("PYTHONPATH")]))
    return dataclasses.replace(orchestrate, variables={**orchestrate.variables, "PYTHONPATH": path})


def project(folder: Path, cases: int, failures: int, **limits: Any) -> Path:
    """A project whose sandboxes fail `failures` times of five; the file that mends them."""
    (folder / "evals").mkdir()
    (folder / "evals" / "command.eval.py").write_text(EVAL)
    (folder / "my_agents.py").write_text(AGENT)
    mended = folder / "mended"
    document = {
        "schema_version": 1,
        "name": "outage",
        "repetitions": cases,
        "limits": limits,
        "sandbox": {"backend": "frail", "image": "any", "env": {"MENDED": str(mended), "FAILURES": str(failures)}},
        "arms": {"mine": {"adapter": "python", "entry": "my_agents:worker"}},
    }
    (folder / "experiment.yaml").write_text(json.dumps(document))
    return mended


def paused(command: Orchestrate, process: subprocess.Popen[str]) -> dict[str, str]:
    """What `status` says of the newest run once an arm of it is paused."""
    ends_at = time.monotonic() + 90
    while process.poll() is None and time.monotonic() < ends_at:
        for value in command("status", "--json").values:
            if (progress := value.get("progress")) is not None and progress["paused"]:
                return progress["paused"]
    process.kill()
    pytest.fail(f"the run was not paused: {process.communicate()}")


@pytest.mark.parametrize(
    "how",
    [["--inline"], pytest.param(["--workers", "2"], marks=[pytest.mark.soak, pytest.mark.ray])],
    ids=["inline", "ray"],
)
def test_a_run_pauses_says_so_and_completes_once_the_backend_works(
    command: Orchestrate, tmp_path: Path, how: list[str]
) -> None:
    mended = project(tmp_path, 200, failures=3)
    with command.start("submit", "experiment.yaml", *how, "--json", cwd=tmp_path) as process:
        why = paused(command, process)
        mended.touch()
        out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert list(why) == ["mine"] and why["mine"].endswith("attempts ended with sandbox: SANDBOX_FAILED")
    report = json.loads(out.splitlines()[-1])
    (arm,) = report["arms"]
    assert (report["run"]["status"], report["totals"]["passed"]) == ("completed", 200)
    assert arm["failures_by_kind"]["sandbox"] >= 10 and arm["attempts"] == 200 + arm["failures_by_kind"]["sandbox"]


@pytest.mark.soak
def test_a_run_whose_backend_stays_broken_is_limited_and_can_be_resumed(command: Orchestrate, tmp_path: Path) -> None:
    mended = project(tmp_path, 40, failures=5, outage="8s", concurrency=4)
    ended = command("submit", "experiment.yaml", "--inline", "--json", cwd=tmp_path)
    report = ended.values[-1]
    assert report["run"]["status"] == "limited" and report["totals"]["pending"] == 40
    assert report["run"]["stop_reason"].startswith("paused for the 8 s of limits.outage, arm mine: ")
    assert report["run"]["stop_reason"].endswith("attempts ended with sandbox: SANDBOX_FAILED")
    mended.touch()
    resumed = command("resume", report["run"]["id"], "--inline", "--json", cwd=tmp_path)
    assert (resumed.code, resumed.values[-1]["totals"]["passed"]) == (0, 40), resumed.err
