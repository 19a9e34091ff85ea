"""OpenAI's Responses API → pieces of a turn. Reads one response object; streams become one first.

An answer is a list of items, and events keep their order. Tools that the provider runs on its side show as operations
with their results; items that somebody else would have to carry out start and stay pending; an item that nobody knows
is kept, and takes back that all actions were seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evalfleet.model.coverage import Channel, CoverageEntry, partial
from evalfleet.model.events import (
    MISSING,
    Compaction,
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
from evalfleet_adapters.converters import openai_chat
from evalfleet_adapters.converters.model_reply import (
    Finish,
    ModelReply,
    ProviderError,
    ToolCall,
    UnusableResponse,
    distinct,
    head,
    kept,
    read_arguments,
    recorded,
)
from evalfleet_adapters.converters.untrusted import mapping, sequence, text

_INCOMPLETE = {"max_output_tokens": Finish.LENGTH, "content_filter": Finish.FILTERED}

#: What the provider runs on its side: where the item says what was asked, and where what came of it.
_SERVED = {
    "web_search_call": ("action", "results"),
    "file_search_call": ("queries", "results"),
    "code_interpreter_call": ("code", "outputs"),
    "image_generation_call": ("revised_prompt", "result"),
    "mcp_call": ("arguments", "output"),
}
#: What the client would have to run, and where the item says it; no tool of an arm can.
_FOR_A_CLIENT = {
    "computer_call": "action",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
}
_ENDED = {
    None: OperationStatus.COMPLETED,
    "completed": OperationStatus.COMPLETED,
    "failed": OperationStatus.FAILED,
    "incomplete": OperationStatus.FAILED,
}


def reported_error(document: Any) -> ProviderError | None:
    """The error that a response, or an event of a stream, reports; None when it reports none."""
    fields = mapping(document)
    if fields.get("type") == "error" and not fields.get("error"):
        return ProviderError(code=str(fields.get("code") or "error"), message=text(fields.get("message")) or "")
    response = mapping(fields.get("response")) or fields
    found = openai_chat.reported_error(fields) or openai_chat.reported_error(response)
    if found is None and response.get("status") == "failed":
        return ProviderError(code="error", message="the provider ended the response as failed and says no more")
    return found


def read_usage(document: Any) -> Usage | None:
    """Usage of a response, or of the response in an event, in exclusive buckets; None when no count can be read."""
    fields = mapping(document)
    usage = mapping((mapping(fields.get("response")) or fields).get("usage"))
    return openai_chat.read_usage(
        {
            "prompt_tokens": usage.get("input_tokens"),
            "completion_tokens": usage.get("output_tokens"),
            "prompt_tokens_details": usage.get("input_tokens_details"),
            "completion_tokens_details": usage.get("output_tokens_details"),
            "cost": usage.get("cost"),
        }
    )


def read_response(response: Any, *, reasoning_as_reply: bool = False) -> ModelReply:
    """The model's reply in one response object, which may hold `Unrecognised` events among its output.

    `reasoning_as_reply` makes the reasoning the answer when there is no other. Raises UnusableResponse.
    """
    document = mapping(response)
    if not isinstance(document.get("output"), list):
        raise UnusableResponse(f"the response has no output: {head(response)}")
    status = document.get("status")
    if status in ("queued", "in_progress", "cancelled"):
        raise UnusableResponse(f"the response is not there yet or any more: its status is {status!r}")
    reading = _Reading()
    for item in sequence(document["output"]):
        reading.take(item)
    thought = "".join(event.text for event in reading.events if isinstance(event, Thinking))
    if not reading.text and thought and reasoning_as_reply:
        reading.text = thought
        reading.events.append(Message(Role.ASSISTANT, thought))
    usage = read_usage(document)
    reason = mapping(document.get("incomplete_details")).get("reason")
    finish = Finish.TOOLS if reading.calls else Finish.STOP
    if status == "incomplete":
        finish = _INCOMPLETE.get(str(reason), Finish.UNKNOWN)
        if finish is Finish.UNKNOWN:
            reading.events.append(kept("response.incomplete_details", document.get("incomplete_details")))
            reading.doubts[Channel.STATUS] = partial(f"the provider left the response incomplete: {reason!r}")
    elif status != "completed":
        finish = Finish.UNKNOWN
        reading.doubts[Channel.STATUS] = partial(f"the provider's status is {status!r}")
    if usage is None:
        reading.doubts[Channel.USAGE] = partial("the provider reported no usage")
    elif usage.reasoning_tokens and not thought:
        reading.doubts[Channel.EVENTS] = partial("the provider does not show the model's reasoning")
    return ModelReply(
        text=reading.text,
        events=tuple(reading.events),
        calls=tuple(reading.calls),
        finish=finish,
        usage=usage,
        sent_back=tuple(map(_unbound, reading.sent_back) if reading.hidden else reading.sent_back),
        coverage=reading.doubts,
    )


def _unbound(item: dict[str, Any]) -> dict[str, Any]:
    """A message or a call without the id by which the provider would miss the reasoning that it came from."""
    if item.get("type") == "message":
        texts = (mapping(part) for part in sequence(item.get("content")))
        said = "".join(text(part.get("text")) or text(part.get("refusal")) or "" for part in texts)
        phase = {"phase": item["phase"]} if item.get("phase") else {}
        return {"type": "message", "role": "assistant", "content": said, **phase}
    if item.get("type") in ("function_call", "custom_tool_call"):
        return {key: value for key, value in item.items() if key != "id"}
    return item


@dataclass(slots=True)
class _Reading:
    """The items of one response that were read so far. `text` is that of the last message.

    `hidden`: there was reasoning that can't go back, and then nothing may refer to it.
    """

    text: str | None = None
    hidden: bool = False
    events: list[Event] = field(default_factory=list[Event])
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    sent_back: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    doubts: dict[Channel, CoverageEntry] = field(default_factory=dict[Channel, CoverageEntry])
    used: set[str] = field(default_factory=set[str])

    def take(self, raw: Any) -> None:
        if isinstance(raw, Unrecognised):
            self.events.append(raw)
            return
        item = mapping(raw)
        kind = text(item.get("type")) or ""
        if kind == "message":
            self._message(item)
        elif kind == "reasoning":
            self._reasoning(item)
        elif kind in ("function_call", "custom_tool_call"):
            self._call(item, custom=kind == "custom_tool_call")
        elif kind == "mcp_approval_request":
            self._asked(item)
        elif kind in _SERVED:
            self._served(item, kind)
        elif kind in _FOR_A_CLIENT:
            identifier = self._identifier(item)
            self.events.append(OperationStarted(identifier, kind.removesuffix("_call"), item.get(_FOR_A_CLIENT[kind])))
        else:
            self._other(raw, item, kind)

    def _identifier(self, item: Mapping[str, Any]) -> str:
        number = len(self.used)
        given = text(item.get("call_id")) or text(item.get("id")) or f"call_{number}"
        return distinct(given, self.used, number)

    def _message(self, item: dict[str, Any]) -> None:
        said, others = "", list[Event]()
        for part in sequence(item.get("content")):
            fields = mapping(part)
            words = text(fields.get("text")) if fields.get("type") in ("output_text", "text") else None
            words = text(fields.get("refusal")) if fields.get("type") == "refusal" else words
            if words is None:
                others.append(kept(f"message.content.{fields.get('type')}", part))
            said += words or ""
            if fields.get("annotations"):
                others.append(kept("message.annotations", fields["annotations"]))
        self.text = said if said or self.text is None else self.text
        self.events += [*([Message(Role.ASSISTANT, said)] if said else []), *others]
        if said:
            self.sent_back.append(item)

    def _reasoning(self, item: dict[str, Any]) -> None:
        parts = sequence(item.get("content")) or sequence(item.get("summary"))
        thought = "\n\n".join(text(mapping(part).get("text")) or "" for part in parts)
        if thought:
            self.events.append(Thinking(thought))
        # nothing of ours is stored there: an item without its content would be an id that nobody knows
        if item.get("encrypted_content") or item.get("content"):
            self.sent_back.append(item)
        else:
            self.hidden = True

    def _call(self, item: dict[str, Any], *, custom: bool) -> None:
        name, identifier = text(item.get("name")) or "", self._identifier(item)
        if custom:
            raw = text(item.get("input")) or ""
            problem = "a custom tool's input is free text, which no tool of the arm takes"
            call = ToolCall(id=identifier, name=name, arguments=None, raw=raw, problem=problem, custom=True)
        else:
            arguments, raw, problem = read_arguments(item.get("arguments"))
            call = ToolCall(id=identifier, name=name, arguments=arguments, raw=raw, problem=problem)
        self.calls.append(call)
        self.events.append(call.started())
        back = item | {"call_id": identifier}
        if not custom:
            back["arguments"] = "{}" if call.arguments is None else call.raw or "{}"
        self.sent_back.append(back)

    def _asked(self, item: dict[str, Any]) -> None:
        """The provider asks whether a tool on its side may run."""
        arguments, raw, problem = read_arguments(item.get("arguments"))
        name, identifier = text(item.get("name")) or "", text(item.get("id")) or f"call_{len(self.used)}"
        call = ToolCall(id=identifier, name=name, arguments=arguments, raw=raw, problem=problem, remote=True)
        self.calls.append(call)
        self.events.append(call.started())
        self.sent_back.append(item)

    def _served(self, item: dict[str, Any], kind: str) -> None:
        asked, came = _SERVED[kind]
        approved = text(item.get("approval_request_id"))
        identifier = approved or self._identifier(item)
        given: Any = item.get(asked, MISSING)
        if kind == "mcp_call":
            arguments, raw, _ = read_arguments(given)
            given = raw if arguments is None else arguments
        if approved is None:
            name = (text(item.get("name")) if kind == "mcp_call" else None) or kind.removesuffix("_call")
            self.events.append(OperationStarted(identifier, name, recorded(given)))
        status = _ENDED.get(item.get("status"), OperationStatus.PENDING)
        failed = item.get("error") is not None
        if failed or status is not OperationStatus.PENDING:
            output: Any = item["error"] if failed else item.get(came, MISSING)
            status = OperationStatus.FAILED if failed else status
            self.events.append(OperationFinished(identifier, status, recorded(output)))
        self.doubts[Channel.ACTIONS] = partial("the provider runs tools on its side")
        self.sent_back.append(item)

    def _other(self, raw: Any, item: dict[str, Any], kind: str) -> None:
        if kind == "compaction":
            self.events.append(Compaction())
        else:
            self.events.append(kept(f"output.{kind}", raw))
            if kind != "mcp_list_tools":
                self.doubts[Channel.ACTIONS] = partial(f"the provider's answer has an item of type {kind!r}")
        if item:
            self.sent_back.append(item)
