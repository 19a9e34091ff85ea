"""The conversation of an AI SDK chat as its messages hold it: what is sent, and what a stream makes of the answer.

A message is a list of parts. An answer that somebody had to allow goes on in the same message, with its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from evalfleet.model.turn import InputFile, InputResponse
from evalfleet_adapters.converters.untrusted import mapping, sequence, text

#: The option by which a person allows a call, and the one by which he does not.
APPROVE, DENY = "approve", "deny"

_TEXTS = {"text": "text", "reasoning": "reasoning"}


def user_message(identifier: str, said: str, files: Sequence[tuple[InputFile, str]]) -> dict[str, Any]:
    """What a user says; each file with its URL."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": said}] if said or not files else []
    parts += [{"type": "file", "mediaType": file.media_type, "filename": file.name, "url": url} for file, url in files]
    return {"id": identifier, "role": "user", "parts": parts}


def responded(messages: Sequence[dict[str, Any]], responses: Sequence[InputResponse]) -> list[dict[str, Any]]:
    """The messages with answers to the requests for approval in them; a request without an answer is denied."""
    answers = {response.request_id: response for response in responses}
    copied = deepcopy(list(messages))
    for part in _asking(copied):
        approval = mapping(part["approval"])
        answer = answers.get(str(approval.get("id")))
        allowed = answer is not None and answer.option_id == APPROVE
        reason = {"reason": answer.text} if answer is not None and answer.text else {}
        part |= {"state": "approval-responded", "approval": {**approval, "approved": allowed, **reason}}
    return copied


def unanswered(messages: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The messages with all calls denied that wait for an approval, since something else is said; and those calls."""
    copied = deepcopy(list(messages))
    waiting = _asking(copied)
    for part in waiting:
        part |= {"state": "output-denied", "approval": {**mapping(part["approval"]), "approved": False}}
    return copied, [str(part.get("toolCallId")) for part in waiting]


def _asking(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    parts = [mapping(part) for message in messages for part in sequence(message.get("parts"))]
    return [part for part in parts if part.get("state") == "approval-requested"]


class AssistantMessage:
    """The answer in the making; `before` is the message that it goes on with."""

    def __init__(self, before: dict[str, Any] | None = None) -> None:
        empty: dict[str, Any] = {"id": "", "role": "assistant", "parts": []}
        self._message: dict[str, Any] = deepcopy(before) if before else empty
        self._open: dict[tuple[str, str], dict[str, Any]] = {}

    @property
    def document(self) -> dict[str, Any]:
        """The message as it stands in the next request."""
        return self._message

    def take(self, chunk: dict[str, Any]) -> None:
        """Add what one chunk of the stream says; chunks that say nothing of a part are passed over."""
        kind = text(chunk.get("type")) or ""
        family, _, step = kind.partition("-")
        if kind == "start":
            self._message["id"] = text(chunk.get("messageId")) or self._message["id"]
        elif family in _TEXTS:
            self._text(family, step, chunk)
        elif kind == "start-step":
            self._parts.append({"type": "step-start"})
        elif family == "tool":
            self._tool(kind, chunk)
        elif family in ("source", "file") or (family == "data" and not chunk.get("transient")):
            self._parts.append(dict(chunk))

    @property
    def _parts(self) -> list[Any]:
        return self._message["parts"]

    def _text(self, family: str, step: str, chunk: dict[str, Any]) -> None:
        key = (family, text(chunk.get("id")) or "")
        if step == "end":
            self._open.pop(key, {"state": ""})["state"] = "done"
            return
        if key not in self._open:
            self._open[key] = {"type": family, "text": "", "state": "streaming"}
            self._parts.append(self._open[key])
        self._open[key]["text"] += text(chunk.get("delta")) or ""

    def _tool(self, kind: str, chunk: dict[str, Any]) -> None:
        identifier = chunk.get("toolCallId")
        part = next((each for each in self._parts if mapping(each).get("toolCallId") == identifier), None)
        if kind in ("tool-input-available", "tool-input-error"):
            name = text(chunk.get("toolName")) or ""
            made = {"type": "dynamic-tool", "toolName": name} if chunk.get("dynamic") else {"type": f"tool-{name}"}
            state = {"state": "input-available", "input": chunk.get("input")}
            if kind == "tool-input-error":
                state = {"state": "output-error", "rawInput": chunk.get("input"), "errorText": chunk.get("errorText")}
            self._parts.append({**made, "toolCallId": identifier, **state})
        elif part is None:
            return
        elif kind == "tool-approval-request":
            more = {key: value for key, value in chunk.items() if key not in ("type", "toolCallId", "approvalId")}
            part |= {"state": "approval-requested", "approval": {"id": chunk.get("approvalId"), **more}}
        elif kind == "tool-output-available":
            part |= {"state": "output-available", "output": chunk.get("output")}
        elif kind == "tool-output-error":
            part |= {"state": "output-error", "errorText": chunk.get("errorText")}
        elif kind == "tool-output-denied":
            part |= {"state": "output-denied"}
