"""The events of a turn as indented lines, in order; a finished operation is named after its start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from evalfleet.model.events import (
    MISSING,
    Compaction,
    ContextInjected,
    ErrorReported,
    Event,
    InputRequested,
    Message,
    ModelRequest,
    ModelResponse,
    OperationFinished,
    OperationStarted,
    SkillLoaded,
    Thinking,
    Unrecognised,
)
from evalfleet.reports.layout import block
from evalfleet.reports.visible import cut, shown, visible, visible_line


def event_lines(events: Iterable[Event], *, talk: bool, tools: bool, limit: int | None) -> Iterator[str]:
    """`talk` shows what was said and everything around it, `tools` the operations."""
    names: dict[str, str] = {}
    for event in events:
        if isinstance(event, OperationStarted):
            names[event.operation_id] = event.name
            if tools:
                yield f"  {event.kind.value:<9} {_call(event, limit)}"
        elif isinstance(event, OperationFinished):
            if tools:
                yield f"  {'':<9} {_outcome(event, names.get(event.operation_id), limit)}"
        elif talk:
            yield from block(f"  {_label(event):<9} ", visible(cut(_text(event, limit), limit)))


def _call(event: OperationStarted, limit: int | None) -> str:
    if event.raw_input is not None:
        argument = visible_line(cut(event.raw_input, limit))
    else:
        argument = "" if event.input is MISSING else shown(event.input, limit)
    return f"{visible_line(event.name)}({argument})"


def _outcome(event: OperationFinished, name: str | None, limit: int | None) -> str:
    who = visible_line(name if name is not None else event.operation_id)
    output = "" if event.output is MISSING else f": {shown(event.output, limit)}"
    return f"↳ {who} {event.status.value}{output}"


def _label(event: Event) -> str:
    if isinstance(event, Message):
        return event.role.value
    return _LABELS.get(type(event), event.type)


_LABELS: dict[type, str] = {
    ContextInjected: "context",
    InputRequested: "asks",
    ModelRequest: "model",
    ModelResponse: "model",
    SkillLoaded: "skill",
    Unrecognised: "unknown",
}


def _text(event: Event, limit: int | None) -> str:
    match event:
        case Message() | Thinking():
            return event.text
        case SkillLoaded():
            return event.skill
        case InputRequested():
            return _question(event)
        case ContextInjected():
            return f"{event.source}: {event.text}" if event.source else event.text
        case Compaction():
            return event.reason or "the agent compacted its context"
        case ErrorReported():
            return event.message
        case ModelRequest():
            return _request(event)
        case ModelResponse():
            return _response(event)
        case Unrecognised():
            return event.name if event.raw is MISSING else f"{event.name} {shown(event.raw, limit)}"
        case _:
            return event.type


def _question(event: InputRequested) -> str:
    options = ", ".join(f"{option.id} ({option.label})" if option.label else option.id for option in event.options)
    parts = [event.prompt or event.action or "input", f"options: {options}" if options else ""]
    return " · ".join(part for part in parts if part)


def _request(event: ModelRequest) -> str:
    parts = [
        f"→ {event.model or 'its model'}",
        "" if event.messages is None else f"{event.messages} messages",
        f"tools: {', '.join(event.tools)}" if event.tools else "",
        f"instructions {event.instruction_digest[:12]}" if event.instruction_digest else "",
    ]
    return " · ".join(part for part in parts if part)


def _response(event: ModelResponse) -> str:
    usage = event.usage
    parts = [
        f"← {event.outcome}" + ("" if event.status is None else f" ({event.status})"),
        "" if event.duration is None else f"{event.duration:.1f} s",
        "" if usage is None else f"{usage.input_tokens} in, {usage.output_tokens} out",
    ]
    return " · ".join(part for part in parts if part)
