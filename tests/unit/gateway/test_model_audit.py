"""What is read out of an agent's request to its model, by the dialect it speaks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalfleet.gateway.model_audit import ModelAudit, instructions_of
from evalfleet.gateway.model_request import read_request
from evalfleet.model.model_route import Dialect, ModelUpstream

TEXT = {"type": "text", "text": "Two."}
CASES: list[tuple[Dialect, dict[str, Any], str]] = [
    (Dialect.CHAT, {"messages": [{"role": "system", "content": "One."}, {"role": "user", "content": "x"}]}, "One."),
    (Dialect.CHAT, {"messages": [{"role": "developer", "content": [TEXT, {"type": "image_url"}]}]}, "Two."),
    (Dialect.CHAT, {"messages": "hostile"}, ""),
    (Dialect.CHAT, {"messages": [None, 3, {"role": "system", "content": {"deep": 1}}]}, ""),
    (Dialect.CHAT, {"instructions": "not of this dialect", "messages": []}, ""),
    (Dialect.RESPONSES, {"instructions": "One.", "input": "x"}, "One."),
    (
        Dialect.RESPONSES,
        {"instructions": "One.", "input": [{"role": "developer", "content": [TEXT]}, {"role": "user", "content": "x"}]},
        "One.\n\nTwo.",
    ),
    (Dialect.MESSAGES, {"system": "One.", "messages": []}, "One."),
    (Dialect.MESSAGES, {"system": [{"type": "text", "text": "One."}, TEXT]}, "One.\n\nTwo."),
    (Dialect.MESSAGES, {"system": 7}, ""),
]


@pytest.mark.parametrize(("dialect", "document", "text"), CASES)
def test_instructions(dialect: Dialect, document: dict[str, Any], text: str) -> None:
    assert instructions_of(dialect, document) == text
    event = audit(dialect).request(document)
    assert (event.instructions or "") == text
    assert (event.instruction_digest is None) == (not text)


@pytest.mark.parametrize(
    ("dialect", "document", "tools", "messages"),
    [
        (Dialect.CHAT, {"tools": [{"type": "function", "function": {"name": "look"}}], "messages": [1, 2]}, "look", 2),
        (Dialect.RESPONSES, {"tools": [{"type": "web_search"}, {"name": "a"}], "input": "x"}, "web_search a", 1),
        (Dialect.MESSAGES, {"tools": [{"name": "a"}, {"name": 3}, "b"], "messages": None}, "a", None),
        (Dialect.MESSAGES, {"tools": {"name": "a"}}, "", None),
    ],
)
def test_tools_and_messages(dialect: Dialect, document: dict[str, Any], tools: str, messages: int | None) -> None:
    event = audit(dialect).request(document)
    assert (" ".join(event.tools), event.messages) == (tools, messages)


def test_the_prompt_of_a_response_is_named() -> None:
    event = audit(Dialect.RESPONSES).request({"prompt": {"id": "pmpt_1", "version": "3"}, "input": "x"})
    assert (event.prompt_id, event.prompt_revision) == ("pmpt_1", "3")


def test_changed_instructions_are_told_anew() -> None:
    on = audit(Dialect.MESSAGES)
    told = [on.request({"system": text}).instructions for text in ("a", "a", "b", "a")]
    assert told == ["a", None, "b", None]


@pytest.mark.parametrize(
    ("dialect", "base_url", "asked", "sent"),
    [
        (Dialect.CHAT, "https://api.openai.com/v1", {}, {"max_completion_tokens": 40}),
        (Dialect.CHAT, "http://127.0.0.1:8000/v1", {}, {"max_tokens": 40}),
        (Dialect.CHAT, "https://api.openai.com/v1", {"max_tokens": 99}, {"max_tokens": 40}),
        (Dialect.CHAT, "http://127.0.0.1:8000/v1", {"max_completion_tokens": 7}, {"max_completion_tokens": 7}),
        (Dialect.RESPONSES, "https://api.openai.com/v1", {}, {"max_output_tokens": 40}),
        (Dialect.MESSAGES, "https://api.anthropic.com", {"max_tokens": "many"}, {"max_tokens": 40}),
    ],
)
def test_the_limit_of_an_answer(dialect: Dialect, base_url: str, asked: dict[str, Any], sent: dict[str, Any]) -> None:
    upstream = ModelUpstream(
        dialect=dialect, provider="cli", base_url=base_url, key=None, models=("m",), output_limit=40
    )
    path = {Dialect.CHAT: "/v1/chat/completions", Dialect.RESPONSES: "/v1/responses", Dialect.MESSAGES: "/v1/messages"}
    read = read_request(upstream, "POST", path[dialect], json.dumps({"model": "m", **asked}).encode())
    assert json.loads(read.body) == {"model": "m", **sent}
    assert read.output_limit == next(iter(sent.values()))


def audit(dialect: Dialect) -> ModelAudit:
    return ModelAudit(ModelUpstream(dialect=dialect, provider="cli", base_url="http://x", key=None, models=("m",)))
