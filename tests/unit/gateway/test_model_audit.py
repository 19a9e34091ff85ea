"""What is read out of an agent's request to its model, by the dialect it speaks."""

from __future__ import annotations

from typing import Any

import pytest

from evalfleet.gateway.model_audit import ModelAudit, instructions_of
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


def audit(dialect: Dialect) -> ModelAudit:
    return ModelAudit(ModelUpstream(dialect=dialect, provider="cli", base_url="http://x", key=None, models=("m",)))
