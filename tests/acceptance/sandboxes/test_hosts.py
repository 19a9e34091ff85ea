"""A run whose agent may reach one host: it does, nothing else answers, and what was refused is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

AGENT = """
from evalfleet import COMPLETE_COVERAGE, Turn, sandbox_agent
from evalfleet.sandbox_ports import Command

@sandbox_agent(coverage=COMPLETE_COVERAGE)
async def worker(turn, ctx):
    result = await ctx.sandbox.run(Command(argv=("python", "ask.py", *turn.text.split())))
    return Turn(reply=result.text + result.stderr.decode())
"""
ASK = r"""
import socket, sys, base64, os, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["https_proxy"])
secret = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
for target in sys.argv[1:]:
    with socket.create_connection((proxy.hostname, proxy.port)) as way:
        head = (f"CONNECT {target} HTTP/1.1", f"Host: {target}", f"Proxy-Authorization: Basic {secret}", "", "")
        way.sendall("\r\n".join(head).encode())
        status = way.recv(4096).split()[1].decode()
        body = ""
        if status == "200":
            way.sendall(b"GET / HTTP/1.0\r\n\r\n")
            while piece := way.recv(4096):
                body += piece.decode()
        print(status, body.rpartition("\n")[2])
"""
EVAL = """
from evalfleet import SandboxSpec, define_eval, equals

HOST = "127.0.0.1:{port}"
SETUP = (f"python ask.py {HOST} > setup.txt",)

@define_eval(sandbox=SandboxSpec(backend="bubblewrap", files="asking", setup=SETUP, network=(HOST,)))
async def body(t):
    t.check(await t.sandbox.read_text("setup.txt"), equals("200 hello\\n"))
    turn = await t.send(f"{HOST} example.org:443")
    t.check(turn.reply, equals("200 hello\\n403 \\n"))
"""
EXPERIMENT = """
schema_version: 1
name: hosts
arms:
  own: {adapter: python, entry: "own_agent:worker"}
"""


class Greeting(BaseHTTPRequestHandler):
    """Says hello."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Greeting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_setup_and_agent_reach_the_hosts_of_their_plan_and_no_other(
    orchestrate: Orchestrate, tmp_path: Path, port: int
) -> None:
    (tmp_path / "evals" / "asking").mkdir(parents=True)
    (tmp_path / "evals" / "asking" / "ask.py").write_text(ASK)
    (tmp_path / "evals" / "hosts.eval.py").write_text(EVAL.replace("{port}", str(port)))
    (tmp_path / "own_agent.py").write_text(AGENT)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    ended = orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=tmp_path)
    assert ended.code == 0, orchestrate("show", ended.values[-1]["run"]["id"], "0", "--diagnostics").out
    run = ended.values[-1]["run"]["id"]
    shown = orchestrate("show", run, "0", "--diagnostics").out
    assert "refused hosts that network does not allow: example.org:443" in shown
