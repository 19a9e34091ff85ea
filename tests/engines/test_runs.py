"""Whole runs whose agents work in containers: built images, changes seen, and nothing left however a run ends."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from evalfleet.testing.sandbox_subject import alive, forever
from tests.acceptance.cli.conftest import Orchestrate
from tests.acceptance.sandboxes.other_backends import AGENT
from tests.engines.engines import IMAGE, call, environment_of

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

WORKS = """
from evalfleet import *

@define_eval(description="Works in a container.", sandbox=SandboxSpec(build="image", setup=("echo set up > ready",)))
async def body(t):
    turn = await t.send("cat ready /built; id -u")
    t.check(turn.reply, equals("set up\\nfrom the Dockerfile\\n0\\n"))
    t.check((await t.sandbox.run("cat", "/proc/net/route")).text.count("\\n"), equals(1))
"""
SLEEPS = """
from evalfleet import *

@define_eval(dataset=Dataset.jsonl("rows.jsonl"), description="Runs for ever.")
async def body(t, row):
    await t.send("sleep {seconds}")
"""
ASK = r"""
way=${https_proxy#http://}
exec 3<>"/dev/tcp/$(echo "${way#*@}" | tr : /)"
key=$(printf %s "${way%@*}" | base64 -w 0)
printf 'CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: Basic %s\r\n\r\n' "$1" "$1" "$key" >&3
cat <&3
"""
ASKS = """
from evalfleet import *

SETUP = ("bash ask 127.0.0.1:{allowed} > told",)

@define_eval(description="Asks two hosts, one of them allowed.", sandbox=SandboxSpec(files="asking", setup=SETUP))
async def body(t):
    t.check(await t.sandbox.read_text("told"), includes("told in confidence"))
    told = await t.send("bash ask 127.0.0.1:{allowed}")
    t.check(told.reply, includes("told in confidence"))
    refused = await t.send("bash ask 127.0.0.1:{other}")
    t.check(refused.reply, includes(" 403 "))
"""
PATIENCE = 120.0


class Tells(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"told in confidence\n")


def project(folder: Path, body: str, **sandbox: Any) -> Path:
    (folder / "evals").mkdir(parents=True)
    (folder / "evals" / "one.eval.py").write_text(body)
    (folder / "evals" / "rows.jsonl").write_text("{}\n" * 3)
    (folder / "my_agents.py").write_text(AGENT)
    document = {
        "schema_version": 1,
        "name": "in-containers",
        "sandbox": {"backend": "container", **sandbox},
        "arms": {"mine": {"adapter": "python", "entry": "my_agents:worker"}},
    }
    (folder / "experiment.yaml").write_text(json.dumps(document))
    return folder


def ours(engine: str) -> list[str]:
    """The containers that a backend of ours has made and nobody has removed."""
    return call(engine, "ps", "--all", "--quiet", "--filter", "label=evalfleet.owner").split()


def test_an_agent_works_in_a_container_of_a_built_image(engine: str, tmp_path: Path, database: str) -> None:
    folder = project(tmp_path / "project", WORKS)
    (folder / "evals" / "image").mkdir()
    (folder / "evals" / "image" / "Dockerfile").write_text(
        f'FROM {IMAGE}\nRUN echo from the Dockerfile > /built\nENTRYPOINT ["/bin/false"]\n'
    )
    orchestrate = Orchestrate(tmp_path, database, environment_of(engine))
    ended = orchestrate("submit", "experiment.yaml", "--inline", cwd=folder)
    assert ended.code == 0, ended.out + ended.err
    assert ours(engine) == []


def test_single_hosts_are_let_through_to_setup_and_agent(engine: str, tmp_path: Path, database: str) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), Tells) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        body = ASKS.format(allowed=port, other=port + 1)
        folder = project(tmp_path / "project", body, image=IMAGE, network=[f"127.0.0.1:{port}"])
        (folder / "evals" / "asking").mkdir()
        (folder / "evals" / "asking" / "ask").write_text(ASK)
        orchestrate = Orchestrate(tmp_path, database, environment_of(engine))
        ended = orchestrate("submit", "experiment.yaml", "--inline", cwd=folder)
        server.shutdown()
    assert ended.code == 0, ended.out + ended.err


def test_containers_of_a_killed_run_are_listed_and_reaped(engine: str, tmp_path: Path, database: str) -> None:
    seconds = forever()
    folder = project(tmp_path / "project", SLEEPS.format(seconds=seconds), image=IMAGE)
    orchestrate = Orchestrate(tmp_path, database, environment_of(engine))
    with orchestrate.start("submit", "experiment.yaml", "--inline", cwd=folder) as process:
        began = time.monotonic()
        while alive(seconds) < 3:
            assert time.monotonic() - began < PATIENCE and process.poll() is None
            time.sleep(0.1)
        process.kill()
        process.communicate()
    assert len(ours(engine)) == 3
    (listed,) = orchestrate("sandboxes", "--orphans", "--json").values
    assert {view["standing"] for view in listed["sandboxes"]} == {"orphan"}
    (reaped,) = orchestrate("sandboxes", "--reap", "--json").values
    assert len(reaped["removed"]) == 3
    assert (ours(engine), alive(seconds)) == ([], 0)


def test_without_an_engine_nothing_is_spent_and_one_line_says_why(tmp_path: Path, database: str) -> None:
    folder = project(tmp_path / "project", SLEEPS.format(seconds=1), image=IMAGE)
    away = {"EVALFLEET_CONTAINER_ENGINE": "docker", "DOCKER_HOST": f"unix://{tmp_path}/nobody.sock"}
    ended = Orchestrate(tmp_path, database, away)("submit", "experiment.yaml", "--inline", cwd=folder)
    assert ended.code != 0
    assert "no container engine answers" in ended.err and "EVALFLEET_CONTAINER_ENGINE" in ended.err
    assert len(ended.err.splitlines()) == 1
