"""What spans say of models, tools and agents, by the conventions for generative AI and their older names."""

from __future__ import annotations

from typing import Any

import pytest

from evalfleet.model.span import Span, SpanKind, SpanSource, SpanStatus
from evalfleet.telemetry.genai import GenAiFacts, SpanRole, genai_facts


def span_with(attributes: dict[str, Any]) -> Span:
    source = SpanSource({}, "", "")
    return Span("a" * 32, "b" * 16, None, "x", SpanKind.CLIENT, 1, 2, SpanStatus.UNSET, "", attributes, source)


CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-5",
    "gen_ai.response.model": "gpt-5-2026",
    "gen_ai.response.id": "r1",
    "gen_ai.response.finish_reasons": ("stop", "length"),
    "gen_ai.usage.input_tokens": 10,
    "gen_ai.usage.output_tokens": 0,
    "gen_ai.usage.cache_read.input_tokens": 3,
    "gen_ai.usage.cache_creation.input_tokens": 4,
    "gen_ai.usage.reasoning.output_tokens": 5,
    "gen_ai.conversation.id": "c1",
    "error.type": "timeout",
    "of.somebody": "else",
}


def test_all_that_a_chat_says() -> None:
    assert genai_facts(span_with(CHAT)) == GenAiFacts(
        role=SpanRole.MODEL,
        operation="chat",
        provider="openai",
        request_model="gpt-5",
        response_model="gpt-5-2026",
        response_id="r1",
        finish_reasons=("stop", "length"),
        input_tokens=10,
        output_tokens=0,
        cache_read_tokens=3,
        cache_creation_tokens=4,
        reasoning_tokens=5,
        conversation="c1",
        error="timeout",
    )


@pytest.mark.parametrize(
    ("attributes", "role", "subject"),
    [
        (CHAT, SpanRole.MODEL, "gpt-5-2026"),
        ({"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "e"}, SpanRole.MODEL, "e"),
        ({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}, SpanRole.TOOL, "search"),
        ({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "shop"}, SpanRole.AGENT, "shop"),
        ({"gen_ai.operation.name": "create_agent", "gen_ai.agent.id": "a7"}, SpanRole.AGENT, "a7"),
        ({"gen_ai.operation.name": "dream", "gen_ai.tool.name": "search"}, SpanRole.OTHER, None),
        ({"gen_ai.tool.name": "search"}, SpanRole.TOOL, "search"),
        ({"gen_ai.request.model": "gpt-5"}, SpanRole.MODEL, "gpt-5"),
        ({"http.method": "GET"}, SpanRole.OTHER, None),
        ({}, SpanRole.OTHER, None),
    ],
)
def test_roles(attributes: dict[str, Any], role: SpanRole, subject: str | None) -> None:
    facts = genai_facts(span_with(attributes))
    assert (facts.role, facts.subject) == (role, subject)


@pytest.mark.parametrize(
    ("attributes", "field", "expected"),
    [
        ({"gen_ai.system": "azure"}, "provider", "azure"),
        ({"gen_ai.system": "azure", "gen_ai.provider.name": "openai"}, "provider", "openai"),
        ({"gen_ai.usage.prompt_tokens": 7}, "input_tokens", 7),
        ({"gen_ai.usage.completion_tokens": 8}, "output_tokens", 8),
        ({"gen_ai.usage.input_tokens": "7"}, "input_tokens", None),
        ({"gen_ai.usage.input_tokens": True}, "input_tokens", None),
        ({"gen_ai.usage.input_tokens": -1}, "input_tokens", None),
        ({"gen_ai.request.model": ""}, "request_model", None),
        ({"gen_ai.tool.name": 5}, "tool", None),
        ({"gen_ai.response.finish_reasons": "stop"}, "finish_reasons", ()),
        ({"gen_ai.response.finish_reasons": ("stop", 1)}, "finish_reasons", ("stop",)),
    ],
)
def test_older_names_and_values_of_other_types(attributes: dict[str, Any], field: str, expected: object) -> None:
    assert getattr(genai_facts(span_with(attributes)), field) == expected
