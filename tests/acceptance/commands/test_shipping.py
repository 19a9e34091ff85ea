"""A project shipped to a cluster as a Ray job, on a real head; needs what `evalfleet[cluster]` installs."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.kill.command import AUTHENTICATION

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

pytestmark = [
    pytest.mark.ray,
    pytest.mark.soak,
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("aiohttp_cors") is None, reason="needs ray[default]"),
]

FILES = {
    "where_agent.py": """
import asyncio, os
from evalfleet import COMPLETE_COVERAGE, Turn, agent

@agent(coverage=COMPLETE_COVERAGE)
async def where(turn, ctx):
    await asyncio.sleep(float(ctx.flags.get("takes", 0)))
    return Turn(reply=f"{os.path.dirname(os.path.abspath(__file__))} {ctx.secrets.resolve('CLUSTER_KEY')}")
""",
    "evals/where.eval.py": """
from evalfleet import Dataset, define_eval, includes

@define_eval(description="says where it runs", dataset=Dataset.jsonl("rows.jsonl", id="id"))
async def where(t, row):
    await t.send("where are you?")
    t.check(t.reply, includes(row["says"]))
""",
    "evals/rows.jsonl": '{"id": "a", "says": "key of the cluster"}\n{"id": "b", "says": "working_dir_files"}\n',
    ".gitignore": "*.jsonl\n",
    "experiment.yaml": """
schema_version: 1
name: where
arms:
  mine: {adapter: python, entry: "where_agent:where"}
""",
    "slow.yaml": """
schema_version: 1
name: slow
repetitions: 10
limits: {concurrency: 2}
arms:
  mine: {adapter: python, entry: "where_agent:where", flags: {takes: 1.5}}
""",
}


@pytest.fixture(scope="module")
def head(orchestrate: Orchestrate) -> Iterator[str]:
    """The dashboard's address of a head that was started as `ray start` does, with the cluster's own environment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    programs = Path(sys.executable).parent
    of_the_cluster = {"CLUSTER_KEY": "key of the cluster", "PATH": f"{programs}:/usr/bin:/bin"}
    environment = {**orchestrate.environment, **AUTHENTICATION, **of_the_cluster}
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        argv = [programs / "ray", "start", "--head", "--block", "--port=0", f"--dashboard-port={port}", "--num-cpus=2"]
        argv += ["--include-dashboard=true", f"--temp-dir={folder}", "--disable-usage-stats"]
        with (Path(folder) / "head.log").open("wb") as log:
            process = subprocess.Popen(argv, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            _wait_for(f"{address}/api/version", process)
            yield address
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=60)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    until = monotonic() + 90
    while monotonic() < until:
        assert process.poll() is None
        try:
            urllib.request.urlopen(url, timeout=5)
        except urllib.error.HTTPError:
            return  # it answers, and wants a token
        except OSError:
            sleep(0.5)
        else:
            return
    raise AssertionError(f"nothing answers at {url}")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def call(orchestrate: Orchestrate, project: Path, *arguments: str) -> subprocess.Popen[str]:
    program = Path(sys.executable).with_name("orchestrate")
    return subprocess.Popen(
        [program, *arguments],
        cwd=project,
        env={**orchestrate.environment, **AUTHENTICATION},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_shipped_run_uses_the_project_and_the_secrets_of_the_cluster(
    orchestrate: Orchestrate, head: str, project: Path
) -> None:
    with call(orchestrate, project, "submit", "experiment.yaml", "--address", head) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    run = err.splitlines()[0].removeprefix("run ")
    replies = {case["eval"]: case["reply"] for case in orchestrate("show", run, "--json", "--text").values}
    assert sorted(replies) == ["where/a", "where/b"]
    assert not any(str(project) in reply for reply in replies.values())


def test_stopping_it_here_stops_it_there_and_it_can_be_resumed(
    orchestrate: Orchestrate, head: str, project: Path
) -> None:
    with call(orchestrate, project, "submit", "slow.yaml", "--address", head) as process:
        assert process.stderr is not None
        run = process.stderr.readline().strip().removeprefix("run ")
        while " settled · " not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=200)
    assert process.returncode == 130, err
    (value,) = orchestrate("status", run, "--json").values
    assert value["run"]["status"] == "cancelled"
    assert value["totals"]["passed"] < value["planned"]
    with call(orchestrate, project, "resume", run, "--address", head) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    (value,) = orchestrate("status", run, "--json").values
    assert (value["run"]["status"], value["totals"]["passed"]) == ("completed", value["planned"])


def test_a_cluster_that_is_not_there_leaves_no_run(orchestrate: Orchestrate, project: Path) -> None:
    before = orchestrate("runs", "--json").values
    with call(orchestrate, project, "submit", "experiment.yaml", "--address", "http://127.0.0.1:1") as process:
        _, err = process.communicate(timeout=100)
    assert process.returncode == 4
    assert err.startswith("error: the jobs of the Ray at http://127.0.0.1:1 can't be used: ")
    assert orchestrate("runs", "--json").values == before
