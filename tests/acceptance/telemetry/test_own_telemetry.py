"""evalfleet's own spans and metrics at a collector: from a run in this process, and from one on Ray."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evalfleet.telemetry.traces import root_span
from evalfleet.testing.http_endpoint import HttpEndpoint, Reply, Request

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

HELLO = """
from evalfleet import define_eval, equals


@define_eval
async def body(t):
    turn = await t.send("hi")
    turn.succeeded()
    t.check(turn.reply, equals("hi")).label("echoed")
"""
OTHER = """
from evalfleet import define_eval


@define_eval
async def body(t):
    await t.send("sk-collector-key")
    raise ValueError("no sk-collector-key here")
"""
EXPERIMENT = """
schema_version: 1
name: told
repetitions: 2
arms:
  parrot: {{adapter: scripted, replies: [hi]}}
retry: {{max_attempts: 1}}
telemetry: {{export: "{url}", export_headers_env: COLLECTOR_HEADERS{more}}}
"""
HEADERS = "x-api-key=sk-collector-key,x-team=evals%20and%20more"


class Collector(HttpEndpoint):
    """Takes what comes, as a collector does, or refuses all of it."""

    def __init__(self, status: int = 200) -> None:
        super().__init__(self._take)
        self.status = status

    def _take(self, request: Request) -> Reply:
        return Reply(status=self.status, headers={"content-type": "application/x-protobuf"}, body=b"")

    def bodies(self, path: str) -> list[bytes]:
        found = [request for request in self.requests if request.target == path]
        return [gzip.decompress(each.body) if each.body[:2] == b"\x1f\x8b" else each.body for each in found]

    def spans(self) -> list[Any]:
        found: list[Any] = []
        for body in self.bodies("/v1/traces"):
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                found += [span for scope in resource.scope_spans for span in scope.spans]
        return found

    def metrics(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for body in self.bodies("/v1/metrics"):
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                found |= {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
        return found


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def written(folder: Path, url: str, more: str = "") -> Path:
    (folder / "evals").mkdir(parents=True)
    (folder / "evals" / "hello.eval.py").write_text(HELLO)
    (folder / "evals" / "other.eval.py").write_text(OTHER)
    (folder / "experiment.yaml").write_text(EXPERIMENT.format(url=url, more=more))
    return folder


@pytest.mark.parametrize(
    "how", [["--inline"], pytest.param(["--workers", "1"], marks=pytest.mark.ray)], ids=["inline", "ray"]
)
async def test_a_collector_has_each_attempt_as_a_trace(
    orchestrate: Orchestrate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: list[str]
) -> None:
    monkeypatch.setenv("COLLECTOR_HEADERS", HEADERS)
    async with Collector() as collector:
        folder = written(tmp_path, collector.url)
        ended = await asyncio.to_thread(lambda: orchestrate("submit", "experiment.yaml", "--json", *how, cwd=folder))
        spans, metrics = collector.spans(), collector.metrics()
        assert {request.headers["x-api-key"] for request in collector.requests} == {"sk-collector-key"}
        assert {request.headers["x-team"] for request in collector.requests} == {"evals and more"}
        said = b"".join(collector.bodies("/v1/traces"))
    run = ended.values[-1]["run"]["id"]
    roots = [span for span in spans if not span.parent_span_id]
    assert Counter(span.name for span in roots) == {"attempt hello": 2, "attempt other": 2}
    assert all(span.span_id.hex() == root_span(span.trace_id.hex()) for span in roots)
    assert len({span.trace_id for span in spans}) == 4
    turns = [span for span in spans if span.name == "invoke_agent parrot"]
    assert len(turns) == 4
    by_trace = {span.trace_id: span for span in roots}
    for turn in turns:
        root = by_trace[turn.trace_id]
        assert turn.parent_span_id == root.span_id
        assert root.start_time_unix_nano <= turn.start_time_unix_nano
        assert attributes(turn)["gen_ai.operation.name"] == "invoke_agent"
    hello = next(span for span in roots if span.name == "attempt hello")
    told = attributes(hello)
    assert (told["evalfleet.run"], told["evalfleet.arm"], told["evalfleet.verdict"]) == (run, "parrot", "passed")
    results = [attributes(event) for event in hello.events if event.name == "gen_ai.evaluation.result"]
    labels = [(each["gen_ai.evaluation.name"], each["gen_ai.evaluation.score.label"]) for each in results]
    assert labels == [("succeeded", "pass"), ("echoed", "pass"), ("verdict", "passed")]
    broken = next(span for span in roots if span.name == "attempt other")
    assert broken.status.code == broken.status.STATUS_CODE_ERROR
    assert attributes(broken)["error.type"] == "EVAL_RAISED"
    assert b"sk-collector-key" not in said
    points = metrics["evalfleet.attempts"].sum.data_points
    assert sum(point.as_int for point in points) == 4
    assert sum(point.count for point in metrics["evalfleet.attempt.duration"].histogram.data_points) == 4


@pytest.mark.parametrize("away", ["nowhere", "refuses"])
async def test_a_collector_that_is_away_costs_spans_and_nothing_else(
    orchestrate: Orchestrate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    monkeypatch.setenv("COLLECTOR_HEADERS", HEADERS)
    async with Collector(status=503) as collector:
        url = collector.url if away == "refuses" else "http://127.0.0.1:9"
        folder = written(tmp_path, url)
        ended = await asyncio.to_thread(
            lambda: orchestrate("submit", "experiment.yaml", "--inline", "--json", cwd=folder)
        )
    assert ended.values[-1]["totals"]["passed"] == 2


@pytest.mark.parametrize(
    ("value", "says"), [(None, "COLLECTOR_HEADERS is not set"), ("no list", "no list of name=value")]
)
def test_headers_that_are_none_are_told(
    orchestrate: Orchestrate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None, says: str
) -> None:
    if value is not None:
        monkeypatch.setenv("COLLECTOR_HEADERS", value)
    ended = orchestrate("submit", "experiment.yaml", "--inline", cwd=written(tmp_path, "http://127.0.0.1:9"))
    assert ended.code not in (0, 1)
    assert says in ended.err, json.dumps(ended.err)
