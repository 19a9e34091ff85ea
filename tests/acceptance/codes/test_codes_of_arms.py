"""Each code that comes from an agent's end of the line, triggered in a real run and read back from the record store."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evalfleet.testing.http_endpoint import HttpEndpoint, Reply, Request, json_reply
from evalfleet.testing.model_endpoint import completion, sse
from tests.acceptance.codes.bodies import cases_of, submit
from tests.acceptance.codes.other_package import with_other_package

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

EVAL = """
from evalfleet import InputFile, define_eval

@define_eval(description="Says what the arm is to hear.")
async def says(t):
    files = [InputFile("a.txt", "text/plain", b"x")] if t.flags.get("file") else []
    (await t.send(t.flags.get("say", "hello"), files=files)).succeeded()
"""

STREAM = {"content-type": "text/event-stream"}
BEGUN = sse(json.dumps({"choices": [{"index": 0, "delta": {"content": "He"}, "finish_reason": None}]}))

#: What the endpoint answers at each path.
ANSWERS = {
    "429": Reply(status=429),
    "401": Reply(status=401),
    "503": Reply(status=503),
    "400": json_reply({"error": {"message": "no", "code": "bad"}}, 400),
    "302": Reply(status=302, headers={"location": "http://127.0.0.1:1/"}),
    "html": Reply(headers={"content-type": "text/html"}, body=b"<html>"),
    "drop": Reply(drop=True),
    "silent": Reply(silent=True),
    "error": json_reply({"error": {"message": "overloaded", "code": "server_error"}}),
    "empty": json_reply(completion("", usage=None)),
    "cut": Reply(headers=STREAM, body=(BEGUN,)),
    "quota": json_reply({"error": {"message": "no money", "code": "insufficient_quota"}}, 429),
}


def http(path: str, **more: Any) -> dict[str, Any]:
    return {"adapter": "http", "url": f"URL/{path}", "max_retries": 0, "response": {"reply": "reply"}, **more}


def openai(path: str, **more: Any) -> dict[str, Any]:
    return {"adapter": "openai", "model": "m", "base_url": f"URL/{path}", "max_retries": 0, **more}


def scripted(**more: Any) -> dict[str, Any]:
    return {"adapter": "scripted", **more}


def rude(does: str) -> dict[str, Any]:
    return {"adapter": "rude", "does": does}


#: An arm for each code, and whose fault it is.
ARMS: dict[str, tuple[dict[str, Any], str]] = {
    "RATE_LIMITED": (http("429"), "provider"),
    "QUOTA_EXHAUSTED": (openai("quota"), "provider"),
    "AUTHENTICATION_FAILED": (http("401"), "adapter"),
    "PROVIDER_UNAVAILABLE": (http("503"), "provider"),
    "REQUEST_REFUSED": (http("400"), "adapter"),
    "REQUEST_REDIRECTED": (http("302"), "adapter"),
    "BAD_RESPONSE": (http("html"), "provider"),
    "CONNECTION_BROKEN": (http("drop"), "provider"),
    "CONNECTION_REFUSED": ({**http(""), "url": "http://127.0.0.1:9"}, "provider"),
    "PROVIDER_TIMEOUT": (http("silent", timeout=0.2), "provider"),
    "REQUEST_INVALID": (http("html", headers={"x-note": "two\nlines"}), "adapter"),
    "PROVIDER_ERROR": (openai("error"), "provider"),
    "EMPTY_RESPONSE": (openai("empty"), "provider"),
    "STREAM_CUT": (openai("cut", stream=True), "provider"),
    "INPUT_UNSUPPORTED": (http("html", flags={"file": True}), "adapter"),
    "DIRECTIVE_INVALID": (scripted(directives=True, flags={"say": "[[spin: no]]"}), "authoring"),
    "SCRIPTED_FAILURE": (scripted(rules=[{"fail": {"kind": "agent"}}]), "agent"),
    "ADAPTER_RAISED": (rude("raises"), "adapter"),
    "SESSION_OPEN_FAILED": (rude("does not open"), "adapter"),
    "ADAPTER_CANCELLED": (rude("cancels itself"), "adapter"),
    "NO_COVERAGE": (rude("declares nothing"), "adapter"),
    "SESSION_CLOSE_FAILED": (rude("does not close"), "adapter"),
    "STAGE_CANCELLED": (rude("cancels its closing"), "adapter"),
}


def handler(request: Request) -> Reply:
    return ANSWERS[request.target.split("/")[1]]


@pytest.fixture(scope="module")
def cases(orchestrate: Orchestrate, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    project: Path = tmp_path_factory.mktemp("project")
    (project / "evals").mkdir()
    (project / "evals" / "says.eval.py").write_text(EVAL)

    command = with_other_package(orchestrate, tmp_path_factory.mktemp("package"))

    async def run() -> dict[str, Any]:
        async with HttpEndpoint(handler) as endpoint:
            written = json.dumps({name.lower(): arm for name, (arm, _) in ARMS.items()})
            arms = json.loads(written.replace("URL", endpoint.url))
            ended = await asyncio.to_thread(submit, command, project, {"arms": arms})
        return cases_of(orchestrate, ended, key="arm")

    return asyncio.run(run())


@pytest.mark.parametrize("code", ARMS)
def test_a_code_of_an_arm(cases: dict[str, Any], code: str) -> None:
    case = cases[code.lower()]
    assert (case["status"], case["kind"], case["code"]) == ("errored", ARMS[code][1], code), json.dumps(case)
