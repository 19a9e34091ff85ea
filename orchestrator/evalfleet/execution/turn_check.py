"""The strict border between adapters, which anybody may write, and the record: a Turn checked and detached. PURE.

Text is kept as it is, NUL and lone surrogates included, at any size; floats too, NaN included. Containers are
copied, so that an agent that goes on changing an object it returned can't change what was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from evalfleet.errors import SendFailure
from evalfleet.model.coverage import Channel, CoverageEntry
from evalfleet.model.events import (
    MISSING,
    Compaction,
    ContextInjected,
    ErrorReported,
    Event,
    InputOption,
    InputRequested,
    Message,
    ModelRequest,
    ModelResponse,
    OperationFinished,
    OperationKind,
    OperationStarted,
    OperationStatus,
    Role,
    SkillLoaded,
    Thinking,
    Unrecognised,
)
from evalfleet.model.turn import Stop, StopKind, Turn, TurnStatus
from evalfleet.model.usage import Usage

#: How deep a JSON value may nest: below what any encoder or reader of records refuses.
DEPTH_LIMIT = 200

#: Integers a JSON value may hold, in bits: more is no measurement, and some readers stop there.
INTEGER_BITS = 1024

#: What one turn may count of anything: more is no measurement, and the sums of an attempt fit 64 bits.
COUNT_LIMIT = 10**12

#: US dollars of one turn: more is no price, and the sums over all turns of all runs stay finite.
COST_LIMIT = 1e12

_WORD = 1 << 63

_SCALARS = frozenset({str, bool, float, type(None), type(MISSING)})
_CHANNELS = frozenset(Channel)
_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "requests",
)


class InvalidTurn(ValueError):
    """What an adapter returned is no valid Turn: what is wrong, and where, from the outside in."""

    def __init__(self, what: str, place: str = "") -> None:
        self.what = what
        self.place = place
        super().__init__(what)

    def inside(self, outer: str) -> InvalidTurn:
        """The same problem seen from one level further out."""
        return InvalidTurn(self.what, outer + self.place)

    def __str__(self) -> str:
        place = self.place.removeprefix(".")
        return f"{place if len(place) < 120 else place[:80] + '…'}: {self.what}" if place else self.what


def checked_turn(value: object) -> Turn:
    """`value` as a valid Turn that shares no container with the adapter.

    Raises SendFailure of kind adapter with code INVALID_TURN that names the first thing wrong.
    """
    try:
        return _turn(value)
    except InvalidTurn as error:
        raise SendFailure(f"the adapter returned an invalid turn: {error}", code="INVALID_TURN") from None


def detached(value: Any, depth: int = 0) -> Any:
    """A copy of a JSON value. Raises InvalidTurn naming the place of what is not JSON."""
    kind = cast("type[Any]", type(value))
    if kind in _SCALARS:
        return value
    if kind is int and -_WORD < value < _WORD:
        return value
    if depth > DEPTH_LIMIT:
        raise InvalidTurn(f"nests deeper than {DEPTH_LIMIT} levels, or contains itself")
    if kind is dict:
        return _detached_object(value, depth)
    if kind is list or kind is tuple:
        return _detached_array(value, depth)
    return _detached_unusual(value, depth)


def _detached_object(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        if type(key) is not str:
            raise InvalidTurn(f"a key is a {type(key).__name__}; JSON keys are strings")
        if type(item) in _SCALARS:
            result[key] = item
            continue
        try:
            result[key] = detached(item, depth + 1)
        except InvalidTurn as error:
            raise error.inside(f".{key}") from None
    return result


def _detached_array(value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
    result: list[Any] = []
    for index, item in enumerate(value):
        try:
            result.append(detached(item, depth + 1))
        except InvalidTurn as error:
            raise error.inside(f"[{index}]") from None
    return result


def _detached_unusual(value: Any, depth: int) -> Any:
    """Big integers, and subclasses of JSON types (enums, ordered dicts), recorded as what they extend."""
    if isinstance(value, int):
        if value.bit_length() > INTEGER_BITS:
            raise InvalidTurn(f"an integer of more than {INTEGER_BITS} bits")
        return int(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, dict):
        return _detached_object(dict(cast("dict[Any, Any]", value)), depth)
    if isinstance(value, (list, tuple)):
        return _detached_array(list(cast("list[Any]", value)), depth)
    raise InvalidTurn(f"a {type(value).__name__} is no JSON value")


def _turn(value: object) -> Turn:
    if type(value) is not Turn:
        raise InvalidTurn(f"a {type(value).__name__} is not an evalfleet Turn")
    if type(value.status) is not TurnStatus:
        raise InvalidTurn(f"must be a TurnStatus, not a {type(value.status).__name__}", "status")
    _optional(value.reply, "reply")
    events = _events(value.events)
    if value.usage is not None:
        _check_usage(value.usage)
    coverage = _coverage(value.coverage) if value.coverage else value.coverage
    data = _json(value.data, "data")
    if value.observation is not None or value.session_state is not None or value.stop is not None:
        value = _suite_part(value)
    if events is value.events and data is value.data and coverage is value.coverage:
        return value
    return replace(value, events=events, data=data, coverage=coverage)


def without_invalid_state(value: object) -> tuple[object, str | None]:
    """What came back without a session state that is none, and what is wrong with it.

    It only keeps others from going on with the conversation: what the agent did is evidence all the same.
    """
    if type(value) is not Turn or value.session_state is None:
        return value, None
    try:
        _object(value.session_state, "session_state")
    except InvalidTurn as error:
        return replace(value, session_state=None), str(error)
    return value, None


def _suite_part(value: Turn) -> Turn:
    """The turn with what only scenarios read checked and detached."""
    stop = value.stop
    if stop is not None:
        _member(stop, Stop, "stop")
        _member(stop.kind, StopKind, "stop.kind")
        _text(stop.reason, "stop.reason")
    observation, state = (_object(getattr(value, name), name) for name in ("observation", "session_state"))
    return replace(value, observation=observation, session_state=state)


def _object(value: Any, name: str) -> dict[str, Any] | None:
    """A detached JSON object, or None."""
    if value is not None and not isinstance(value, Mapping):
        raise InvalidTurn(f"must be a JSON object or None, not a {type(value).__name__}", name)
    return None if value is None else _json(dict(cast("Mapping[str, Any]", value)), name)


def _events(events: object) -> tuple[Event, ...]:
    if not isinstance(events, (tuple, list)):
        raise InvalidTurn(f"must be a tuple of events, not a {type(events).__name__}", "events")  # pyright: ignore[reportUnknownArgumentType]
    items = cast("tuple[Event, ...] | list[Event]", events)
    result: list[Event] = []
    changed = type(items) is list
    for event in items:
        check = _CHECKS.get(type(event))
        if check is None:
            raise InvalidTurn(f"a {type(event).__name__} is no event type", f"events[{len(result)}]")
        try:
            checked = check(event)
        except InvalidTurn as error:
            raise error.inside(f"events[{len(result)}].") from None
        changed = changed or checked is not event
        result.append(checked)
    return tuple(result) if changed else cast("tuple[Event, ...]", events)


def _text(value: object, name: str) -> None:
    if type(value) is not str:
        raise InvalidTurn(f"must be text, not a {type(value).__name__}", name)


def _optional(value: object, name: str) -> None:
    if value is not None and type(value) is not str:
        raise InvalidTurn(f"must be text or None, not a {type(value).__name__}", name)


def _member(value: object, kind: type, name: str) -> None:
    if type(value) is not kind:
        raise InvalidTurn(f"must be a {kind.__name__}, not a {type(value).__name__}", name)


def _json(value: Any, name: str) -> Any:
    try:
        return detached(value)
    except InvalidTurn as error:
        raise error.inside(name) from None


def _message(event: Message) -> Event:
    _text(event.text, "text")
    _member(event.role, Role, "role")
    return event


def _thinking(event: Thinking) -> Event:
    _text(event.text, "text")
    return event


def _started(event: OperationStarted) -> Event:
    _text(event.operation_id, "operation_id")
    _text(event.name, "name")
    _member(event.kind, OperationKind, "kind")
    _optional(event.tool, "tool")
    _optional(event.raw_input, "raw_input")
    given = _json(event.input, "input")
    if given is event.input:
        return event
    return OperationStarted(event.operation_id, event.name, given, event.kind, event.tool, event.raw_input)


def _finished(event: OperationFinished) -> Event:
    _text(event.operation_id, "operation_id")
    _member(event.status, OperationStatus, "status")
    _member(event.kind, OperationKind, "kind")
    output = _json(event.output, "output")
    return event if output is event.output else OperationFinished(event.operation_id, event.status, output, event.kind)


def _skill(event: SkillLoaded) -> Event:
    _text(event.skill, "skill")
    _optional(event.operation_id, "operation_id")
    return event


def _requested(event: InputRequested) -> Event:
    for name in ("request_id", "prompt", "action"):
        _optional(getattr(event, name), name)
    _member(event.options, tuple, "options")
    for option in event.options:
        _member(option, InputOption, "options[]")
        _text(option.id, "options[].id")
        _optional(option.label, "options[].label")
    return replace(event, input=_json(event.input, "input"), options=event.options)


def _injected(event: ContextInjected) -> Event:
    _text(event.text, "text")
    _optional(event.source, "source")
    return event


def _compaction(event: Compaction) -> Event:
    _optional(event.reason, "reason")
    return event


def _error(event: ErrorReported) -> Event:
    _text(event.message, "message")
    return event


def _unrecognised(event: Unrecognised) -> Event:
    _text(event.name, "name")
    raw = _json(event.raw, "raw")
    return event if raw is event.raw else Unrecognised(event.name, raw)


def _model_request(event: ModelRequest) -> Event:
    _text(event.call_id, "call_id")
    for name in ("model", "instruction_digest", "instructions", "prompt_id", "prompt_revision"):
        _optional(getattr(event, name), name)
    _member(event.tools, tuple, "tools")
    for tool in event.tools:
        _text(tool, "tools[]")
    if event.messages is not None:
        _count(event.messages, "messages")
    body = _json(event.body, "body")
    return event if body is event.body else replace(event, body=body)


def _model_response(event: ModelResponse) -> Event:
    _text(event.call_id, "call_id")
    _text(event.outcome, "outcome")
    _optional(event.body, "body")
    if event.status is not None:
        _count(event.status, "status")
    if event.duration is not None and (type(event.duration) not in (int, float) or not event.duration >= 0):
        raise InvalidTurn(f"must be seconds from 0, not {_named(event.duration)}", "duration")
    if event.usage is not None:
        _check_usage(event.usage)
    return event


_CHECKS: dict[type, Callable[[Any], Event]] = {
    Message: _message,
    Thinking: _thinking,
    OperationStarted: _started,
    OperationFinished: _finished,
    SkillLoaded: _skill,
    InputRequested: _requested,
    ContextInjected: _injected,
    Compaction: _compaction,
    ErrorReported: _error,
    Unrecognised: _unrecognised,
    ModelRequest: _model_request,
    ModelResponse: _model_response,
}


def _check_usage(usage: Usage) -> None:
    _member(usage, Usage, "usage")
    for name in _COUNTS:
        if (count := getattr(usage, name)) is not None:
            _count(count, f"usage.{name}")
    _count(usage.unknown_calls, "usage.unknown_calls")
    cost = usage.cost_usd
    if cost is not None and (type(cost) not in (int, float) or not 0 <= cost <= COST_LIMIT):
        raise InvalidTurn(f"must be an amount from 0 to {COST_LIMIT:g}, not {_named(cost)}", "usage.cost_usd")


def _count(value: object, name: str) -> None:
    if type(value) is not int or not 0 <= value <= COUNT_LIMIT:
        raise InvalidTurn(f"must be a whole number from 0 to {COUNT_LIMIT:,}, not {_named(value)}", name)


def _named(value: object) -> str:
    """A number as it is written, anything else by its type."""
    if type(value) is int and value.bit_length() > INTEGER_BITS:
        return f"one of {value.bit_length()} bits"
    return repr(value) if type(value) in (int, float) else f"a {type(value).__name__}"


def _coverage(coverage: object) -> Mapping[Channel, CoverageEntry]:
    if not isinstance(coverage, Mapping):
        raise InvalidTurn(f"must map channels to entries, not be a {type(coverage).__name__}", "coverage")
    result: dict[Channel, CoverageEntry] = {}
    for key, entry in cast("Mapping[Any, Any]", coverage).items():
        if key not in _CHANNELS:
            raise InvalidTurn(f"unknown channel; there are {', '.join(Channel)}", "coverage")
        if type(entry) is not CoverageEntry:
            raise InvalidTurn("must be complete, partial(reason) or unavailable(reason)", f"coverage.{key}")
        result[Channel(key)] = entry
    return result
