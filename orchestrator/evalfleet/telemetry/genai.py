"""What a span says of models, tools and agents, by OpenTelemetry's semantic conventions for generative AI. PURE.

They are still in development: this reads those of 1.37 to 1.41, and the older names that instrumentations still send.
What a span says otherwise stays in its attributes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from evalfleet.model.span import Attributes, Span


class SpanRole(StrEnum):
    """What an agent did meanwhile."""

    MODEL = "model"
    TOOL = "tool"
    AGENT = "agent"
    OTHER = "other"


_ROLES = {
    "chat": SpanRole.MODEL,
    "completion": SpanRole.MODEL,
    "generate_content": SpanRole.MODEL,
    "text_completion": SpanRole.MODEL,
    "embeddings": SpanRole.MODEL,
    "execute_tool": SpanRole.TOOL,
    "create_agent": SpanRole.AGENT,
    "invoke_agent": SpanRole.AGENT,
    "invoke_workflow": SpanRole.AGENT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GenAiFacts:
    """None is what the span does not say. Tokens are as its sender counted them, and no usage of a turn."""

    role: SpanRole
    operation: str | None = None
    provider: str | None = None
    request_model: str | None = None
    response_model: str | None = None
    response_id: str | None = None
    finish_reasons: tuple[str, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_creation_tokens: int | None = None
    reasoning_tokens: int | None = None
    tool: str | None = None
    tool_call: str | None = None
    agent: str | None = None
    conversation: str | None = None
    error: str | None = None

    @property
    def subject(self) -> str | None:
        """The model, tool or agent that the span is about."""
        about = {
            SpanRole.MODEL: self.response_model or self.request_model,
            SpanRole.TOOL: self.tool,
            SpanRole.AGENT: self.agent,
        }
        return about.get(self.role)


def genai_facts(span: Span) -> GenAiFacts:
    """What the attributes of a span say; a value of another type than the conventions' counts as not said."""
    given = span.attributes
    operation = _text(given, "gen_ai.operation.name")
    tool = _text(given, "gen_ai.tool.name")
    request_model = _text(given, "gen_ai.request.model")
    return GenAiFacts(
        role=_role(operation, tool, request_model),
        operation=operation,
        provider=_text(given, "gen_ai.provider.name", "gen_ai.system"),
        request_model=request_model,
        response_model=_text(given, "gen_ai.response.model"),
        response_id=_text(given, "gen_ai.response.id"),
        finish_reasons=_texts(given, "gen_ai.response.finish_reasons"),
        input_tokens=_count(given, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        output_tokens=_count(given, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        cache_read_tokens=_count(given, "gen_ai.usage.cache_read.input_tokens"),
        cache_creation_tokens=_count(given, "gen_ai.usage.cache_creation.input_tokens"),
        reasoning_tokens=_count(given, "gen_ai.usage.reasoning.output_tokens"),
        tool=tool,
        tool_call=_text(given, "gen_ai.tool.call.id"),
        agent=_text(given, "gen_ai.agent.name", "gen_ai.agent.id"),
        conversation=_text(given, "gen_ai.conversation.id"),
        error=_text(given, "error.type"),
    )


def _role(operation: str | None, tool: str | None, model: str | None) -> SpanRole:
    """By the operation; for senders that name none, by what they name beside it."""
    if operation is not None:
        return _ROLES.get(operation, SpanRole.OTHER)
    if tool is not None:
        return SpanRole.TOOL
    return SpanRole.OTHER if model is None else SpanRole.MODEL


def _text(given: Attributes, *names: str) -> str | None:
    return next((value for name in names if isinstance(value := given.get(name), str) and value), None)


def _texts(given: Attributes, name: str) -> tuple[str, ...]:
    value = given.get(name)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, tuple) else ()


def _count(given: Attributes, *names: str) -> int | None:
    return next((value for name in names if type(value := given.get(name)) is int and value >= 0), None)
