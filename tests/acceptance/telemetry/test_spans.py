"""Agents that send spans with OpenTelemetry's own SDK: from closed sandboxes, from the host, and from elsewhere."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import propagate
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.acceptance.codes.bodies import cases_of, submit

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

#: What an agent runs: its own environment alone says where its spans go, and whose they are.
PROGRAM = f"""
import os, sys
sys.path[:0] = {[path for path in sys.path if path.endswith("site-packages")]!r}
from opentelemetry import propagate
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
tracer = provider.get_tracer("agent")
parent = propagate.extract({{"traceparent": os.environ["TRACEPARENT"]}})
said = {{"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5", "gen_ai.usage.input_tokens": 12}}
with tracer.start_as_current_span("turn", context=parent, attributes={{"number": sys.argv[1]}}):
    tracer.start_span("chat gpt-5", attributes={{**said, "key": os.environ.get("SHOP_KEY", "none")}}).end()
provider.shutdown()
print("sent")
"""
AGENTS = f"""
import asyncio, os, subprocess, sys
from evalfleet import COMPLETE_COVERAGE, Turn, agent, sandbox_agent
from evalfleet.sandbox_ports import Command

PROGRAM = {PROGRAM!r}
COVERAGE = COMPLETE_COVERAGE

@sandbox_agent(coverage=COVERAGE)
async def boxed(turn, ctx):
    done = await ctx.sandbox.run(Command(argv=(sys.executable, "-c", PROGRAM, turn.text)))
    return Turn(reply=done.text + done.stderr.decode()[-500:])

@agent(coverage=COVERAGE)
async def direct(turn, ctx):
    command = [sys.executable, "-c", PROGRAM, turn.text]
    environment = {{**os.environ, **ctx.otel_env(), "NO_PROXY": "*"}}
    done = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, text=True)
    return Turn(reply=done.stdout + done.stderr[-500:])
"""
EVAL = """
from evalfleet import Dataset, T, define_eval, includes

@define_eval(description="Sends spans", dataset=Dataset.jsonl("rows.jsonl"))
async def sends(t: T, row):
    turn = await t.send(row["n"])
    t.check(turn.reply, includes("sent"))
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextmanager
def app(port: int) -> Iterator[str]:
    """An agent that runs elsewhere: it knows one receiver, and of each request its `traceparent`."""
    provider = TracerProvider()
    exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{port}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("app")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            parent = propagate.extract(dict(self.headers.items()))
            tracer.start_span("turn", context=parent, attributes={"number": asked["text"]}).end()
            tracer.start_span("of nobody").end()
            body = b'{"reply": "sent"}'
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            provider.shutdown()


def project(folder: Path) -> Path:
    (folder / "evals").mkdir()
    (folder / "evals" / "sends.eval.py").write_text(EVAL)
    (folder / "evals" / "rows.jsonl").write_text("".join(f'{{"n": "{number}"}}\n' for number in range(3)))
    (folder / "my_agents.py").write_text(AGENTS)
    return folder


def spans_of(orchestrate: Orchestrate, case: dict[str, Any]) -> list[dict[str, Any]]:
    (value,) = orchestrate("show", case["run"], str(case["case"]), "--spans", "--json").values
    return value["spans"]


def test_spans_of_every_kind_of_agent_are_its_own_attempts(
    orchestrate: Orchestrate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "sesame-sesame-1234")
    port = free_port()
    with app(port) as url:
        arms = {
            "closed": {
                "adapter": "python", "entry": "my_agents:boxed",
                "sandbox": {"backend": "bubblewrap", "env_from": ["SHOP_KEY"]},
            },
            "near": {"adapter": "python", "entry": "my_agents:boxed", "sandbox": {"backend": "local"}},
            "direct": {"adapter": "python", "entry": "my_agents:direct"},
            "app": {"adapter": "http", "url": url},
        }  # fmt: skip
        telemetry = {"receive": True, "port": port, "grace": 1}
        ended = submit(orchestrate, project(tmp_path), {"arms": arms, "telemetry": telemetry})
    cases = [{**case, "run": ended.values[-1]["run"]["id"]} for case in _cases(orchestrate, ended)]
    assert {case["status"] for case in cases} == {"passed"}, ended.out
    for case in cases:
        spans = spans_of(orchestrate, case)
        assert [span["name"] for span in spans] == ["turn", "chat gpt-5"][: 1 if case["arm"] == "app" else 2], case
        assert spans[0]["attributes"]["number"] == case["eval"][-1] and not spans[0]["orphan"]
        if case["arm"] == "closed":
            assert spans[1]["attributes"]["key"] == "[secret]"
    closed = next(case for case in cases if case["arm"] == "closed")
    text = orchestrate("show", closed["run"], str(closed["case"]), "--spans").out
    assert "2 spans over" in text and "    chat gpt-5" in text and "model gpt-5 · 12 in tokens" in text


def _cases(orchestrate: Orchestrate, ended: Any) -> list[dict[str, Any]]:
    return orchestrate("show", ended.values[-1]["run"]["id"], "--json").values


def test_a_port_that_is_taken_is_said_before_anything_runs(orchestrate: Orchestrate, tmp_path: Path) -> None:
    experiment = {"arms": {"parrot": {"adapter": "scripted"}}, "schema_version": 1, "name": "taken"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        experiment["telemetry"] = {"receive": True, "port": port}
        (project(tmp_path) / "experiment.yaml").write_text(json.dumps(experiment))
        ended = orchestrate("submit", "experiment.yaml", "--inline", cwd=tmp_path)
    assert ended.code == 2
    assert f"telemetry.port: {port} can't be listened at: Address already in use" in ended.err


def test_a_run_without_telemetry_tells_no_agent_of_any(orchestrate: Orchestrate, tmp_path: Path) -> None:
    arms = {"near": {"adapter": "python", "entry": "my_agents:boxed", "sandbox": {"backend": "local"}}}
    ended = submit(orchestrate, project(tmp_path), {"arms": arms}, "sends/0000")
    (case,) = cases_of(orchestrate, ended).values()
    assert case["status"] == "failed", "without TRACEPARENT its program breaks off"
    assert spans_of(orchestrate, case) == []
    assert orchestrate("show", case["run"], "0", "--spans").out == "no spans came of this attempt\n"


@pytest.mark.ray
def test_spans_are_there_when_a_run_on_ray_is_over(orchestrate: Orchestrate, tmp_path: Path) -> None:
    arms = {"mine": {"adapter": "python", "entry": "my_agents:boxed", "sandbox": {"backend": "bubblewrap"}}}
    experiment = {"schema_version": 1, "name": "ray", "arms": arms, "telemetry": {"receive": True}}
    (project(tmp_path) / "experiment.yaml").write_text(json.dumps(experiment))
    ended = orchestrate("submit", "experiment.yaml", "--workers", "2", "--json", cwd=tmp_path)
    assert ended.code == 0, ended.out + ended.err
    run = ended.values[-1]["run"]["id"]
    cases = orchestrate("show", run, "--json").values
    assert [len(spans_of(orchestrate, {**case, "run": run})) for case in cases] == [2, 2, 2]
