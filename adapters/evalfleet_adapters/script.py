"""What a scripted agent is told to do: the options of `adapter: scripted`, and directives in the input text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from evalfleet.errors import Acceptance, FailureKind
from evalfleet.model.coverage import Channel, CoverageEntry, CoverageState
from evalfleet.model.events import EVENT_TYPES, MISSING, Event, OperationStatus
from evalfleet.model.turn import TurnStatus

_STRICT = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


def _event(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    fields: dict[str, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType]
    kind = fields.pop("type", None)
    if kind not in EVENT_TYPES:
        raise ValueError(f"unknown event type {kind!r}; there are {', '.join(EVENT_TYPES)}")
    unknown = set(fields) - set(EVENT_TYPES[kind].__slots__)
    if unknown:
        raise ValueError(f"event {kind} has no field {', '.join(sorted(unknown))}")
    return TypeAdapter(EVENT_TYPES[kind]).validate_python(fields)


def _seconds(value: Any) -> Any:
    """A latency as a pair; one number is both ends."""
    return (value, value) if isinstance(value, (int, float)) else value


def _entry(value: Any) -> Any:
    """`complete`, or `partial: reason`, or `unavailable: reason` as text."""
    state, _, reason = str(value).partition(":")
    if isinstance(value, CoverageEntry) or state not in tuple(CoverageState):
        return value
    return CoverageEntry(CoverageState(state), reason.strip() or None)


ScriptedEvent = Annotated[Event, BeforeValidator(_event)]
Latency = Annotated[tuple[float, float], BeforeValidator(_seconds)]
Entry = Annotated[CoverageEntry, BeforeValidator(_entry)]


class ScriptedTool(BaseModel):
    """One tool call that the agent claims to have made. A pending one never finishes."""

    model_config = _STRICT

    name: str
    input: Any = Field(default_factory=dict[str, Any])
    output: Any = MISSING
    status: OperationStatus = OperationStatus.COMPLETED


class ScriptedUsage(BaseModel):
    """Usage that the agent claims."""

    model_config = _STRICT

    input_tokens: int | None = Field(None, ge=0)
    output_tokens: int | None = Field(None, ge=0)
    cache_read_tokens: int | None = Field(None, ge=0)
    cache_write_tokens: int | None = Field(None, ge=0)
    reasoning_tokens: int | None = Field(None, ge=0)
    requests: int | None = Field(None, ge=0)
    cost_usd: float | None = Field(None, ge=0)
    unknown_calls: int = Field(0, ge=0)


class ScriptedFailure(BaseModel):
    """A send that raises instead of returning."""

    model_config = _STRICT

    kind: FailureKind = FailureKind.PROVIDER
    code: str = "SCRIPTED_FAILURE"
    message: str = "this failure was ordered"
    acceptance: Acceptance = Acceptance.UNKNOWN
    retry_after: float | None = Field(None, ge=0)


class ScriptedAct(BaseModel):
    """One thing to do in a send: wait, then misbehave or fail or answer, in this order.

    `exit` ends the worker process with that code, `hang` waits until it is cancelled, `spin` blocks the event
    loop for so many seconds. Tool calls come before the reply and overlap: all start before the first one ends.
    """

    model_config = _STRICT

    latency: Latency | None = Field(None, description="Seconds to wait, or [least, most] drawn by the case's seed.")
    exit: int | None = Field(None, description="End the worker process with this exit code.")
    hang: bool = Field(False, description="Never answer.")
    spin: float | None = Field(None, ge=0, description="Block the event loop for so many seconds.")
    fail: ScriptedFailure | None = None
    reply: str | None = None
    echo: bool = Field(False, description="Reply with the input text.")
    thinking: str | None = None
    tools: tuple[ScriptedTool, ...] = ()
    events: tuple[ScriptedEvent, ...] = Field((), description="Events as recorded, before the reply.")
    status: TurnStatus = TurnStatus.COMPLETED
    data: Any = MISSING
    usage: ScriptedUsage | None = None
    coverage: Mapping[Channel, Entry] = Field(default_factory=dict[Channel, CoverageEntry])


class ScriptedRule(ScriptedAct):
    """An act with its conditions; all that are given must hold. The first rule that fits is used."""

    includes: str | None = Field(None, description="The input contains this text.")
    pattern: str | None = Field(None, description="A regular expression found in the input.")
    turn: int | None = Field(None, ge=0, description="The session's turn, from 0.")
    attempt: int | None = Field(None, ge=0, description="The attempt's number, as the engine counts it.")
    repetition: int | None = Field(None, ge=0, description="The repetition, from 0.")
    share: float | None = Field(None, ge=0, le=1, description="This share of the cases, chosen by their seeds.")

    @model_validator(mode="after")
    def _pattern_compiles(self) -> ScriptedRule:
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"pattern: {error}") from error
        return self


class ScriptedOptions(BaseModel):
    """The arm's own fields. Without a fitting rule: the turn's reply of `replies`, in turn, else an echo."""

    model_config = _STRICT

    replies: tuple[str, ...] = Field((), description="Replies by turn of the session, starting over at the end.")
    rules: tuple[ScriptedRule, ...] = ()
    latency: Latency = Field((0.0, 0.0), description="Seconds before every answer, or [least, most].")
    usage: ScriptedUsage = Field(
        default_factory=lambda: ScriptedUsage.model_validate({"input_tokens": 0, "output_tokens": 0, "requests": 0}),
        description="Usage of every turn whose act names none; nothing is consumed by default.",
    )
    coverage: Mapping[Channel, Entry] = Field(
        default_factory=dict[Channel, CoverageEntry], description="Channels that are not complete, with a reason."
    )
    directives: bool = Field(
        False, description="Obey [[name: value]] in the input: the fields of an act, with JSON or plain values."
    )


_DIRECTIVE = re.compile(rf"\[\[({'|'.join(ScriptedAct.model_fields)})(?:\s*:\s*(.*?))?\]\]", re.DOTALL)
_FLAGS: dict[str, Any] = {"echo": True, "hang": True, "exit": 1, "fail": {}, "spin": 3600.0}


class DirectiveError(ValueError):
    """A directive in the input text can't be obeyed; the message says which and why."""


def directed(text: str) -> ScriptedAct | None:
    """The act that the directives in `text` add up to; None without any.

    `[[reply: hi]]`, `[[fail: provider]]`, `[[tools: [{"name": "f"}]]]`, `[[hang]]`. Raises DirectiveError.
    """
    fields: dict[str, Any] = {}
    for name, raw in _directives(text):
        value = _FLAGS.get(name) if raw is None else _value(name, raw)
        fields[name] = {"kind": value} if name == "fail" and isinstance(value, str) else value
    if not fields:
        return None
    try:
        return ScriptedAct.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DirectiveError(f"directive {place}: {first['msg']}") from error


def _directives(text: str) -> list[tuple[str, str | None]]:
    """Names and values; a value that is JSON ends where the JSON ends, so that it may hold `]]`."""
    found: list[tuple[str, str | None]] = []
    position = 0
    while match := _DIRECTIVE.search(text, position):
        name, raw, position = match[1], match[2], match.end()
        if raw is not None and raw[:1] in ("[", "{"):
            try:
                _, end = json.JSONDecoder().raw_decode(text, match.start(2))
            except ValueError as error:
                raise DirectiveError(f"directive {name}: not valid JSON: {error}") from error
            raw, position = text[match.start(2) : end], text.find("]]", end) + 2
        found.append((name, raw))
    return found


def _value(name: str, raw: str) -> Any:
    if name in ("reply", "thinking"):
        return raw
    try:
        return json.loads(raw)
    except ValueError:
        return raw
