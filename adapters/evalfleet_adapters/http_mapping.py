"""The declared mapping of an HTTP agent, read from the arm: a request template and paths into the response.

A path is dotted (`choices.0.message`) or a JSON pointer (`/choices/0/message`); `.` is the whole document. A channel
that is not mapped is not covered. A path that leads nowhere in a response takes its channel's coverage back for that
turn, and the response is kept. PURE.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from evalfleet.model.coverage import Coverage, CoverageEntry, complete, partial, unavailable
from evalfleet.model.events import MISSING, OperationStatus
from evalfleet.model.turn import TurnStatus
from evalfleet_adapters.converters.untrusted import as_text, mapping, sequence

V = TypeVar("V", TurnStatus, OperationStatus)

_STRICT = ConfigDict(extra="forbid", frozen=True)
_PLACEHOLDER = re.compile(r"\$\$|\$\{([\w.-]+)\}")

#: What a request template may name; `flags.<name>` beside them.
PLACEHOLDERS = frozenset(
    {"text", "input", "session", "model", "files", "responses", "schema", "flags", "case", "arm", "seed", "attempt",
     "repetition", "turn", "messages", "thread_id", "step_id", "turn_id"}
)  # fmt: skip


def _a_path(path: str) -> str:
    if not path or (path != "." and not path.startswith("/") and "" in path.split(".")):
        raise ValueError("a path is dotted (choices.0.message), a JSON pointer (/choices/0/message), or . for all")
    return path


def _a_template(template: Any) -> Any:
    unknown = sorted(name for name in placeholders(template) if name not in PLACEHOLDERS and not _is_flag(name))
    if unknown:
        known = ", ".join(sorted(PLACEHOLDERS))
        raise ValueError(f"unknown placeholder ${{{unknown[0]}}}; there are {known} and flags.<name>")
    return template


def _of(*names: str) -> AfterValidator:
    """A template of one item of a list, whose placeholders are `names`."""

    def check(template: Any) -> Any:
        unknown = sorted(set(placeholders(template)) - set(names))
        if unknown:
            raise ValueError(f"unknown placeholder ${{{unknown[0]}}}; there are {', '.join(names)}")
        return template

    return AfterValidator(check)


Path = Annotated[str, AfterValidator(_a_path)]
Template = Annotated[Any, AfterValidator(_a_template)]
FileTemplate = Annotated[Any, _of("name", "media_type", "data_base64")]
AnswerTemplate = Annotated[Any, _of("request_id", "option_id", "text", "answer")]


class UsageMapping(BaseModel):
    """Paths of the usage buckets, each from the response's root."""

    model_config = _STRICT

    input_tokens: Path | None = None
    output_tokens: Path | None = None
    cache_read_tokens: Path | None = None
    cache_write_tokens: Path | None = None
    reasoning_tokens: Path | None = None
    requests: Path | None = None
    cost_usd: Path | None = None
    cached_in_input: bool = Field(False, description="The endpoint's input_tokens count cached tokens too.")


class ToolsMapping(BaseModel):
    """Where the turn's tool calls are listed; the other paths start at one item of the list."""

    model_config = _STRICT

    items: Path
    name: Path
    id: Path | None = None
    input: Path | None = None
    output: Path | None = None
    status: Path | None = None
    statuses: Mapping[str, OperationStatus] = Field(
        default_factory=dict[str, OperationStatus], description="Further words of the endpoint for a call's status."
    )


class RequestsMapping(BaseModel):
    """Where the questions to a person are listed; the other paths start at one item of the list.

    `options` lists what can be chosen; `option_id` and `option_label` start at one of them, which is its own id by
    default. While there are questions, the turn waits, unless `response.status` is mapped and says otherwise.
    """

    model_config = _STRICT

    items: Path
    id: Path
    prompt: Path | None = None
    action: Path | None = None
    input: Path | None = None
    options: Path | None = None
    option_id: Path = "."
    option_label: Path | None = None


class EventsMapping(BaseModel):
    """What the events of a stream (`stream: sse`) say. A path starts at the JSON of one event.

    `delta` and `thinking` are a path, or paths by the kind of event that they are for.
    """

    model_config = _STRICT

    kind: Path | None = Field(None, description="Where an event says of which kind it is; the name of the SSE event.")
    data: Literal["json", "text"] = Field("json", description="What the data of an event is; `.` is a text as a whole.")
    delta: Path | Mapping[str, Path] | None = Field(None, description="The next piece of the reply.")
    thinking: Path | Mapping[str, Path] | None = Field(None, description="The next piece of the agent's reasoning.")
    done: str | None = Field(
        None,
        description="The kind of the last event, without which the stream has broken off; `[DONE]` always ends one.",
    )
    ignore: tuple[str, ...] = Field((), description="Kinds of events that say nothing.")


NO_EVENTS = EventsMapping.model_validate({})


class ResponseMapping(BaseModel):
    """Where things stand in the response."""

    model_config = _STRICT

    stream: Literal["sse", "ui-message"] | None = Field(
        None, description="The answer is a stream: of the application's own events, or the AI SDK's UI message stream."
    )
    events: EventsMapping | None = Field(None, description="What the events of `stream: sse` say.")
    body: Literal["json", "text"] = Field("json", description="A text body is the reply itself.")
    reply: Path | None = None
    data: Path | None = None
    observation: Path | None = Field(None, description="The JSON object that the checks of a suite look at.")
    session: Path | None = Field(None, description="The session id; the first one is sent back as ${session}.")
    status: Path | None = None
    statuses: Mapping[str, TurnStatus] = Field(
        default_factory=dict[str, TurnStatus], description="Further words of the endpoint for a turn's status."
    )
    error: Path | None = Field(None, description="Anything but null there is an error that failed the turn.")
    usage: UsageMapping | None = None
    tools: ToolsMapping | None = None
    requests: RequestsMapping | None = None

    @model_validator(mode="after")
    def _fits_its_stream(self) -> ResponseMapping:
        if self.events is not None and self.stream != "sse":
            raise ValueError("events are of a stream: write `stream: sse`, or leave them out")
        if self.stream is not None and self.body != "json":
            raise ValueError(
                "a stream has no body: leave `body` out; `events.data: text` reads events that are no JSON"
            )
        if self.stream == "sse" and not (self.reply or (self.events and self.events.delta)):
            raise ValueError("name where the reply's pieces stand (events.delta), or the whole reply (reply)")
        told = [name for name in ("reply", "tools", "requests") if getattr(self, name) is not None]
        if self.stream == "ui-message" and told:
            raise ValueError(f"a UI message stream has its own place for {told[0]}: leave it out")
        return self

    def coverage(self) -> Coverage:
        """What this mapping can prove."""
        ui = self.stream == "ui-message"
        said = bool(ui or self.reply or self.body == "text" or (self.events and self.events.delta))
        shown = "application forwards" if ui else "arm's response mapping names"
        return Coverage(
            events=partial(f"the endpoint shows only what the {shown}"),
            actions=self._actions(),
            messages=complete if said else _unmapped("reply"),
            usage=self._usage(),
            status=complete
            if self.status or ui
            else partial("response.status is not mapped; HTTP success is completed"),
            data=complete if self.data else _unmapped("data"),
        )

    def _actions(self) -> CoverageEntry:
        if self.stream == "ui-message":
            return complete
        if self.tools is None:
            return _unmapped("tools")
        if self.tools.status is None:
            return partial("response.tools.status is not mapped; failed and rejected calls look completed")
        return complete

    def _usage(self) -> CoverageEntry:
        if self.usage is None:
            return _unmapped("usage")
        lacking = [name for name in ("input_tokens", "output_tokens") if getattr(self.usage, name) is None]
        return partial(f"response.usage.{lacking[0]} is not mapped") if lacking else complete


def look_up(document: Any, path: str) -> Any:
    """The value at `path`; MISSING when the path leads nowhere."""
    for key in _steps(path):
        if isinstance(document, dict):
            document = mapping(document).get(key, MISSING)
        elif isinstance(document, list) and re.fullmatch("[0-9]{1,9}", key) and int(key) < len(sequence(document)):
            document = sequence(document)[int(key)]
        else:
            return MISSING
    return document


def known_word(value: Any, words: Mapping[str, V], kind: type[V]) -> V | None:
    """What the endpoint's word means: by the arm's own words first, then by ours. `true` is the word for True."""
    if value is MISSING or isinstance(value, (dict, list)):
        return None
    text = value if isinstance(value, str) else as_text(value)
    return words.get(text) or next((known for known in kind if known.value == text), None)


def render(template: Any, values: Mapping[str, Any]) -> Any:
    """The template with its placeholders filled in. `values` holds a value for each, or None for nothing to send.

    A text that is one placeholder becomes the value as it is; inside other text it is written out, None as
    nothing. An object's field whose placeholder has nothing to send is left out. `$$` is a dollar sign.
    """
    if isinstance(template, str):
        return _render_text(template, values)
    if isinstance(template, dict):
        rendered = {key: (inner, render(inner, values)) for key, inner in mapping(template).items()}
        return {key: value for key, (inner, value) in rendered.items() if value is not None or inner is None}
    if isinstance(template, list):
        return [render(inner, values) for inner in sequence(template)]
    return template


def placeholders(template: Any) -> Iterator[str]:
    """The names of all placeholders in a template."""
    if isinstance(template, str):
        yield from (match[1] for match in _PLACEHOLDER.finditer(template) if match[1])
    for inner in (*mapping(template).values(), *sequence(template)):
        yield from placeholders(inner)


def _render_text(template: str, values: Mapping[str, Any]) -> Any:
    whole = _PLACEHOLDER.fullmatch(template)
    if whole is not None and whole[1]:
        return values.get(whole[1])

    def written(match: re.Match[str]) -> str:
        if not match[1]:
            return "$"
        value = values.get(match[1])
        return "" if value is None else str(value)

    return _PLACEHOLDER.sub(written, template)


def _is_flag(name: str) -> bool:
    return name.startswith("flags.") and len(name) > len("flags.")


def _unmapped(name: str) -> CoverageEntry:
    return unavailable(f"response.{name} is not mapped")


def _steps(path: str) -> list[str]:
    if path == ".":
        return []
    if path.startswith("/"):
        return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]
    return path.split(".")
