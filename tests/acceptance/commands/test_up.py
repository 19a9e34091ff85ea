"""A Ray that is kept up: joined by runs with the same environment, left alone by others, ended by its own command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

import pytest

from evalfleet.handover import standby_socket
from evalfleet.processes import process_alive
from evalfleet.settings import Settings

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

FILES = {
    "where_agent.py": """
import asyncio, os
import ray
from evalfleet import COMPLETE_COVERAGE, Turn, agent

@agent(coverage=COMPLETE_COVERAGE)
async def where(turn, ctx):
    await asyncio.sleep(float(ctx.flags.get("takes", 0)))
    return Turn(reply=f"{ray.get_runtime_context().gcs_address} {os.environ.get('MY_KEY')}")
""",
    "evals/where.eval.py": """
from evalfleet import define_eval, includes

@define_eval(description="says where it runs")
async def where(t):
    await t.send("where are you?")
    t.check(t.reply, includes(":"))
""",
    "experiment.yaml": """
schema_version: 1
name: where
arms:
  mine: {adapter: python, entry: "where_agent:where"}
""",
    "slow.yaml": """
schema_version: 1
name: slow
arms:
  mine: {adapter: python, entry: "where_agent:where", flags: {takes: 4}}
""",
    "endless.yaml": """
schema_version: 1
name: endless
arms:
  mine: {adapter: python, entry: "where_agent:where", flags: {takes: 1000}}
""",
}


@dataclass
class Shell:
    """Commands in one project, with an environment of their own."""

    orchestrate: Orchestrate
    project: Path
    home: Path

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        program = Path(sys.executable).with_name("orchestrate")
        return subprocess.Popen(
            [program, *arguments],
            cwd=self.project,
            env={**self.orchestrate.environment, "HOME": str(self.home), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        with self.start(*arguments, **environment) as process:
            out, err = process.communicate(timeout=200)
        return process.returncode, out, err

    def reply(self, err: str) -> str:
        """What the agent of the run that `err` names said."""
        run = err.splitlines()[0].removeprefix("run ")
        return self.orchestrate("show", run, "--json", "--text").values[0]["reply"]


@pytest.fixture(scope="module")
def shell(orchestrate: Orchestrate, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    project = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    return Shell(orchestrate, project, tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def up(shell: Shell) -> Iterator[dict[str, Any]]:
    code, _, err = shell.run("up", MY_KEY="one")
    assert code == 0, err
    (value,) = shell.orchestrate("up", "--json").values
    yield value
    code, out, err = shell.run("down", "--force")
    assert code == 0 and out.startswith(("Ray is down", "nothing is up")), err


def test_a_run_joins_it_and_leaves_it_up(shell: Shell, up: dict[str, Any]) -> None:
    assert up["started"] is False
    code, _, err = shell.run("submit", "experiment.yaml", MY_KEY="one")
    assert code == 0, err
    assert shell.reply(err) == f"{up['address']} one"
    assert process_alive(up["pid"])


def test_a_run_with_another_environment_starts_its_own_and_says_why(shell: Shell, up: dict[str, Any]) -> None:
    code, _, err = shell.run("submit", "experiment.yaml", MY_KEY="two")
    assert code == 0, err
    assert "has another environment (MY_KEY)" in err.splitlines()[1]
    address, key = shell.reply(err).split()
    assert (address != up["address"], key) == (True, "two")
    assert not (shell.home / ".ray").exists(), "a token there would change every other Ray of this user"


def test_its_standby_carries_a_run_out_and_is_replaced(shell: Shell, up: dict[str, Any]) -> None:
    standby = _standby(up)
    code, out, err = shell.run("submit", "experiment.yaml", "--json", MY_KEY="one")
    assert code == 0, err
    said = [json.loads(line) for line in out.splitlines()]
    assert len(said) > 1
    assert said[-1]["run"]["project"] == str(shell.project), "the caller's directory, not its own"
    assert shell.orchestrate("status", said[-1]["run"]["id"], "--json").values[0]["run"]["status"] == "completed"
    assert _standby(up) != standby
    code, _, err = shell.run("submit", "nothing.yaml", MY_KEY="one")
    assert (code, "nothing.yaml" in err) == (2, True)


def test_a_run_beside_another_does_without_it(shell: Shell, up: dict[str, Any]) -> None:
    _standby(up)
    with shell.start("submit", "endless.yaml", MY_KEY="one") as process:
        assert process.stderr is not None
        process.stderr.readline()
        code, _, err = shell.run("submit", "experiment.yaml", MY_KEY="one")
        assert code == 0 and shell.reply(err) == f"{up['address']} one"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=100) == 130
        process.communicate()


def test_who_kills_a_run_kills_its_standby_and_goes_on_with_the_next(shell: Shell, up: dict[str, Any]) -> None:
    standby = _standby(up)
    with shell.start("submit", "slow.yaml", MY_KEY="one") as process:
        assert process.stderr is not None
        run = process.stderr.readline().split()[1]
        while "0/1 settled" not in process.stderr.readline():
            assert process.poll() is None
        process.kill()
        process.communicate()
    while process_alive(standby):
        sleep(0.01)
    _standby(up)
    code, out, err = shell.run("resume", run, MY_KEY="one")
    assert (code, "1 passed" in out) == (0, True), err


def test_it_is_not_ended_under_a_run(shell: Shell, up: dict[str, Any]) -> None:
    with shell.start("submit", "slow.yaml", MY_KEY="one") as process:
        assert process.stderr is not None
        while "0/1 settled" not in process.stderr.readline():
            assert process.poll() is None
        code, _, err = shell.run("down")
        assert (code, err) == (2, "error: runs are going on it: cancel them or wait, or say --force\n")
        assert process.wait(timeout=100) == 0
        process.communicate()


def test_it_ends_with_all_of_its_processes_and_no_others(shell: Shell, up: dict[str, Any]) -> None:
    started = [pid for pid in _pids() if _environment(pid).get("MY_KEY") == "one"]
    assert up["pid"] in started and len(started) > 3
    code, out, _ = shell.run("down")
    assert (code, out) == (0, f"Ray is down: process {up['pid']} has ended\n")
    assert not process_alive(up["pid"])
    for _ in range(600):  # two agents of Ray notice it late, and go by themselves
        left = [pid for pid in started if process_alive(pid) and b"raylet" in _command(pid)]
        if not left:
            break
        sleep(0.1)
    assert not left
    assert shell.run("down")[1] == "nothing is up\n"


def _standby(up: dict[str, Any]) -> int:
    """The process that waits for the next run, once it does."""
    for _ in range(1000):
        for pid in _pids():
            its = b"evalfleet.cli.standby" in _command(pid).split(b"\0") and _parent(pid) == up["pid"]
            if its and standby_socket(Settings.from_environment(_environment(pid))).exists():
                return pid
        sleep(0.05)
    raise AssertionError("there is no standby")


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _environment(pid: int) -> dict[str, str]:
    try:
        pairs = Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
