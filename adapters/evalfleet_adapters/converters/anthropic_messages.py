"""Anthropic's Messages API → pieces of a turn. Reads one message object; streams become one first.

A message is a list of blocks, and events keep their order; neighbouring blocks of text are one message, since
citations cut a text into many. Tools that the provider runs on its side show as operations with their results. A block
that nobody knows is kept, and takes back that all actions were seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evalfleet.model.coverage import Channel, CoverageEntry, partial
from evalfleet.model.events import (
    Event,
    Message,
    OperationFinished,
    OperationStarted,
    OperationStatus,
    Role,
    Thinking,
    Unrecognised,
)
from evalfleet.model.usage import Usage
from evalfleet_adapters.converters.model_reply import (
    Finish,
    ModelReply,
    ToolCall,
    UnusableResponse,
    distinct,
    head,
    kept,
    read_arguments,
    recorded,
)
from evalfleet_adapters.converters.untrusted import amount, as_text, count, mapping, sequence, text

_FINISH = {
    "end_turn": Finish.STOP,
    "stop_sequence": Finish.STOP,
    "tool_use": Finish.TOOLS,
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "refusal": Finish.FILTERED,
    "pause_turn": Finish.PAUSED,
}


def read_message(message: Any, *, output_tool: str | None = None, reasoning_as_reply: bool = False) -> ModelReply:
    """The model's reply in one message object, which may hold `Unrecognised` events among its content.

    A call of `output_tool` is no call: its arguments are the answer, as JSON. Raises UnusableResponse.
    """
    document = mapping(message)
    if not isinstance(document.get("content"), list):
        raise UnusableResponse(f"the answer has no content: {head(message)}")
    reading = _Reading(output_tool)
    for block in sequence(document["content"]):
        reading.take(block)
    reading.end_text()
    thought = "".join(event.text for event in reading.events if isinstance(event, Thinking))
    if not reading.text and thought and reasoning_as_reply:
        reading.text = thought
        reading.events.append(Message(Role.ASSISTANT, thought))
    usage, reason = read_usage(document.get("usage")), document.get("stop_reason")
    finish = _FINISH.get(str(reason), Finish.UNKNOWN)
    if finish is Finish.UNKNOWN:
        reading.doubts[Channel.STATUS] = partial(f"the provider's stop_reason is {reason!r}")
        if reason is not None:
            reading.events.append(kept("stop_reason", reason))
    elif finish is Finish.TOOLS and not reading.calls:
        finish = Finish.STOP
    if usage is None:
        reading.doubts[Channel.USAGE] = partial("the provider reported no usage")
    if reading.hidden or (usage is not None and usage.reasoning_tokens and not thought):
        reading.doubts[Channel.EVENTS] = partial("the provider does not show the model's reasoning")
    back = [{"role": "assistant", "content": reading.sent_back}] if reading.sent_back else []
    return ModelReply(
        text=reading.text,
        events=tuple(reading.events),
        calls=tuple(reading.calls),
        finish=finish,
        usage=usage,
        sent_back=tuple(back),
        coverage=reading.doubts,
        stopped=_refusal(document) if finish is Finish.FILTERED else None,
    )


def read_usage(raw: Any) -> Usage | None:
    """Usage in exclusive buckets, as this API reports it: its input holds no cached tokens. None without a count."""
    fields = mapping(raw)
    given, output = count(fields.get("input_tokens")), count(fields.get("output_tokens"))
    if given is None and output is None:
        return None
    return Usage(
        input_tokens=given,
        output_tokens=output,
        cache_read_tokens=count(fields.get("cache_read_input_tokens")),
        cache_write_tokens=count(fields.get("cache_creation_input_tokens")),
        reasoning_tokens=count(mapping(fields.get("output_tokens_details")).get("thinking_tokens")),
        requests=1,
        cost_usd=amount(fields.get("cost")),
    )


def _refusal(document: Mapping[str, Any]) -> str:
    details = mapping(document.get("stop_details"))
    said = [text(details.get(name)) for name in ("category", "explanation")]
    return ": ".join(["the provider refused to go on", *filter(None, said)])


@dataclass(slots=True)
class _Reading:
    """The blocks of one message that were read so far. `text` is that of the last run of text blocks."""

    output_tool: str | None
    text: str | None = None
    hidden: bool = False
    events: list[Event] = field(default_factory=list[Event])
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    sent_back: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    doubts: dict[Channel, CoverageEntry] = field(default_factory=dict[Channel, CoverageEntry])
    used: set[str] = field(default_factory=set[str])
    saying: list[str] = field(default_factory=list[str])
    aside: list[Event] = field(default_factory=list[Event])

    def take(self, raw: Any) -> None:
        if isinstance(raw, Unrecognised):
            self.end_text()
            self.events.append(raw)
            return
        block = mapping(raw)
        kind = text(block.get("type")) or ""
        if kind == "tool_use" and self.output_tool is not None and block.get("name") == self.output_tool:
            answer = block.get("input")
            block, kind = {"type": "text", "text": answer if isinstance(answer, str) else as_text(answer)}, "text"
        if kind == "text":
            self._text(block)
            return
        self.end_text()
        if kind == "thinking":
            self._thought(block)
        elif kind == "redacted_thinking":
            self.hidden = True
            self.sent_back.append(block)
        elif kind == "tool_use":
            self._call(block)
        elif kind in ("server_tool_use", "mcp_tool_use"):
            self._served(block)
        elif kind.endswith("_tool_result") and text(block.get("tool_use_id")):
            self._came(block)
        else:
            self.events.append(kept(f"content.{kind}", raw))
            self.doubts[Channel.ACTIONS] = partial(f"the provider's answer has a block of type {kind!r}")
            self.sent_back += [block] if block else []

    def end_text(self) -> None:
        """The neighbouring blocks of text are over: they are one message, and what was cited follows."""
        said = "".join(self.saying)
        if said:
            self.text = said
            self.events.append(Message(Role.ASSISTANT, said))
        self.events += self.aside
        self.saying.clear()
        self.aside.clear()

    def _text(self, block: dict[str, Any]) -> None:
        said = text(block.get("text")) or ""
        self.saying.append(said)
        if block.get("citations"):
            self.aside.append(kept("text.citations", block["citations"]))
        # the API refuses empty blocks
        self.sent_back += [block] if said else []

    def _thought(self, block: dict[str, Any]) -> None:
        thought = text(block.get("thinking")) or ""
        if thought:
            self.events.append(Thinking(thought))
        else:
            self.hidden = True
        self.sent_back.append(block)

    def _call(self, block: dict[str, Any]) -> None:
        number = len(self.used)
        identifier = distinct(text(block.get("id")) or f"call_{number}", self.used, number)
        arguments, raw, problem = read_arguments(block.get("input"))
        name = text(block.get("name")) or ""
        call = ToolCall(id=identifier, name=name, arguments=arguments, raw=raw, problem=problem)
        self.calls.append(call)
        self.events.append(call.started())
        self.sent_back.append({**block, "id": identifier, "input": arguments or {}})

    def _served(self, block: dict[str, Any]) -> None:
        identifier = text(block.get("id")) or f"call_{len(self.used)}"
        self.used.add(identifier)
        self.events.append(OperationStarted(identifier, text(block.get("name")) or "", recorded(block.get("input"))))
        self.doubts[Channel.ACTIONS] = partial("the provider runs tools on its side")
        self.sent_back.append(block)

    def _came(self, block: dict[str, Any]) -> None:
        """What a tool of the provider brought; its start may stand in an answer before this one."""
        content = block.get("content")
        failed = bool(block.get("is_error")) or str(mapping(content).get("type")).endswith("_error")
        status = OperationStatus.FAILED if failed else OperationStatus.COMPLETED
        self.events.append(OperationFinished(str(block["tool_use_id"]), status, recorded(content)))
        self.sent_back.append(block)
