"""What Ray is given of a run as arguments of its actors: names of secrets, and no value of any."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from evalfleet.api.coordination import coordinator_blueprint
from evalfleet.api.options import PlanOptions
from evalfleet.api.planned import Request, blueprint_of, plan_request
from evalfleet.api.working import WorkerBlueprint
from evalfleet.settings import Settings

EVAL = """
from evalfleet import SandboxSpec, define_eval


@define_eval
async def body(t):
    t.judge.closed_qa("Is it?")
"""
EXPERIMENT = """
schema_version: 1
name: secrets
arms:
  asked: {adapter: openai, model: m, api_key_env: HIDDEN_0, max_tokens: 9}
  boxed:
    adapter: cli
    agent: codex
    model: m
    api_key_env: HIDDEN_1
    sandbox: {backend: bubblewrap, env_from: [HIDDEN_2]}
  spoken:
    adapter: http
    url: "http://127.0.0.1:9/"
    headers_env: {authorization: HIDDEN_3}
judge: {model: judge-m, base_url: "http://127.0.0.1:9/v1", api_key_env: HIDDEN_4}
redact: {env: [HIDDEN_5]}
telemetry: {export: "http://127.0.0.1:9", export_headers_env: HIDDEN_6}
"""
SECRETS = {f"HIDDEN_{number}": f"x-api-key=sk-{number:032d}" for number in range(7)}


async def test_no_secret_is_an_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "one.eval.py").write_text(EVAL)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    request = Request.of(tmp_path / "experiment.yaml", (), PlanOptions())
    plan = await plan_request(request)
    settings = Settings(state_dir=tmp_path / "state", artifacts="s3://evals/artifacts")
    run = blueprint_of(plan, request, "r1", settings, "postgresql:///evals")
    worker, coordinator = pickle.dumps(WorkerBlueprint(run)), pickle.dumps(coordinator_blueprint(run))
    for data in (worker, coordinator):
        assert [name for name, value in SECRETS.items() if value.partition("=")[2].encode() in data] == []
    assert [name for name in SECRETS if name.encode() not in worker] == [], "they travel by their names"
