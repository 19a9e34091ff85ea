"""An agent that speaks the Agent Client Protocol as tests want it: `python agent.py` in a sandbox of this machine."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

HOW: dict[str, Any] = json.loads(os.environ.get("HOW", "{}"))
heard: list[str] = []
asked = 100


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def update(told: str, /, **fields: Any) -> None:
    say(method="session/update", params={"sessionId": "s1", "update": {"sessionUpdate": told, **fields}})


def speak(text: str) -> None:
    for piece in (text[:3], text[3:]):
        update("agent_message_chunk", content={"type": "text", "text": piece})


def read() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(9)
    return json.loads(line)


def permitted(identifier: str) -> bool:
    global asked
    asked += 1
    options = [
        {"optionId": "approve", "name": "Allow", "kind": "allow_once"},
        {"optionId": "deny", "name": "Deny", "kind": "reject_once"},
    ]
    call = {"toolCallId": identifier, "title": "careful", "rawInput": {"path": "/x"}}
    say(id=asked, method="session/request_permission", params={"sessionId": "s1", "toolCall": call, "options": options})
    while True:
        message = read()
        if message.get("id") == asked and "method" not in message:
            return message["result"]["outcome"].get("optionId") == "approve"


def use(name: str, number: int) -> None:
    identifier = f"{name}-{number}"
    update("tool_call", toolCallId=identifier, title=name, kind="execute", status="pending", rawInput={})
    update("tool_call_update", toolCallId=identifier, status="in_progress", rawInput={"command": name})
    failed = name == "fail"
    if name in ("careful", "reject"):
        failed = not permitted(identifier)
    update(
        "tool_call_update", toolCallId=identifier, status="failed" if failed else "completed", rawOutput={"said": name}
    )


def prompt(number: int, text: str) -> None:
    heard.append(text)
    if text == "forever":
        time.sleep(3600)
    if text == "break":
        say(id=number, error={"code": -32603, "message": "broken on order", "data": {"why": "asked"}})
        return
    if text == "die":
        sys.stderr.write("out of luck\n")
        os._exit(3)
    if text == "flood":
        sys.stdout.write("x" * (80 << 20))
        time.sleep(3600)
    if text == "files":
        say(id=77, method="fs/read_text_file", params={"path": "/etc/passwd"})
        speak(read()["error"]["message"])
    if text.startswith("use "):
        for place, name in enumerate(text.split()[1:]):
            use(name, len(heard) * 10 + place)
    reason = text.removeprefix("stop ") if text.startswith("stop ") else "end_turn"
    if text != "say nothing" and text != "files":
        speak(" ".join(heard) if text == "recall" else text)
    say(id=number, result={"stopReason": reason})


sys.stdout.write("ready v1\n")
while True:
    message = read()
    number, params = message.get("id"), message.get("params", {})
    match message.get("method"):
        case "initialize":
            capabilities = {"mcpCapabilities": {"http": HOW.get("http", True)}}
            info = {"name": "fake", "version": "1.2"}
            result = {"protocolVersion": HOW.get("speaks", 1), "agentCapabilities": capabilities, "agentInfo": info}
            say(id=number, result=result)
        case "session/new" if HOW.get("locked"):
            say(id=number, error={"code": -32000, "message": "Authentication required"})
        case "session/new":
            models = {"currentModelId": "old", "availableModels": [{"modelId": "old"}, {"modelId": "m"}]}
            say(id=number, result={"sessionId": "s1", "models": models})
            opened = params
        case "session/set_model" | "session/set_mode":
            opened |= params
            say(id=number, result={})
        case "session/prompt" if params["prompt"][0]["text"] == "how":
            speak(json.dumps({"opened": opened, "env": {k: v for k, v in os.environ.items() if k.startswith("OWN_")}}))
            say(id=number, result={"stopReason": "end_turn"})
        case "session/prompt":
            prompt(number, params["prompt"][0]["text"])
