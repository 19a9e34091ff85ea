"""One eval against models that speak every API there is, and an AI SDK chat: the same verdict, calls and tokens."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalfleet.testing.http_endpoint import HttpEndpoint, Reply, Request
from evalfleet.testing.model_endpoint import ModelEndpoint
from evalfleet.testing.model_turn import ModelTurn, ScriptedCall, ScriptedUsage

if TYPE_CHECKING:
    from tests.acceptance.cli.conftest import Orchestrate

TOOLS = """
from evalfleet import tool


@tool
def price(of: str) -> int:
    return 3
"""
EVAL = """
from evalfleet import T, define_eval, includes, json_match, tool_match


@define_eval
async def asks(t: T) -> None:
    turn = await t.send("What does a café cost?")
    turn.succeeded()
    turn.called_tool(tool_match("price", input=json_match({"of": "café"})).exactly(1))
    turn.no_failed_actions()
    turn.max_tokens(100)
    t.check(t.reply, includes("3 €"))
    again = await t.send("Thanks.")
    again.used_no_tools()
"""
SCRIPT = [
    ModelTurn(text="Looking.", thinking="Look it up.", calls=(ScriptedCall("price", {"of": "café"}),)),
    ModelTurn(text="It costs 3 €.", usage=ScriptedUsage(input=20, output=6, cache_read=10)),
    ModelTurn(text="You're welcome."),
]
CALL = {"toolCallId": "c1", "toolName": "price", "input": {"of": "café"}}
CHAT = [
    [{"type": "start", "messageId": "m"}, {"type": "tool-input-available", **CALL},
     {"type": "tool-output-available", "toolCallId": "c1", "output": 3}],
    [{"type": "start", "messageId": "n"}],
]  # fmt: skip


def chat(request: Request) -> Reply:
    told = CHAT[len(request.json["messages"]) // 2]
    said = {"type": "text-delta", "id": "t", "delta": "It costs 3 €."}
    finish = {"type": "finish", "messageMetadata": {"usage": {"inputTokens": 20, "outputTokens": 6}}}
    body = tuple(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in (*told, said, finish))
    headers = {"content-type": "text/event-stream", "x-vercel-ai-ui-message-stream": "v1"}
    return Reply(headers=headers, body=(*body, b"data: [DONE]\n\n"))


def arms(model: ModelEndpoint, app: HttpEndpoint) -> dict[str, Any]:
    tools = {"model": "scripted", "tools": ["shop_tools:price"], "stream": True}
    usage = {"input_tokens": "metadata.usage.inputTokens", "output_tokens": "metadata.usage.outputTokens"}
    return {
        "chat": {"adapter": "openai", "base_url": model.base_url, **tools},
        "responses": {"adapter": "openai", "api": "responses", "base_url": model.base_url, **tools},
        "messages": {"adapter": "anthropic", "base_url": model.url, **tools},
        "app": {
            "adapter": "http",
            "url": f"{app.url}/api/chat",
            "request": {"id": "${case}", "messages": "${messages}"},
            "response": {"stream": "ui-message", "usage": usage},
        },
    }


def test_every_api_gives_the_same_evidence(orchestrate: Orchestrate, tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "asks.eval.py").write_text(EVAL)
    (tmp_path / "shop_tools.py").write_text(TOOLS)

    async def run() -> tuple[Any, ModelEndpoint]:
        async with ModelEndpoint(SCRIPT * 3) as model, HttpEndpoint(chat) as app:
            experiment = {"schema_version": 1, "name": "apis", "arms": arms(model, app), "limits": {"concurrency": 1}}
            (tmp_path / "experiment.yaml").write_text(json.dumps(experiment))
            command = ("submit", "experiment.yaml", "--inline", "--json")
            return await asyncio.to_thread(lambda: orchestrate(*command, cwd=tmp_path)), model

    ended, model = asyncio.run(run())
    assert ended.code == 0, ended.err
    assert ended.values[-1]["totals"]["passed"] == 4, ended.out
    assert (model.answered, model.left) == (9, 0)
    targets = {request.target for request in model.requests}
    assert targets == {"/v1/chat/completions", "/v1/responses", "/v1/messages"}
    assert model.usage == ScriptedUsage(input=120, output=48, cache_read=30)
