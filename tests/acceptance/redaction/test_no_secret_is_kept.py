"""Fifty secrets, said by agents, tools, commands, judges, errors and prints in every place there is: none is kept."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evalfleet.testing.http_endpoint import Request
from evalfleet.testing.judge_endpoint import ticket
from evalfleet.testing.model_endpoint import ModelEndpoint, completion
from tests.acceptance.cli.conftest import Orchestrate
from tests.acceptance.redaction.leaks import files, found, stored

pytestmark = [pytest.mark.ray, pytest.mark.timeout(200)]

#: Said in all the same places, and secret to nobody: what finds no secret has to find this.
OPEN = "open-value-0123456789-abcdef"

AGENT = """
import asyncio, json, os, urllib.request
from evalfleet import COMPLETE_COVERAGE, Message, OperationFinished, OperationStarted, Role, SendFailure, Thinking, Turn
from evalfleet import sandbox_agent
from evalfleet.sandbox_ports import Command


def sends_a_span(ctx, said):
    named = {"key": said, "value": {"stringValue": f"spanned {said}"}}
    span = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": f"span {said}", "attributes": [named]}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    address = ctx.otel_env()["OTEL_EXPORTER_OTLP_ENDPOINT"] + "/v1/traces"
    asked = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked).read()


@sandbox_agent(coverage=COMPLETE_COVERAGE)
async def leaky(turn, ctx):
    number = int(turn.text.split()[0])
    name = f"HIDDEN_{number:02d}"
    said = os.environ[name] if number >= 40 else ctx.secrets.resolve(name)
    said = f"{said} {os.environ['OPEN_VALUE']}"
    if number == 7:
        said = f"{said} tok_{'a1' * 10}"
    print("printed", said, flush=True)
    ctx.log(f"logged {said}")
    await ctx.sandbox.write(f"{name}.txt", f"written {said}\\n".encode())
    ran = await ctx.sandbox.run(Command(argv=("sh", "-c", 'echo "$0"; echo "$0" >&2', said)))
    await asyncio.to_thread(sends_a_span, ctx, said)
    if number % 10 == 9:
        raise SendFailure(f"refused for {said}", partial=Turn(reply=f"partly {said}"))
    events = (
        Thinking(f"thought {said}"),
        OperationStarted("1", f"tool {said}", {"header": f"Bearer {said}", said: [said]}),
        OperationFinished("1", output={"out": ran.text, "err": ran.stderr.decode()}),
        OperationStarted("2", "raw", raw_input=f"raw {said}"),
        Message(Role.ASSISTANT, f"said {said}"),
    )
    return Turn(reply=f"replied {said} " + "x" * 150 + said, data={"key": said, said: 1}, events=events)
"""
EVAL = """
import os
from evalfleet import Dataset, T, define_eval, equals, includes


@define_eval(dataset=Dataset.jsonl("rows.jsonl"), judge=True)
async def leaks(t: T, row) -> None:
    number = row["number"]
    secret = os.environ[f"HIDDEN_{number:02d}"]
    t.log(f"noted {secret}")
    turn = await t.send(f"{number} is to use {secret}")
    t.check(turn.reply, includes(secret))
    t.check(turn.reply, equals(f"only {secret}"))
    t.check({"deep": [turn.reply, secret]}, equals({"deep": [secret]})).label(f"named {secret}")
    t.called_tool(f"tool {secret} {os.environ['OPEN_VALUE']}")
    turn.judge.closed_qa(f"Was {secret} said?").gate(0.5)
    if number % 10 == 3:
        raise ValueError(f"the body broke over {secret}")
"""
EXPERIMENT = """
schema_version: 1
name: leaks
arms:
  mine: {{adapter: python, entry: "leaky_agent:leaky", sandbox: {{backend: local}}}}
judge: {{model: judge-m, base_url: "{url}", api_key_env: HIDDEN_39}}
redact: {{env: [{env}], patterns: ["tok_[a-z0-9]{{20}}"]}}
telemetry: {{receive: true, grace: 0.1}}
retry: {{max_attempts: 1}}
limits: {{concurrency: 10}}
"""


def _secrets() -> dict[str, str]:
    """Fifty values of the shapes that keys, passwords and tokens have, the same in each run of this test."""
    made = random.Random(50)
    shapes = (
        "sk-{}",
        "p\"a's$s/{}+=&?",
        "-----BEGIN KEY-----\n{}\n-----END KEY-----",
        "pässwört-{}-ß",
        "eyJ{}.{}==",
    )
    return {
        f"HIDDEN_{number:02d}": shapes[number % 5].format(*(f"{made.getrandbits(96):024x}" for _ in range(2)))
        for number in range(50)
    }


def _judge(request: Request) -> dict[str, Any]:
    """Rules, and repeats all that it was told."""
    told = "\n".join(str(message["content"]) for message in request.json["messages"])
    if "ready" in told and "ticket" not in told:
        return completion('{"ready": true}')
    return completion(json.dumps({"ticket": ticket(request), "rationale": f"I was told: {told}", "verdict": "yes"}))


@dataclass(frozen=True)
class Swept:
    """A run that is over: its id, its secrets, where it left something, and what its commands printed."""

    run: str
    secrets: dict[str, str]
    url: str
    folders: tuple[Path, ...]
    printed: tuple[tuple[str, str], ...]


@pytest.fixture(scope="module")
def swept(orchestrate: Orchestrate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swept]:
    ray = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    project = tmp_path_factory.mktemp("project")
    try:
        yield asyncio.run(_sweep(orchestrate, project, ray))
    finally:
        shutil.rmtree(ray, ignore_errors=True)


async def _sweep(orchestrate: Orchestrate, project: Path, ray: Path) -> Swept:
    secrets = _secrets()
    async with ModelEndpoint(otherwise=_judge) as endpoint:
        env = ", ".join(name for name in secrets if name >= "HIDDEN_40")
        for name, text in {
            "leaky_agent.py": AGENT,
            "evals/leaks.eval.py": EVAL,
            "evals/rows.jsonl": "".join(f'{{"number": {number}}}\n' for number in range(50)),
            "experiment.yaml": EXPERIMENT.format(url=endpoint.base_url, env=env),
        }.items():
            (project / name).parent.mkdir(exist_ok=True)
            (project / name).write_text(text, encoding="utf-8")
        variables = {**orchestrate.variables, **secrets, "OPEN_VALUE": OPEN, "RAY_TMPDIR": str(ray)}
        mine = Orchestrate(orchestrate.home, orchestrate.database_url, variables)
        printed: list[tuple[str, str]] = []

        async def command(*arguments: str) -> str:
            ended = await asyncio.to_thread(mine, *arguments, cwd=project)
            printed.extend((f"orchestrate {arguments[0]}", text) for text in (ended.out, ended.err))
            return ended.out

        out = await command("submit", "experiment.yaml", "--json")
        summary = json.loads(out.splitlines()[-1])
        assert summary.get("run", {}).get("total") == 50, printed
        run = summary["run"]["id"]
        await command("export", run, str(project / "run.export"))
        for arguments in (("report", run, "--format", "json"), ("report", run, "--format", "markdown"), ("show", run)):
            await command(*arguments)
        await command("show", run, "leaks/0000", "--json", "--text")
        await command("show", run, "leaks/0009")
        await command("show", run, "leaks/0007", "--spans")
    folders = (ray, orchestrate.home, project / "run.export")
    return Swept(run, secrets, orchestrate.database_url, folders, tuple(printed))


def test_none_stands_in_postgres(swept: Swept) -> None:
    texts = list(stored(swept.url))
    assert found(swept.secrets, texts) == set()
    assert found({"token": "tok_" + "a1" * 10}, texts) == set()
    places = {place for _, place in found({"open": OPEN}, texts)}
    assert places >= {
        "attempts.record",
        "attempts.reply",
        "attempts.message",
        "tool_calls.name",
        "judge_calls.reply",
        "span_batches.body",
    }


def test_none_stands_in_artifacts_logs_exports_and_what_ray_keeps(swept: Swept) -> None:
    texts = list(files(swept.folders))
    assert found(swept.secrets, texts) == set()
    places = {place for _, place in found({"open": OPEN}, texts)}
    assert any("logs/worker-" in place for place in places), "what the agent printed is in a log of Ray's"


def test_none_is_printed(swept: Swept) -> None:
    assert found(swept.secrets, swept.printed) == set()
    assert {place for _, place in found({"open": OPEN}, swept.printed)} >= {"orchestrate report", "orchestrate show"}


def test_the_cases_were_judged_by_what_was_said(swept: Swept, orchestrate: Orchestrate) -> None:
    (case,) = orchestrate("show", swept.run, "leaks/0000", "--json").values
    results = [row["outcome"]["result"] for row in case["attempt"]["assertions"]]
    assert results == ["matched", "mismatched", "mismatched", "matched", "matched"]
    assert "named [secret]" in json.dumps(case)
