"""What a scenario's checks look at: a turn's observation as JSON, and how far each part can be trusted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, cast

from pydantic import alias_generators

from evalfleet.assertions.event_index import EventIndex, Occurrence
from evalfleet.assertions.evidence import coverage_reason
from evalfleet.model.coverage import COMPLETE_COVERAGE, Channel, Coverage, CoverageState
from evalfleet.model.events import MISSING, Event, OperationKind, OperationStarted
from evalfleet.model.suite import SuitePath
from evalfleet.model.turn import TurnRecord

#: A name of ours in the names of a suite's document.
to_camel = lru_cache(maxsize=256)(alias_generators.to_camel)

#: The keys of the observation that is built from a turn, each with the channel that it is read from.
CHANNELS: Mapping[str, Channel] = MappingProxyType(
    {
        "reply": Channel.MESSAGES,
        "status": Channel.STATUS,
        "data": Channel.DATA,
        "toolCalls": Channel.ACTIONS,
        "events": Channel.EVENTS,
        "usage": Channel.USAGE,
    }
)


_SCALARS = frozenset({str, int, float, bool})


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A JSON object and the coverage of its keys; without channels, all of it is known.

    `channels` names the channel of each key at the root, `otherwise` that of every other key, None for a known one.
    """

    value: Mapping[str, Any]
    coverage: Coverage = COMPLETE_COVERAGE
    channels: Mapping[str, Channel] = field(default_factory=dict[str, Channel])
    otherwise: Channel | None = None

    def gap(self, path: SuitePath) -> str | None:
        """Why what stands at `path` may not be all there is, as `coverage:actions=partial (…)`; None when it is.

        The root is as good as the worst of its parts.
        """
        if path:
            channel = self.channels.get(str(path[0]), self.otherwise)
            considered = [] if channel is None else [channel]
        else:
            considered = [*self.channels.values(), *([] if self.otherwise is None else [self.otherwise])]
        gaps = [channel for channel in considered if not self.coverage.entry(channel).is_complete]
        if not gaps:
            return None
        worst = max(gaps, key=lambda channel: self.coverage.entry(channel).state is CoverageState.UNAVAILABLE)
        return coverage_reason(worst, self.coverage.entry(worst))


def observe(turn: TurnRecord) -> Observation:
    """The observation of a turn: its own when the adapter gave one, else what is built of the turn.

    Built: `reply`, `status`, `data` when there is some, `toolCalls`, `events`, and `usage`, null when it is unknown.
    """
    if turn.observation is not None:
        return Observation(value=turn.observation, coverage=turn.coverage, otherwise=Channel.DATA)
    data = {} if turn.data is MISSING else {"data": turn.data}
    calls = _calls(turn) if any(type(event) is OperationStarted for event in turn.events) else []
    value = {
        "reply": turn.reply,
        "status": turn.status.value,
        **data,
        "toolCalls": calls,
        "events": [_event(event) for event in turn.events],
        "usage": None if turn.usage is None else _fields(turn.usage),
    }
    return Observation(value=value, coverage=turn.coverage, channels=CHANNELS)


def _calls(turn: TurnRecord) -> list[dict[str, Any]]:
    return [_call(call) for call in EventIndex((turn,)).operations if call.kind is OperationKind.TOOL]


def _call(call: Occurrence) -> dict[str, Any]:
    said = {"name": call.name, "input": call.input, "output": call.output, "status": call.status.value}
    return {key: item for key, item in said.items() if item is not MISSING}


def _event(event: Event) -> dict[str, Any]:
    return {"type": event.type, **_fields(event)}


def _fields(value: Any) -> dict[str, Any]:
    """The fields of a value that say something, in the names of a suite's document."""
    found: dict[str, Any] = {}
    kind = cast("type[Any]", type(value))
    for key, name in _keys(kind):
        item = getattr(value, name)
        if item is not MISSING and item is not None:
            found[key] = item if type(item) in _SCALARS else _json(item)
    return found


@cache
def _keys(kind: type[Any]) -> tuple[tuple[str, str], ...]:
    """The keys of a value's fields, each with the name it has here."""
    return tuple((to_camel(item.name), item.name) for item in fields(kind))


def _json(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_fields(option) for option in cast("tuple[Any, ...]", value)]
    return value
