"""What the converters of all model APIs make of an answer: calls of tools, how it stopped, and the pieces of a turn.

Arguments are read leniently (text, object, null or cut short) and integers are exact at any size.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from evalfleet.model.coverage import Channel, CoverageEntry
from evalfleet.model.events import MISSING, Event, OperationStarted, Unrecognised
from evalfleet.model.usage import Usage
from evalfleet_adapters.converters.untrusted import as_text, mapping, recordable


class Finish(StrEnum):
    """Why the model stopped, in our words; `unknown` covers a reason we don't know and a missing one.

    `paused`: the provider gave the answer back in the middle and goes on when it is asked again.
    """

    STOP = "stop"
    TOOLS = "tools"
    LENGTH = "length"
    FILTERED = "filtered"
    PAUSED = "paused"
    ERROR = "error"
    UNKNOWN = "unknown"


class UnusableResponse(ValueError):
    """A response that is none of its API; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderError:
    """An error that the provider reported inside a response. `code` is its own, as text."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call the model asks for. `arguments` is None when they can't be read; `problem` then says why.

    `raw` is the text as received. `custom` is a call whose input is free text, which no tool of ours takes;
    `remote` one that the provider runs on its side when somebody allows it.
    """

    id: str
    name: str
    arguments: dict[str, Any] | None
    raw: str
    problem: str | None = None
    custom: bool = False
    remote: bool = False

    def started(self) -> OperationStarted:
        if self.arguments is None:
            return OperationStarted(self.id, self.name, MISSING, raw_input=self.raw)
        return OperationStarted(self.id, self.name, self.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """One answer of the model. `text` is what it answers, None without; a reply's `events` are in its own order.

    `calls` are those that we run; where their starts stand among the events is the API's matter, and those that do
    not stand there follow. `sent_back` is what stands for the answer in the next request, `coverage` what this
    answer can't prove, and `stopped` says more of why a filter stopped it.
    """

    text: str | None
    events: tuple[Event, ...]
    calls: tuple[ToolCall, ...]
    finish: Finish
    usage: Usage | None
    sent_back: tuple[dict[str, Any], ...]
    coverage: Mapping[Channel, CoverageEntry] = field(default_factory=dict[Channel, CoverageEntry])
    stopped: str | None = None

    @property
    def all_events(self) -> tuple[Event, ...]:
        """The events, with the starts of all calls."""
        begun = {event.operation_id for event in self.events if isinstance(event, OperationStarted)}
        return (*self.events, *(call.started() for call in self.calls if call.id not in begun))

    @property
    def is_empty(self) -> bool:
        """Well-formed and wholly empty: no text, call, reasoning or unknown part, and not cut short or filtered."""
        reasoned = self.usage is not None and bool(self.usage.reasoning_tokens)
        normal = self.finish not in (Finish.LENGTH, Finish.FILTERED, Finish.PAUSED)
        return normal and not (self.text or self.events or self.calls or reasoned)


def read_arguments(value: Any) -> tuple[dict[str, Any] | None, str, str | None]:
    """Tool arguments as `(object or None, text as received, problem)`. Empty, blank and null mean `{}`."""
    if value is None:
        return {}, "", None
    if not isinstance(value, str):
        parsed, raw = value, as_text(value)
    else:
        raw = value
        if not raw.strip():
            return {}, "", None
        try:
            parsed = json.loads(raw)
        except (ValueError, RecursionError) as error:
            return None, raw, f"the arguments are not valid JSON: {error}"
    if parsed is None:
        return {}, "", None
    if not isinstance(parsed, dict):
        return None, raw, f"the arguments are a JSON {type(parsed).__name__}, not an object"
    if not recordable(parsed):
        return None, raw, "the arguments nest too deep or hold an integer of hundreds of digits"
    return mapping(parsed), raw, None


def distinct(identifier: str, used: set[str], index: int) -> str:
    """The identifier made different from those in `used`, to which it is added."""
    while identifier in used:
        identifier += f"_{index}"
    used.add(identifier)
    return identifier


def recorded(value: Any) -> Any:
    """A value as a record can hold it."""
    return value if value is MISSING or recordable(value) else as_text(value)


def kept(name: str, raw: Any) -> Unrecognised:
    """What nobody knows, so that a record can hold it."""
    return Unrecognised(name, recorded(raw))


def head(value: Any) -> str:
    """The beginning of a value for a message."""
    shown = as_text(value)
    return shown if len(shown) <= 300 else shown[:300] + "…"
